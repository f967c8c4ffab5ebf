"""What a part's operator does, found out by running it: does it give back an operand, which constant does it make?

The first is asked only of parts that left no trace in the compiled program and are no views by their schema: a
multiplication by one, a copy, an addition of zero. They are run on integers that are exact in the type, small ones and
the largest, so equal results are equal, and unequal ones differ. Integers of one width are the same if their bits are.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from covan_mlir.frontend.dtypes import DTYPES, NAMES
from covan_mlir.frontend.quantized_operators import NAMESPACE, declared
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import ELEMENT, PREFIX
from covan_mlir.provenance.model import Part
from covan_mlir.provenance.unchecked import is_unchecked

_ROUNDS = 2
_DATA_DEPENDENT = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
_LARGE = 1 << 20  # elements
_VIEWS = 8
"""Of views, one behind the other, that are looked through."""
_KEEPERS = 3
"""Of operators, one behind the other, that give back an operand and are looked through as if they were views."""
_TYPE = re.compile(r"(?P<dtype>\w+)\[(?P<shape>.*)\]")


_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError)
"""What operators raise for what they do not take."""


class _Seen(NamedTuple):
    """An operand as views of a value, the first one first; none: it is the value. What gives back an operand is one."""

    value: Operand
    kind: str
    views: tuple[Part, ...]

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """What the views do, whatever they are views of."""
        return tuple(
            (view.op, arguments.signature(view.args)) if view.view else ("", view.types[0]) for view in self.views
        )


class Identities:
    """Answers for the parts of one model, remembered. Called with the id of a part, says whether it gives one back.

    What an operator gives back is the same for all parts that call it alike: layers of one kind are run once.
    """

    def __init__(self, parts: Mapping[int, Part]) -> None:
        self._parts = parts
        self._known: dict[int, int | None] = {}
        self._alike: dict[Hashable, int | None] = {}

    def __call__(self, part: int) -> bool:
        return self.kept(part) is not None

    def kept(self, part: int) -> int | None:
        """The position of the operand (`covan_mlir.provenance.arguments.operands`) that a part gives back, or None."""
        if part not in self._known:
            position = self._find(self._parts[part])
            if position is None and len(set(arguments.operands(self._parts[part].args))) > 1:
                position = self._find(self._parts[part], _KEEPERS)  # of two operands, one may be the other
            self._known[part] = position
        return self._known[part]

    def label(self, part: int) -> str | None:
        """What tells a part apart from others whose operator and arguments do not: the fingerprint of the constant that
        it makes (`fingerprint`), or that it is random and equal to nothing but itself; None of others."""
        producer = self._parts[part]
        if _is_random(_operator(producer.op)):
            return f"{producer.op}#{part}{arguments.signature(producer.args)}"
        return fingerprint(producer.op, producer.args)

    @staticmethod
    def gives_view(op: str) -> bool | None:
        """Whether an operator's result is memory of its operands, by its schema, or no tensor at all; None if no such
        operator is registered."""
        if op.startswith(PREFIX):
            return op == ELEMENT
        operator = _operator(op)
        if operator is None:
            words = op.split(".")  # other functions are called by their modules
            return None if len(words) == 3 and words[0] != "torch" else True
        if operator._schema.name.startswith("aten::sym_"):
            return True
        returns = operator._schema.returns
        return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)

    def types(self, part: int) -> tuple[str, ...] | None:
        """The types of what a part gives, found out from those of its operands; None where they are not all known, or
        its operator has no rule for that.

        Raises:
            ValueError: the operator does not take such operands.
        """
        called = self._parts[part]
        operator = _operator(called.op)
        operands = arguments.operands(called.args)
        known = arguments.operand_types(called.args)
        shapes = {operand: _shape(known[operand] if operand in known else self._type(operand)) for operand in operands}
        if operator is None or operator.namespace != "aten" or _DATA_DEPENDENT & {*operator.tags}:
            return None
        if None in shapes.values() or '{"d"' in called.args or '{"r"' in called.args:
            return None
        if operator is torch.ops.aten.Bool.Tensor:  # a number that elements decide
            return None
        given = {operand: shape for operand, shape in shapes.items() if shape is not None}
        try:
            types = _called(operator, called.args, given, "meta")
            if types is None or types == called.types:
                return types
            with FakeTensorMode():  # of some operators, results that are not meant to be read differ by device
                return _called(operator, called.args, given, "cpu")
        except (NotImplementedError, TypeError, AttributeError):
            return None
        except (RuntimeError, IndexError, ArithmeticError, AssertionError) as error:  # a stride of 0 divides by it
            raise ValueError(str(error).partition("\n")[0]) from error

    @staticmethod
    def writes(op: str) -> bool:
        """Whether an operator writes into what it is given, by its schema."""
        operator = _operator(op)
        return operator is not None and operator._schema.is_mutable

    def _find(self, part: Part, keepers: int = 0) -> int | None:
        """Which operand a part gives back.

        Args:
            keepers: how many operators, one behind the other, that give back an operand are taken for it.
        """
        operator = _operator(part.op)
        if operator is None or len(part.types) != 1 or _is_random(operator) or is_unchecked(part.op):
            return None
        operands = arguments.operands(part.args)
        types = arguments.operand_types(part.args)
        kinds = [types[o] if o in types else self._type(o) for o in operands]
        repeated = tuple(operands.index(operand) for operand in operands)
        makers = [self._parts[int(name)] if kind == "p" and name in self._parts else None for kind, name in operands]
        constants = {
            operand: constant
            for operand, maker in zip(operands, makers, strict=True)
            if maker is not None and (constant := _constant(maker.op, maker.args, _of_type)) is not None
        }
        made_by = tuple((m.op, m.args) if m and o in constants else None for m, o in zip(makers, operands, strict=True))
        shared = self._shared(operands, keepers)
        chains = [shared[operand] if operand in shared else _Seen(operand, "", ()) for operand in operands]
        values = [chain.value for chain in chains]
        views = tuple((values.index(chain.value), chain.calls) for chain in chains)
        call = (part.op, arguments.signature(part.args), tuple(kinds), repeated, part.types[0], made_by, views)
        if call not in self._alike:
            # Along an axis of one element what reduces gives back its operand, without that axis.
            same = [index for index, kind in enumerate(kinds) if _elements(kind) == _elements(part.types[0])]
            for seed in range(_ROUNDS):
                if same:
                    drawn = dict(zip(operands, kinds, strict=True))
                    same = self._once(part, operator, drawn, constants, shared, same, operands, seed)
            same.sort(key=lambda index: len(views[index][1]))  # rather what is seen than a view of it
            self._alike[call] = same[0] if same else None
        return self._alike[call]

    def _shared(self, operands: Sequence[Operand], keepers: int) -> dict[Operand, _Seen]:
        """Those of the operands that are views of one value, or it and views of it."""
        seen = {operand: self._behind(operand, keepers) for operand in operands}
        times = Counter(each.value for each in seen.values())
        return {operand: each for operand, each in seen.items() if times[each.value] > 1}

    def _behind(self, operand: Operand, keepers: int) -> _Seen:
        views: list[Part] = []
        kind = ""
        while operand[0] == "p" and (part := self._parts.get(int(operand[1]))) is not None:
            read = arguments.operands(part.args)
            if len(part.types) != 1 or len(views) == _VIEWS:
                break
            position = self._find(part, keepers - 1) if keepers and not part.view else None
            if position is None and (not part.view or len(read) != 1):
                break
            views.append(part)
            operand = read[position or 0]
            kind = arguments.operand_types(part.args).get(operand) or self._type(operand)
        return _Seen(operand, kind, tuple(reversed(views)))

    def _type(self, operand: Operand) -> str:
        kind, name = operand
        types = self._parts[name].types if kind == "p" and isinstance(name, int) else ()
        return types[0] if len(types) == 1 else ""

    @staticmethod
    def _once(
        part: Part,
        operator: Any,
        kinds: Mapping[Operand, str],
        constants: Mapping[Operand, torch.Tensor],
        shared: Mapping[Operand, _Seen],
        same: list[int],
        operands: list[Operand],
        seed: int,
    ) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        examples = {operand: _example(kind, generator) for operand, kind in kinds.items()} | dict(constants)
        with torch.no_grad():
            examples |= _shown(shared, generator)
            try:
                args, kwargs = arguments.decode(part.args, examples)
                result = operator(*args, **kwargs)
            except (*_REFUSALS, ArithmeticError) as error:
                if "out of " not in str(error):  # it wants what was not drawn
                    return []
                # Along an axis of one element there is but one index.
                first = {o: torch.zeros_like(examples[o]) for o in _indices(operator, part.args)}
                same = [index for index in same if operands[index] not in first]
                try:
                    args, kwargs = arguments.decode(part.args, examples | first)
                    result = operator(*args, **kwargs)
                except (*_REFUSALS, ArithmeticError):
                    return []
        if not isinstance(result, torch.Tensor):
            return []
        return [index for index in same if _same_bits(result, examples[operands[index]])]


def _indices(operator: Any, args: str) -> list[Operand]:
    """Those of the operands of a call that say where elements are, by what the operator calls them."""
    own = {operand: operand for operand in arguments.operands(args)}
    positional, named = arguments.decode(args, own)
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, positional, strict=False)) | named
    places = (given.get(name) for name in ("index", "indices"))
    return [
        operand for place in places for operand in (place if isinstance(place, list) else [place]) if operand in own
    ]


def _shown(shared: Mapping[Operand, _Seen], generator: torch.Generator) -> dict[Operand, torch.Tensor]:
    """Examples of values that operands are views of, as these show them; none where views want what is not drawn."""
    values = {seen.value: seen.kind for seen in shared.values() if seen.views}
    examples = {value: _example(kind, generator) for value, kind in values.items()}
    shown: dict[Operand, torch.Tensor] = {}
    try:
        for operand, seen in shared.items():
            example = examples[seen.value]
            for view in seen.views:
                if not view.view:
                    if (shape := _shape(view.types[0])) is None:
                        return {}
                    example = example.view(shape[0]).reshape(shape[1])
                    continue
                if (operator := _operator(view.op)) is None:
                    return {}
                args, kwargs = arguments.decode(view.args, dict.fromkeys(arguments.operands(view.args), example))
                example = operator(*args, **kwargs)
            shown[operand] = example
    except (*_REFUSALS, ArithmeticError):
        return {}
    return shown


def _same_bits(result: torch.Tensor, operand: torch.Tensor) -> bool:
    return (
        result.dtype.itemsize == operand.dtype.itemsize
        and result.numel() == operand.numel()
        and torch.equal(result.reshape(-1), operand.view(result.dtype).reshape(-1))
    )


def fingerprint(op: str, args: str) -> str | None:
    """A digest of the constant that an operator without operands makes (aten.arange, aten.full), with its type.

    None if it has operands, or if its result is not always the same, large, or no tensor.
    """
    constant = _constant(op, args)
    if constant is None:
        return None
    return contents(constant)


def contents(tensor: torch.Tensor) -> str:
    """A digest of a tensor's type and bits; the tensor has elements, in memory."""
    held = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype}{list(tensor.shape)}{hashlib.sha256(held).hexdigest()}"


def _constant(op: str, args: str, known_by_text: Callable[[str], Any] | None = None) -> torch.Tensor | None:
    operator = _operator(op)
    if operator is None or _is_random(operator) or "empty" in op:
        return None
    if arguments.operands(args):
        return None
    try:
        values, named = arguments.decode(args, {}, known_by_text)
        shape = operator(*values, **named | {"device": "meta"}) if "device" in named else None
        if shape is not None and shape.numel() > _LARGE:
            return None
        constant = operator(*values, **named)
    except (*_REFUSALS, ArithmeticError, NotImplementedError):
        return None
    return constant if isinstance(constant, torch.Tensor) and constant.numel() <= _LARGE else None


def _of_type(kind: str) -> torch.Tensor:
    """A tensor of which only the type is read, as `full_like` reads one.

    Raises:
        ValueError: it is none, or its sizes are known at run time only.
    """
    if (shape := _shape(kind)) is None:
        raise ValueError(f"no tensor of known sizes: {kind}")
    return torch.empty(shape[1], dtype=shape[0])


def _is_random(operator: torch._ops.OpOverload | None) -> bool:
    return operator is not None and torch.Tag.nondeterministic_seeded in operator.tags


def _operator(name: str) -> torch._ops.OpOverload | None:
    """``aten.mul.Tensor`` as torch's operator."""
    if name.startswith(f"{NAMESPACE}."):
        declared()
    resolved: Any = torch.ops
    for word in name.split("."):
        resolved = getattr(resolved, word, None)
    return resolved if isinstance(resolved, torch._ops.OpOverload) else None


def _shape(kind: str) -> tuple[torch.dtype, list[int]] | None:
    """The element type and shape of a tensor; None if it is none, or its sizes are known at run time only."""
    match = _TYPE.fullmatch(kind)
    if match is None or match["dtype"] not in DTYPES:
        return None
    sizes = [size for size in match["shape"].split(", ") if size]
    return (DTYPES[match["dtype"]], list(map(int, sizes))) if all(map(str.isdigit, sizes)) else None


def _called(operator: Any, args: str, shapes: Mapping[Operand, Any], device: str) -> tuple[str, ...] | None:
    """The types of what an operator gives when it is called with tensors of some shapes on a device."""
    tensors = {operand: torch.empty(sizes, dtype=dtype, device=device) for operand, (dtype, sizes) in shapes.items()}
    positional, named = arguments.decode(args, tensors)
    return _types(operator(*positional, **named))


def _types(value: Any) -> tuple[str, ...] | None:
    """Types of tensors, as those of parts are written; None of anything else, complex numbers among it."""
    tensors = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(tensor, torch.Tensor) and tensor.dtype in NAMES for tensor in tensors):
        return None
    return tuple(f"{NAMES[tensor.dtype]}[{', '.join(map(str, tensor.shape))}]" for tensor in tensors)


def _elements(kind: str) -> tuple[str, ...]:
    """A type as compiled programs have it: integers are bits there, and operations say whether one is a sign; its sizes
    but for those that are 1."""
    match = _TYPE.fullmatch(f"i{kind[1:]}" if kind.startswith("u") else kind)
    return (kind,) if match is None else (match["dtype"], *(s for s in match["shape"].split(", ") if s != "1"))


def _example(kind: str, generator: torch.Generator) -> Any:
    match = _TYPE.fullmatch(kind)
    if match is None or match["dtype"] not in DTYPES:
        return 3  # a size or another number
    sizes = [int(size) if size.isdigit() else 3 for size in match["shape"].split(", ") if size]
    return _draw(DTYPES[match["dtype"]], sizes, generator)


def _draw(dtype: torch.dtype, sizes: list[int], generator: torch.Generator) -> torch.Tensor:
    """Small integers of both signs, and now and then what a clamp would cut."""
    if dtype is torch.bool:
        return torch.randint(0, 2, sizes, generator=generator, dtype=dtype)
    limits = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype)
    small = range(9) if limits.min == 0 else range(-8, 9)
    cut = [limit for limit in (limits.min, limits.max) for _ in range(len(small) // 6)]
    drawn = torch.tensor([*small, *cut], dtype=dtype)
    return drawn[torch.randint(0, len(drawn), sizes, generator=generator, dtype=torch.int32)]
