"""Work on a value and on another shape of it, written as one work and another shape of its result.

``exp(x.mT)`` is ``exp(x).mT``, and compilers below move transpositions and reshapes behind what works element by
element, where both turn out to be one operation. Here both become operations of the same values, so that value
numbering knows as well. What is computed of one shape alone stays as it was written.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from covan_mlir.frontend.index_operands import call_of

_aten = torch.ops.aten
_SHAPES = frozenset(
    {
        _aten.permute.default,
        _aten.transpose.int,
        _aten.t.default,
        _aten.view.default,
        _aten.unsqueeze.default,
        _aten.squeeze.default,
        _aten.squeeze.dim,
        _aten.squeeze.dims,
    }
)
"""Operators that give all elements of their first operand, in another shape."""
_WITHOUT_AXES = frozenset({_aten.t.default, _aten.squeeze.default})
"""Those that are of all axes, and say of none which."""
_ELEMENT_WISE = frozenset({torch.ops.prims.convert_element_type.default, _aten.view_as_real.default})
"""Those that torch does not tag. Of a complex number, `view_as_real` gives an axis of two more, the last."""
_FILLED: Mapping[Any, int | None] = {
    _aten.full.default: None,
    _aten.full_like.default: None,
    _aten.zeros.default: 0,
    _aten.zeros_like.default: 0,
    _aten.ones.default: 1,
    _aten.ones_like.default: 1,
}
"""Operators that give one number everywhere, and which; None: their second argument."""


@dataclass(frozen=True)
class _Filled:
    """An operand of one number everywhere, which is the same in any shape."""

    number: Any
    dtype: torch.dtype
    call: Node = field(repr=False, compare=False)

    def like(self, value: Node, of: Node) -> Node:
        """The same call with the sizes of a value, where nodes are being inserted."""
        target: Any = self.call.target
        sizes = value if "_like" in target._schema.name else list(value.meta["val"].shape)
        return call_of(of, target, sizes, *self.call.args[1:], **self.call.kwargs)


class _Shaped(NamedTuple):
    """A call as one of what lies behind the shapes of its operands.

    Attributes:
        work: the call, of the values behind.
        args: its arguments, of the values behind.
        value: one of those.
        shapes: the calls between it and an operand, the innermost first; all operands have the same.
    """

    work: Hashable
    args: tuple[Any, ...]
    value: Node
    shapes: tuple[Node, ...]


class _Numbers:
    """Numbers for the nodes of a graph: the same for shapes and element-wise work of the same values."""

    def __init__(self) -> None:
        self._of: dict[Node, int] = {}
        self._known: dict[Hashable, int] = {}

    def of(self, node: Node) -> int:
        """The number of a node whose operands have theirs."""
        if node not in self._of:
            filled = _filled(node)
            key: Hashable = (filled, str(node.meta["val"].shape)) if filled is not None else node
            key = self.call(node, node.args) if filled is None and _is_pure(node) else key
            self._of[node] = self._known.setdefault(key, len(self._known))
        return self._of[node]

    def call(self, node: Node, args: tuple[Any, ...]) -> Hashable:
        """What tells a node's call, of other arguments, from others."""
        numbered = map_arg((args, node.kwargs), lambda operand: ("node", self.of(operand)))
        return node.target, repr(numbered)  # 1 and 1.0 are two

    def shaped(self, node: Node) -> _Shaped | None:
        """An element-wise call behind the shapes of its operands; None where these differ."""
        if not _is_element_wise(node):
            return None
        filled = {operand: one for operand in node.all_input_nodes if (one := _filled(operand)) is not None}
        large = [operand for operand in node.all_input_nodes if _dimensions(operand) and operand not in filled]
        behind = {operand: _behind(operand) for operand in large}
        steps = {tuple(self.call(shape, shape.args[1:]) for shape in shapes) for _, shapes in behind.values()}
        sizes = {tuple(map(str, value.meta["val"].shape)) for value, _ in behind.values()}
        if len(steps) != 1 or len(sizes) != 1:
            return None
        value, shapes = behind[large[0]]
        if node.target is _aten.view_as_real.default and any(shape.target in _WITHOUT_AXES for shape in shapes):
            return None
        instead: dict[Node, Any] = {**filled, **{operand: inner for operand, (inner, _) in behind.items()}}
        args: Any = map_arg(node.args, lambda operand: instead.get(operand, operand))
        return _Shaped(self.call(node, args), args, value, shapes)


def shapes_behind(graph: Graph) -> None:
    """Have element-wise work that is done in several shapes of the same values done on these, once for each call."""
    while _move_all(graph):
        pass  # what reads the results is now of the same values, perhaps


def _move_all(graph: Graph) -> bool:
    """Move what can be; whether there was any."""
    numbers, times = _Numbers(), dict[Hashable, set[int]]()
    for node in graph.nodes:
        number = numbers.of(node)
        if (shaped := numbers.shaped(node)) is not None:
            times.setdefault(shaped.work, set()).add(number)
    moved = False
    for node in list(graph.nodes):
        shaped = numbers.shaped(node)
        if shaped is not None and shaped.shapes and len(times.get(shaped.work, ())) > 1:
            _move(node, shaped)
            moved = True
    return moved


def _move(node: Node, shaped: _Shaped) -> None:
    """Make a call the last of the shapes, behind one of what lies behind them."""
    assert isinstance(node.target, torch._ops.OpOverload)
    *inner, last = shaped.shapes
    pairs = node.target is _aten.view_as_real.default

    def further(shape: Node) -> tuple[Any, ...]:
        return _with_pairs(shape) if pairs else shape.args[1:]

    with node.graph.inserting_before(node):
        args = [arg.like(shaped.value, node) if isinstance(arg, _Filled) else arg for arg in shaped.args]
        value = call_of(node, node.target, *args, **node.kwargs)
        for shape in inner:
            kind, size = node.meta["val"].dtype, shape.meta["val"].shape
            example = node.meta["val"].new_empty((*size, 2) if pairs else size, dtype=kind)
            value = call_of(node, shape.target, value, *further(shape), value=example)
    node.target, node.args, node.kwargs = last.target, (value, *further(last)), {}


def _with_pairs(shape: Node) -> tuple[Any, ...]:
    """Further arguments of another shape, with an axis of two behind all others."""
    given = shape.args[0].meta["val"].dim() if isinstance(shape.args[0], Node) else 0
    arguments: Any = shape.args[1:]
    first, *others = arguments
    if shape.target is _aten.view.default:
        return ([*first, 2],)
    if shape.target is _aten.permute.default:
        return ([*(dim % given for dim in first), given],)
    if shape.target is _aten.squeeze.dims:
        return ([dim % given for dim in first],)
    axes = given + 1 if shape.target is _aten.unsqueeze.default else given
    return tuple(dim % axes for dim in (first, *others))


def _behind(operand: Node) -> tuple[Node, tuple[Node, ...]]:
    """The value behind the shapes of an operand, and these, the innermost first."""
    shapes: list[Node] = []
    while operand.target in _SHAPES and isinstance(operand.args[0], Node):
        shapes.append(operand)
        operand = operand.args[0]
    return operand, tuple(reversed(shapes))


def _is_pure(node: Node) -> bool:
    """Whether a call gives a tensor that is a function of its arguments."""
    if not isinstance(node.target, torch._ops.OpOverload) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    written = node.target._schema.is_mutable or "empty" in node.target._schema.name
    return not written and torch.Tag.nondeterministic_seeded not in node.target.tags


def _is_element_wise(node: Node) -> bool:
    known = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags
    return (known or node.target in _ELEMENT_WISE) and _is_pure(node)


def _filled(operand: Node) -> _Filled | None:
    if operand.target not in _FILLED:
        return None
    number: Any = _FILLED[operand.target]
    number = operand.args[1] if number is None else number
    if isinstance(number, Node) or not all(isinstance(size, int) for size in operand.meta["val"].shape):
        return None
    return _Filled(number, operand.meta["val"].dtype, operand)


def _dimensions(operand: Node) -> int:
    value = operand.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else 0
