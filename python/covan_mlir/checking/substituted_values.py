"""The parts of a graph as the terms that rules are about: what the checker of substitutions reads.

It reads what the ledger says that operators are called with, and nothing that the compiler does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import JOINS
from covan_mlir.subst.program import Store
from covan_mlir.subst.shaping import NoShapesError

_TYPE = re.compile(r"(f16|bf16|f32|f64)\[([\d, ]*)\]")
_EXACT = frozenset({"f32", "f64"})
_DRAWN = ("rand", "bernoulli", "dropout", "normal", "uniform", "multinomial", "exponential")


class Called(Protocol):
    """A part of either graph."""

    @property
    def id(self) -> int:
        """Of the part."""

    @property
    def name(self) -> str:
        """Of the part."""

    @property
    def op(self) -> str:
        """``aten.mm.default``."""

    @property
    def types(self) -> tuple[str, ...]:
        """Of its results."""

    @property
    def args(self) -> str:
        """What it is called with."""


class OutsideError(Exception):
    """A part is none that rules are about: it is a value that is looked at from outside."""


@dataclass
class Values:
    """Parts as nodes of a store.

    Attributes:
        nodes: of parts, arguments and weights.
        covered: by part, the nodes that are its work.
    """

    store: Store
    nodes: dict[Operand, int] = field(default_factory=dict)
    covered: dict[int, frozenset[int]] = field(default_factory=dict)


def values_of(store: Store, parts: Iterable[Called], results: Sequence[Operand]) -> Values:
    """Read a graph.

    Args:
        parts: each behind what it reads.
        results: what the graph returns.
    """
    values = Values(store)
    for part in parts:
        for operand, kind in arguments.operand_types(part.args).items():
            if operand not in values.nodes:
                _outer(values, operand, kind)
        operands = [values.nodes[operand] for operand in arguments.operands(part.args)]
        number = _node(values, part, operands)
        values.nodes["p", part.id] = number
        values.covered[part.id] = frozenset(_between(store, number, operands))
    for operand in results:
        if operand not in values.nodes:  # returned as it came, and read by nobody
            _outer(values, operand, "")
    return values


def _outer(values: Values, operand: Operand, kind: str) -> None:
    element, shape = _typed(kind)
    label = f"{operand[0]} {operand[1]}"
    values.nodes[operand] = values.store.outside(label, shape, element, constant=operand[0] == "w")


def _typed(kind: str) -> tuple[str, tuple[int, ...]]:
    match = _TYPE.fullmatch(kind)
    if match is None:
        return "", ()
    return match[1], tuple(int(size) for size in match[2].split(",") if size.strip())


def _between(store: Store, root: int, ends: Sequence[int]) -> set[int]:
    """The nodes on the way from some to one, that one among them."""
    inner, stack = {root}, [root] if root not in ends else []
    while stack:
        for arg in store[stack.pop()].args:
            if arg not in ends and arg not in inner:
                inner.add(arg)
                stack.append(arg)
    return inner


def _node(values: Values, part: Called, operands: Sequence[int]) -> int:
    element, shape = _typed(part.types[0]) if len(part.types) == 1 else ("", ())
    reader = _OPERATORS.get(part.op)
    if reader is not None and element in _EXACT:
        positional, named = json.loads(part.args)
        given = iter(operands)
        try:
            call = _Call(values.store, [_real(item, given) for item in positional], shape)
            call.named = {name: _real(item, given) for name, item in named}
            number = reader(call)
            if values.store[number].shape == shape and values.store[number].element == element:
                return number
        except (OutsideError, NoShapesError, LookupError, TypeError, ValueError):
            pass  # from outside, then
    drawn = any(word in part.op for word in _DRAWN) or part.op in JOINS
    own = f" {part.name}" if drawn else ""  # equal to nothing but itself
    label = f"{part.op}{_without_following(part.args)}{own}"
    constant = not drawn and bool(operands) and all(values.store[number].constant for number in operands)
    return values.store.outside(label, shape, element, operands, constant=constant)


def _without_following(args: str) -> str:
    """A call's text without values, those of the next iteration of a loop among them."""

    def blank(item: Any) -> Any:
        if isinstance(item, list):
            return [blank(inner) for inner in item]
        return {} if isinstance(item, dict) and "n" in item else item

    return arguments.signature(json.dumps(blank(json.loads(args))))


class _Constant:
    """An argument that is no value of the graph and no number: a type, a device."""


def _real(item: Any, given: Any) -> Any:
    if isinstance(item, list):
        return [_real(inner, given) for inner in item]
    if isinstance(item, dict):
        if not item.keys().isdisjoint(("p", "a", "w")):
            return _Value(next(given))
        return float(item["f"]) if "f" in item else _Constant()
    return item


@dataclass(frozen=True)
class _Value:
    number: int


class _Call:
    """An operator with what it is called with."""

    def __init__(self, store: Store, given: list[Any], shape: tuple[int, ...]) -> None:
        self.store, self.given, self.shape = store, given, shape
        self.named: Mapping[str, Any] = {}

    def tensor(self, place: int) -> int:
        """The node of an argument.

        Raises:
            OutsideError: it is none.
        """
        value = self.given[place]
        if not isinstance(value, _Value):
            raise OutsideError
        return value.number

    def plain(self, place: int, otherwise: Any = None) -> Any:
        """A number, or a list of such.

        Raises:
            OutsideError: it is none.
        """
        value = self.given[place] if place < len(self.given) else otherwise
        if isinstance(value, _Value | _Constant):
            raise OutsideError
        return value

    def only(self, *names: str) -> None:
        """Raises OutsideError where other arguments are given by name."""
        if set(self.named) - set(names):
            raise OutsideError

    def axis(self, place: int, otherwise: int = 0) -> int:
        """An axis, counted from the front of the result."""
        return int(self.plain(place, otherwise)) % max(1, len(self.shape))


def _spread(store: Store, number: int, shape: Sequence[int], places: Sequence[int] | None = None) -> int:
    """A tensor as PyTorch reads it where one of a shape is needed: its axes are the last ones, unless places say which;
    axes that it lacks, or that a broadcast gave one element, are broadcast, the first one first."""
    node = store[number]
    own = list(places if places is not None else range(len(shape) - len(node.shape), len(shape)))
    if node.shape == tuple(shape) and own == list(range(len(shape))):
        return number
    while store[number].op == "broadcast" and store[number].known:
        del own[store[number].attribute("axis")[0]]
        number = store[number].args[0]
    if [shape[place] for place in own] != list(store[number].shape):
        raise OutsideError
    for axis, size in enumerate(shape):
        if axis not in own:
            number = store.apply("broadcast", (number,), (("axis", (axis,)), ("size", (size,))))
    return number


_Reader = Callable[[_Call], int]


def _product(call: _Call) -> int:
    return call.store.apply("matmul", (call.tensor(0), call.tensor(1)))


def _both(op: str) -> _Reader:
    def read(call: _Call) -> int:
        call.only("alpha")
        if call.named.get("alpha", 1) != 1:
            raise OutsideError
        store = call.store
        if op in ("add", "sub") and not isinstance(call.given[1], _Value):
            if call.plain(1) != 0:
                raise OutsideError
            return call.tensor(0)
        if op == "mul" and not isinstance(call.given[1], _Value):
            return _scaled(call)
        left, right = call.tensor(0), call.tensor(1)
        scalars = [store[number].shape == () for number in (left, right)]
        if op == "mul" and call.shape and any(scalars):
            return store.apply("scale", (right, left) if scalars[0] else (left, right))
        return store.apply(op, (_spread(store, left, call.shape), _spread(store, right, call.shape)))

    return read


def _scaled(call: _Call) -> int:
    number = call.plain(1)
    if number == 1:
        return call.tensor(0)
    factor = call.store.outside(f"number {float(number)!r}", (), call.store[call.tensor(0)].element, constant=True)
    return call.store.apply("scale", (call.tensor(0), factor))


def _full(call: _Call) -> int:
    call.only("dtype", "layout", "device", "pin_memory")
    if call.plain(0) != []:
        raise OutsideError
    return call.store.outside(f"number {float(call.plain(1))!r}", (), "f32", constant=True)


def _one(op: str) -> _Reader:
    def read(call: _Call) -> int:
        call.only()
        return call.store.apply(op, (call.tensor(0),))

    return read


def _turned(call: _Call, axes: Sequence[int]) -> int:
    if list(axes) == sorted(axes):
        return call.tensor(0)
    return call.store.apply("transpose", (call.tensor(0),), (("axes", tuple(axes)),))


def _permuted(call: _Call) -> int:
    return _turned(call, [axis % len(call.shape) for axis in call.plain(1)])


def _exchanged(call: _Call) -> int:
    axes = list(range(len(call.shape)))
    first, second = call.axis(1), call.axis(2)
    axes[first], axes[second] = axes[second], axes[first]
    return _turned(call, axes)


def _reversed(call: _Call) -> int:
    return _turned(call, list(range(len(call.shape)))[::-1])


def _joined(call: _Call) -> int:
    pieces: list[int] = [piece.number for piece in call.given[0]]
    whole = pieces[0]
    for piece in pieces[1:]:
        whole = call.store.apply("concat", (whole, piece), (("axis", (call.axis(1),)),))
    return whole


def _sliced(call: _Call) -> int:
    axis, number = call.axis(1), call.tensor(0)
    size = call.store[number].shape[axis]
    if call.plain(4, 1) != 1:
        raise OutsideError
    start, end, _ = slice(call.plain(2), call.plain(3)).indices(size)
    for op, rest in (("head", end), ("tail", end - start)):
        if rest < call.store[number].shape[axis]:
            number = call.store.apply(op, (number,), (("axis", (axis,)), ("size", (rest,))))
    return number


def _unsqueezed(call: _Call) -> int:
    return call.store.apply("broadcast", (call.tensor(0),), (("axis", (call.axis(1),)), ("size", (1,))))


def _expanded(call: _Call) -> int:
    return _spread(call.store, call.tensor(0), call.shape)


def _reduced(op: str) -> _Reader:
    def read(call: _Call) -> int:
        call.only()
        (axis,) = call.plain(1)
        if call.plain(2, False):
            raise OutsideError
        number = call.tensor(0)
        return call.store.apply(op, (number,), (("axis", (axis % len(call.store[number].shape),)),))

    return read


def _convolved(call: _Call) -> int:
    stride, pad, dilation = (tuple(call.plain(place)) for place in (3, 4, 5))
    if call.plain(6) or len(call.shape) != 4 or {len(stride), len(pad), len(dilation)} != {2}:
        raise OutsideError
    attributes = (("stride", stride), ("pad", pad), ("dilation", dilation), ("groups", (int(call.plain(8)),)))
    result = call.store.apply("conv", (call.tensor(0), call.tensor(1)), attributes)
    if call.given[2] is None:
        return result
    return call.store.apply("add", (result, _spread(call.store, call.tensor(2), call.shape, (1,))))


def _padded(call: _Call) -> int:
    left, right, top, bottom = call.plain(1)
    if left != right or top != bottom or min(left, top) < 0 or call.plain(2, 0) != 0:
        raise OutsideError
    return call.store.apply("enlarge", (call.tensor(0),), (("border", (top, left)),))


def _pooled(op: str) -> _Reader:
    def read(call: _Call) -> int:
        window, stride, pad = (_pair(call.plain(place, otherwise)) for place, otherwise in ((1, None), (2, []), (3, 0)))
        if op == "avg_pool":
            plain = not call.plain(4, False) and call.plain(6) is None and (call.plain(5, True) or not any(pad))
        else:
            plain = set(_pair(call.plain(4, 1))) == {1} and not call.plain(5, False)
        if not plain:
            raise OutsideError
        attributes = (("window", window), ("stride", stride or window), ("pad", pad))
        return call.store.apply(op, (call.tensor(0),), attributes)

    return read


def _pair(value: Any) -> tuple[int, ...]:
    items = list(value) if isinstance(value, list) else [value]
    return tuple(items * 2 if len(items) == 1 else items)


_OPERATORS: dict[str, _Reader] = {
    **dict.fromkeys(("aten.mm.default", "aten.bmm.default", "aten.matmul.default"), _product),
    **{f"aten.{op}.Tensor": _both(op) for op in ("add", "sub", "mul", "div")},
    "aten.mul.Scalar": _scaled,
    **{f"aten.{op}.Scalar": _both(op) for op in ("add", "sub")},
    **{f"aten.{op}.default": _one(op) for op in ("neg", "relu", "exp", "tanh", "sigmoid", "silu", "sqrt", "rsqrt")},
    "aten.full.default": _full,
    "aten.permute.default": _permuted,
    "aten.transpose.int": _exchanged,
    "aten.t.default": _reversed,
    "aten.cat.default": _joined,
    "aten.slice.Tensor": _sliced,
    "aten.unsqueeze.default": _unsqueezed,
    "aten.expand.default": _expanded,
    "aten.sum.dim_IntList": _reduced("sum"),
    "aten.amax.default": _reduced("max"),
    "aten.convolution.default": _convolved,
    "aten.constant_pad_nd.default": _padded,
    "aten.avg_pool2d.default": _pooled("avg_pool"),
    "aten.max_pool2d.default": _pooled("max_pool"),
}
