"""Passes by name, and pipelines that mix covan's passes with MLIR's and torch-mlir's.

A covan pass is a frozen dataclass whose fields are its options, with a class
attribute ``name`` and a method ``run(op)``. ``prov-strip`` lives in
``passes/prov_strip.py``; nothing else registers it. ``op_name``, a class
attribute, is the op that it runs on: ``builtin.module`` by default, None for any.

Grammar of a pipeline::

    pipeline := anchor "(" [element ("," element)*] ")"
    element  := name ["{" options "}"] ["(" [element ("," element)*] ")"]
    options  := (key "=" value | key) separated by spaces
"""

import dataclasses
import difflib
import importlib
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

# Importing it registers torch-mlir's passes.
from torch_mlir._mlir_libs import _torchMlir  # noqa: F401
from torch_mlir.passmanager import PassManager

import covan_mlir.passes
from covan_mlir.passes.interface import Pass as Pass
from covan_mlir.passes.interface import PassFailure as PassFailure
from covan_mlir.passes.interface import op_name_of as op_name_of
from covan_mlir.passes.trace_check import TraceError, run_checked


class PipelineError(ValueError):
    """A pipeline's text is wrong at ``offset``. ``str`` shows the place."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        super().__init__(f"{message}\n  {text}\n  {' ' * offset}^")
        self.message = message
        self.offset = offset


class PassError(RuntimeError):
    """A pass failed while a pipeline ran. Its cause is the exception that the pass raised, if it did."""


# Names that a typing error is compared with, besides covan's own: the bindings can build any pass of MLIR
# and of torch-mlir by name but not list them.
UPSTREAM_PASSES: tuple[str, ...] = (
    "canonicalize",
    "cse",
    "inline",
    "symbol-dce",
    "strip-debuginfo",
    "sccp",
    "loop-invariant-code-motion",
    "convert-elementwise-to-linalg",
    "linalg-fuse-elementwise-ops",
    "linalg-generalize-named-ops",
    "linalg-specialize-generic-ops",
    "convert-linalg-to-loops",
    "lower-affine",
    "one-shot-bufferize",
    "torch-decompose-complex-ops",
    "torch-lower-to-backend-contract",
    "torch-backend-to-linalg-on-tensors-backend-pipeline",
    "torch-function-to-torch-backend-pipeline",
    "convert-torch-to-linalg",
    "convert-torch-to-arith",
    "convert-torch-to-tensor",
    "torch-func-backend-type-conversion",
    "torch-finalizing-backend-type-conversion",
)

_extra: dict[str, type[Pass]] = {}


def register(pass_class: type[Pass]) -> type[Pass]:
    """Makes a pass from outside this package known under its ``name``. Usable as a decorator.

    Raises:
        TypeError: it is not a dataclass with a ``name`` and a ``run``.
    """
    if not is_pass(pass_class):
        raise TypeError(f"{pass_class!r} is not a pass: a pass is a dataclass with a name and a method run(op)")
    _extra[pass_class.name] = pass_class
    return pass_class


def is_pass(value: object) -> typing.TypeGuard[type[Pass]]:
    """Whether ``value`` is the class of a pass: a dataclass with a ``name`` and a method ``run``."""
    return (
        isinstance(value, type)
        and dataclasses.is_dataclass(value)
        and isinstance(getattr(value, "name", None), str)
        and callable(getattr(value, "run", None))
    )


def _module_names() -> list[str]:
    return [info.name for info in pkgutil.iter_modules(covan_mlir.passes.__path__)]


def lookup(name: str) -> type[Pass] | None:
    """The covan pass called ``name``, or None. Imports the file that is named after it and no other."""
    if name in _extra:
        return _extra[name]
    module_name = name.replace("-", "_")
    if module_name not in _module_names():
        return None
    module = importlib.import_module(f"{covan_mlir.passes.__name__}.{module_name}")
    found = [value for value in vars(module).values() if is_pass(value) and value.name == name]
    return found[0] if found else None


def all_passes() -> list[type[Pass]]:
    """Every covan pass, by name. Imports all of them."""
    found = {name: pass_ for m in _module_names() if (pass_ := lookup(name := m.replace("_", "-")))}
    return [pass_ for _, pass_ in sorted((found | _extra).items())]


def option_name(field: str) -> str:
    """The option of a dataclass field: ``drop_table`` is written ``drop-table``."""
    return field.replace("_", "-")


def option_types(pass_class: type[Pass]) -> dict[str, Any]:
    """The options of a pass, by their names on the command line, and their types."""
    hints = typing.get_type_hints(pass_class)
    return {option_name(f.name): hints[f.name] for f in dataclasses.fields(typing.cast(Any, pass_class))}


def type_name(kind: Any) -> str:
    """How an option's type is called in messages: ``int``, ``bool``, ``str`` or ``tuple of int``."""
    arguments = typing.get_args(kind)
    return f"tuple of {arguments[0].__name__}" if arguments else str(kind.__name__)


def parse_value(kind: Any, text: str) -> Any:
    """``text`` as an ``int``, ``bool``, ``str`` or a tuple of these; tuples are ``1,2`` or ``{1,2}``.

    Raises:
        ValueError: it is none; the message says what was expected.
    """
    if typing.get_origin(kind) is tuple:
        inner = text[1:-1] if text[:1] + text[-1:] == "{}" else text
        return tuple(parse_value(typing.get_args(kind)[0], item.strip()) for item in inner.split(",") if item)
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"'{text}' is not a bool: true or false")
        return text.lower() in ("true", "1")
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"'{text}' is not an int") from None
    if kind is str:
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    raise ValueError(f"its type {kind} cannot be written on a command line")


def print_value(value: Any) -> str:
    """The reverse of ``parse_value``."""
    if isinstance(value, tuple):
        return "{" + ",".join(print_value(item) for item in value) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return f'"{text}"' if not text or re.search(r"[\s{},()=]", text) else text


def describe(pass_: Pass) -> str:
    """A pass as a pipeline element, with the options that differ from their defaults."""
    changed = []
    for field in dataclasses.fields(typing.cast(Any, pass_)):
        value = getattr(pass_, field.name)
        if value != field.default:
            changed.append(f"{option_name(field.name)}={print_value(value)}")
    return f"{pass_.name}{{{' '.join(changed)}}}" if changed else pass_.name


_OPTION = re.compile(r"""\s*(?P<key>[^\s={}]+)(?:=(?P<value>\{[^{}]*\}|"[^"]*"|'[^']*'|[^\s{}"']*))?(?=\s|$)""")


def _options(pass_class: type[Pass], text: str, fail: Callable[[str, int], typing.NoReturn]) -> dict[str, Any]:
    known = option_types(pass_class)
    found: dict[str, Any] = {}
    position = 0
    while text[position:].strip():
        match = _OPTION.match(text, position)
        if match is None:
            fail("expected an option, key=value", position)
        key, value = match["key"], match["value"]
        at = match.start("key")
        # mlir spells options in kebab case; the field's own spelling is understood as well.
        key = option_name(key)
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            fail(f"pass '{pass_class.name}' has no option '{key}'{_nearest(key, known)}; {has}", at)
        if value is None and known[key] is not bool:
            fail(f"option '{key}' of pass '{pass_class.name}' needs a value: {type_name(known[key])}", at)
        try:
            # As in mlir, a bool named alone is true.
            found[key.replace("-", "_")] = True if value is None else parse_value(known[key], value)
        except ValueError as error:
            fail(f"option '{key}' of pass '{pass_class.name}': {error}", at)
        position = match.end()
    return found


def _nearest(name: str, among: typing.Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(among), 1)
    return f", did you mean '{close[0]}'?" if close else ""


@dataclass(frozen=True)
class Step:
    """One thing to run: ``action`` is a covan pass, or the text of upstream passes.

    It runs on the ops that ``path`` leads to: ``("func.func",)`` is every
    function directly in the op that the pipeline is anchored on.
    """

    path: tuple[str, ...]
    action: Pass | str

    def __str__(self) -> str:
        text = self.action if isinstance(self.action, str) else describe(self.action)
        for name in reversed(self.path):
            text = f"{name}({text})"
        return text


@dataclass(frozen=True)
class Pipeline:
    """A parsed pipeline: an anchor and steps, in the order they run.

    A group such as ``func.func(a,b)`` whose passes are not all upstream's is
    taken apart into ``func.func(a),func.func(b)``: passes on functions do not
    see each other's functions, so the result is the same.
    """

    anchor: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.anchor}({','.join(map(str, self.steps))})"

    def build(self, context: ir.Context, raised: list[tuple[Pass, Exception]] | None = None) -> PassManager:
        """One PassManager for the whole pipeline.

        A covan pass that raises fails the pipeline with a diagnostic at the op;
        the exception is appended to ``raised``.

        """
        manager = PassManager(self.anchor, context)
        for step in self.steps:
            if isinstance(step.action, str):
                manager.add(str(step))
            else:
                pass_ = step.action
                # Without op_name: the bindings keep a reference to the string and not the string, so that the
                # pass cannot be scheduled once it is freed. What a pass runs on is checked when parsing.
                manager.add(
                    _callback(pass_, step.path, raised),
                    name=type(pass_).__name__,
                    argument=describe(pass_),
                    description=summary(type(pass_)),
                )
        return manager

    def run(self, op: ir.Module | ir.Operation) -> None:
        """Runs the pipeline on ``op``, in place.

        Raises:
            PassError: a pass failed, or left IR that does not verify; the message holds the diagnostics.
        """
        operation = op.operation
        raised: list[tuple[Pass, Exception]] = []
        manager = self.build(operation.context, raised)
        try:
            manager.run(operation)
        except ir.MLIRError as error:
            raise PassError(str(error)) from (raised[0][1] if raised else error)


def summary(pass_class: type[Pass]) -> str:
    """The first line of a pass's docstring."""
    return (pass_class.__doc__ or "").strip().split("\n")[0]


def _callback(
    pass_: Pass, path: tuple[str, ...], raised: list[tuple[Pass, Exception]] | None
) -> Callable[[ir.Operation, Any], None]:
    def run(op: ir.Operation, handle: Any) -> None:
        for target in _descend(op, path):
            around = target.location
            try:
                run_checked(pass_, target)
            # An exception must not unwind through the pass manager's C++ frames, and it is the pass's name
            # that its author needs to see.
            except Exception as error:
                # Taken before: a pass that fails may have erased its op.
                location = getattr(error, "location", None) or around
                if isinstance(error, TraceError):
                    for fault in error.faults:
                        fault.location.emit_error(f"pass '{pass_.name}' {fault}")
                elif isinstance(error, PassFailure):
                    location.emit_error(f"pass '{pass_.name}': {error}")
                else:
                    location.emit_error(f"pass '{pass_.name}' raised {type(error).__name__}: {error}")
                if raised is not None:
                    raised.append((pass_, error))
                handle.signal_pass_failure()
                return

    return run


def _descend(op: ir.Operation, path: tuple[str, ...]) -> Iterator[ir.Operation]:
    if not path:
        yield op
        return
    # A list, for the pass may erase what it is given.
    inside = [nested.operation for region in op.regions for block in region for nested in block]
    for nested in inside:
        if path[0] in (nested.name, "any"):
            yield from _descend(nested, path[1:])


@dataclass(frozen=True)
class _Element:
    name: str
    offset: int
    options: str | None
    options_offset: int
    children: "tuple[_Element, ...] | None"
    text: str


_NAME = re.compile(r"\s*([A-Za-z_][\w.\-]*)\s*")


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._context: ir.Context | None = None

    @property
    def context(self) -> ir.Context:
        """For asking the bindings about upstream passes; made once, for it takes 15 ms."""
        if self._context is None:
            self._context = ir.Context()
        return self._context

    def fail(self, message: str, offset: int | None = None) -> typing.NoReturn:
        raise PipelineError(message, self.text, self.at if offset is None else offset)

    def peek(self, character: str) -> bool:
        return self.text[self.at : self.at + 1] == character

    def element(self) -> _Element:
        match = _NAME.match(self.text, self.at)
        if match is None:
            self.fail("expected the name of a pass or of an op")
        start, self.at = match.start(1), match.end()
        options, options_offset = None, self.at + 1
        if self.peek("{"):
            options = self.braces()
        children = None
        if self.peek("("):
            self.at += 1
            children = self.elements(")")
            if not self.peek(")"):
                self.fail("unbalanced '(' in the pipeline")
            self.at += 1
        text = self.text[start : self.at].strip()
        self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
        return _Element(match[1], start, options, options_offset, children, text)

    def braces(self) -> str:
        depth, start = 1, self.at + 1
        self.at = start
        while depth:
            if self.at == len(self.text):
                self.fail("unbalanced '{' in the pipeline", start - 1)
            character = self.text[self.at]
            closing = self.text.find(character, self.at + 1) if character in "\"'" else -1
            if closing > 0:  # what is quoted does not nest
                self.at = closing
            depth += {"{": 1, "}": -1}.get(character, 0)
            self.at += 1
        return self.text[start : self.at - 1]

    def elements(self, closing: str) -> tuple[_Element, ...]:
        found: list[_Element] = []
        if not self.text[self.at :].strip() or self.text[self.at :].lstrip().startswith(closing or "\0"):
            self.at = len(self.text) - len(self.text[self.at :].lstrip())
            return ()
        while True:
            found.append(self.element())
            if not self.peek(","):
                return tuple(found)
            self.at += 1


def parse_pipeline(text: str) -> Pipeline:
    """Parses ``builtin.module(a,b{opt=1},func.func(c))``; covan's passes may stand at any nesting.

    Raises:
        PipelineError: the text is malformed, no pass has that name, it has no such option, an option's value
            is wrong, or the pass cannot run on the op it is nested under.
    """
    parser = _Parser(text)
    element = parser.element() if text.strip() else None
    if element is None or element.children is None or element.options is not None:
        parser.fail("expected a pipeline wrapped in the op it runs on, such as builtin.module(cse)", 0)
    if parser.at != len(text):
        parser.fail("expected the end of the pipeline")
    steps = list(_steps(element.children, (), element.name, parser))
    return Pipeline(element.name, tuple(_joined(steps)))


def _steps(elements: tuple[_Element, ...], path: tuple[str, ...], anchor: str, parser: _Parser) -> Iterator[Step]:
    for element in elements:
        if element.children is not None:
            yield from _steps(element.children, (*path, element.name), element.name, parser)
            continue
        pass_class = lookup(element.name)
        if pass_class is None:
            _check_upstream(element, anchor, parser)
            yield Step(path, element.text)
            continue
        wanted = op_name_of(pass_class)
        if wanted is not None and anchor not in (wanted, "any"):
            parser.fail(f"pass '{element.name}' runs on {wanted} and cannot be nested under {anchor}", element.offset)

        def fail(message: str, at: int, start: int = element.options_offset) -> typing.NoReturn:
            parser.fail(message, start + at)

        options = _options(pass_class, element.options or "", fail)
        try:
            yield Step(path, pass_class(**options))
        # An option without a default is missing, or the pass's own __post_init__ refuses a value.
        except (TypeError, ValueError) as error:
            parser.fail(f"pass '{element.name}': {error}", element.offset)


def _joined(steps: list[Step]) -> Iterator[Step]:
    """Neighbouring upstream passes on the same ops become one step, as one nested pass manager runs them."""
    held: Step | None = None
    for step in steps:
        if held is not None and isinstance(step.action, str) and step.path == held.path:
            held = Step(held.path, f"{held.action},{step.action}")
            continue
        if held is not None:
            yield held
        held = step if isinstance(step.action, str) else None
        if held is None:
            yield step
    if held is not None:
        yield held


def _check_upstream(element: _Element, anchor: str, parser: _Parser) -> None:
    """Fails where an upstream pass is not known, has no such option or cannot run on ``anchor``."""
    try:
        PassManager(anchor, parser.context).add(element.text)
    except ValueError as error:
        if "does not refer to a registered pass" in str(error):
            ours = [name for m in _module_names() if lookup(name := m.replace("_", "-"))]
            close = _nearest(element.name, (*ours, *_extra, *UPSTREAM_PASSES))
            parser.fail(f"no pass is called '{element.name}'{close}", element.offset)
        reason = re.sub(r"failed to add `.*", "", str(error)).strip() or f"cannot parse {element.text}"
        parser.fail(f"pass '{element.name}': {reason}", element.offset)
