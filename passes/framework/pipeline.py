"""Pipelines that mix covan's passes with MLIR's and torch-mlir's: parsed, checked, run."""

import re
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir
from torch_mlir._mlir_libs import _torchMlir  # noqa: F401  # registers torch-mlir's passes
from torch_mlir.passmanager import PassManager

from covan_mlir.passes.framework import registry
from covan_mlir.passes.framework.interface import Pass, PassFailure, op_name_of
from covan_mlir.passes.framework.near import nearest
from covan_mlir.passes.framework.options import describe, parse_options
from covan_mlir.passes.framework.pipeline_text import Element, Reader
from covan_mlir.passes.framework.place import enter, place
from covan_mlir.passes.framework.trace_check import TraceError, run_checked


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


@dataclass(frozen=True)
class PassStep:
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
    steps: tuple[PassStep, ...]

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
                    description=registry.summary(type(pass_)),
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
            with operation.context:  # passes make operations and attributes there
                manager.run(operation)
        except ir.MLIRError as error:
            raise PassError(str(error)) from (raised[0][1] if raised else error)


def _callback(
    pass_: Pass, path: tuple[str, ...], raised: list[tuple[Pass, Exception]] | None
) -> Callable[[ir.Operation, Any], None]:
    def run(op: ir.Operation, handle: Any) -> None:
        for target in _descend(op, path):
            around = target.location
            enter(None)
            try:
                run_checked(pass_, target)
            # An exception must not unwind through the pass manager's C++ frames, and it is the pass's name
            # that its author needs to see.
            except Exception as error:
                # Taken before: a pass that fails may have erased its op.
                location = getattr(error, "location", None) or place() or around
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


def parse_pipeline(text: str, context: ir.Context | None = None) -> Pipeline:
    """Parses ``builtin.module(a,b{opt=1},func.func(c))``; covan's passes may stand at any nesting.

    Args:
        context: for asking the bindings about upstream passes; one that is made for it takes 15 ms.

    Raises:
        PipelineError: the text is malformed, no pass has that name, it has no such option, an option's value
            is wrong, or the pass cannot run on the op it is nested under.
    """
    reader = Reader(text)
    whole = reader.pipeline()
    resolver = _Resolver(reader, context)
    return Pipeline(whole.name, tuple(_joined(resolver.steps(whole, ()))))


class _Resolver:
    """Finds what the elements of a pipeline's text stand for."""

    def __init__(self, reader: Reader, context: ir.Context | None) -> None:
        self._reader = reader
        self._context = context

    def steps(self, group: Element, path: tuple[str, ...]) -> Iterator[PassStep]:
        """The steps of a group, whose path ``path`` is."""
        for element in group.children or ():
            if element.children is not None:
                yield from self.steps(element, (*path, element.name))
            elif (pass_class := registry.lookup(element.name)) is None:
                self._check_upstream(element, group.name)
                yield PassStep(path, element.text)
            else:
                yield PassStep(path, self._own(element, pass_class, group.name))

    def _own(self, element: Element, pass_class: type[Pass], anchor: str) -> Pass:
        """A pass of covan's with its options."""
        fail = self._reader.fail
        wanted = op_name_of(pass_class)
        if wanted is not None and anchor not in (wanted, "any"):
            fail(f"pass '{element.name}' runs on {wanted} and cannot be nested under {anchor}", element.offset)

        def fail_in_options(message: str, offset: int) -> typing.NoReturn:
            fail(message, element.options_offset + offset)

        options = parse_options(pass_class, element.options or "", fail_in_options)
        try:
            return pass_class(**options)
        # An option without a default is missing, or the pass's own __post_init__ refuses a value.
        except (TypeError, ValueError) as error:
            fail(f"pass '{element.name}': {error}", element.offset)

    def _check_upstream(self, element: Element, anchor: str) -> None:
        """Fails where an upstream pass is not known, has no such option or cannot run on ``anchor``."""
        if self._context is None:
            self._context = ir.Context()
        try:
            PassManager(anchor, self._context).add(element.text)
        except ValueError as error:
            if "does not refer to a registered pass" in str(error):
                close = nearest(element.name, (*registry.names(), *UPSTREAM_PASSES))
                self._reader.fail(f"no pass is called '{element.name}'{close}", element.offset)
            reason = re.sub(r"failed to add `.*", "", str(error)).strip() or f"cannot parse {element.text}"
            self._reader.fail(f"pass '{element.name}': {reason}", element.offset)


def _joined(steps: Iterable[PassStep]) -> Iterator[PassStep]:
    """Neighbouring upstream passes on the same ops become one step, as one nested pass manager runs them."""
    held: PassStep | None = None
    for step in steps:
        if held is not None and isinstance(step.action, str) and step.path == held.path:
            held = PassStep(held.path, f"{held.action},{step.action}")
            continue
        if held is not None:
            yield held
        held = step if isinstance(step.action, str) else None
        if held is None:
            yield step
    if held is not None:
        yield held
