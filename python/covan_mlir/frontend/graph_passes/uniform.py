"""Operators that give the same number everywhere as the constants they are.

Some do whatever they read. The compilers fold the bodies of such loops. A reduction that reads one then has nothing
left that says how long it is, and IREE lets it run once: ``(x * 0 + 1).sum()`` of integers would be 1, whatever the
length.

Others read nothing but such constants. torch-mlir folds them with its own arithmetic, which takes remainders of C for
those of Python, booleans for -1, and numbers of one kind for the bits of another: here torch computes them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from covan_mlir.frontend.actions import is_view
from covan_mlir.frontend.graph_passes.empty import fill
from covan_mlir.frontend.index_operands import call_of

aten = torch.ops.aten


def _zero(value: torch.Tensor, number: Any) -> Any:
    return 0 if number == 0 and not value.dtype.is_floating_point and not value.dtype.is_complex else None


def _bits(number: int, dtype: torch.dtype) -> int | bool:
    """0, or -1 for all bits, as a type writes them."""
    written = torch.tensor(number).to(dtype).item()
    return bool(written) if dtype is torch.bool else int(written)


def _all(value: torch.Tensor, number: Any) -> Any:
    ones = _bits(-1, value.dtype)
    return ones if type(number) is type(ones) and number == ones else None


def _one(value: torch.Tensor, number: Any) -> Any:
    return 0 if abs(number) == 1 and not value.dtype.is_floating_point else None


def _nan(result: bool) -> Callable[[torch.Tensor, Any], Any]:
    return lambda value, number: result if isinstance(number, float) and math.isnan(number) else None


# What an operator gives everywhere, of its result's type and of a number that it reads; None: that depends.
_RULES: dict[Any, Callable[[torch.Tensor, Any], Any]] = {
    aten.mul: _zero,
    aten.bitwise_and: _zero,
    aten.bitwise_or: _all,
    aten.remainder: _one,
    aten.ne: _nan(True),
    **dict.fromkeys((aten.lt, aten.le, aten.gt, aten.ge, aten.eq), _nan(False)),
}

_SECOND = frozenset({aten.remainder})
"""Of which the number is the second argument; of others it may be the first one, too."""

_OF_EQUALS: dict[Any, int | bool] = {
    **dict.fromkeys((aten.sub, aten.bitwise_xor), 0),
    **dict.fromkeys((aten.ne, aten.lt, aten.gt), False),
    **dict.fromkeys((aten.eq, aten.le, aten.ge), True),
}
"""What an operator gives of a whole number and that number: the compilers fold it, and what is behind it."""

_OF_COMPLEMENTS = {aten.bitwise_and: 0, aten.bitwise_or: -1, aten.bitwise_xor: -1}
"""What an operator gives of bits and of those that are not among them."""
_NOT = (aten.bitwise_not.default, aten.logical_not.default)


# Of what makes a constant, the number: a position of an argument, or the number itself.
_POSITIONS = {aten.full: 1, aten.full_like: 1, aten.new_full: 2, aten.scalar_tensor: 0}
_NUMBERS = dict.fromkeys((aten.zeros, aten.zeros_like, aten.new_zeros), 0)
_NUMBERS |= dict.fromkeys((aten.ones, aten.ones_like, aten.new_ones), 1)
_RANGES = frozenset({aten.arange, torch.ops.prims.iota})
"""What masks of positions begin with."""
_EVALUATED = 4096
"""Elements of a tensor of positions, up to which it is computed here."""
_JOINED = 1 << 22
"""Elements of constants that are joined, and of views of that, up to which these are computed here: pieces of them are
numbers again."""
_SPLITS = frozenset({aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, aten.chunk.default})
"""Operators that give pieces of a tensor."""
_ELEMENTWISE = frozenset({torch.ops.prims.convert_element_type.default, aten._to_copy.default, aten.clone.default})
"""Beside those that torch says are."""


def fold_uniform(graph: Graph, constants: Mapping[str, torch.Tensor]) -> None:
    """Make constants of operators on a tensor of known size and a number that leaves nothing of it, and of element-wise
    ones on constants that are one number everywhere; copies of choices that are one everywhere.

    Args:
        constants: values of placeholders that are constants of the program, by name.
    """
    held = {
        node: constants[node.name].reshape([1] * constants[node.name].dim())
        for node in graph.find_nodes(op="placeholder")
        if node.name in constants and constants[node.name].numel() == 1
    }
    small = dict(held)
    joined: set[Node] = set()
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.target is aten.where.self and (chosen := _everywhere(node.args[0], held, small)) is not None:
            _take(node, node.args[1] if chosen else node.args[2])
        if (
            node.op != "call_function"
            or not isinstance(value, torch.Tensor)
            or not all(isinstance(size, int) for size in value.shape)
        ):
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            if (piece := _piece(node, small)) is not None:
                small[node] = piece
                joined.add(node)
                _keep(node, piece, held)
            continue
        if (result := _whatever_is_read(node, value, held)) is not None:
            fill(node, result)
        elif (one := _computed(node, held)) is not None and one.dtype == value.dtype and not value.is_complex():
            fill(node, one.item())
        if (number := _number(node, held)) is not None:
            held[node] = torch.full([1] * value.dim(), number, dtype=value.dtype)
            small[node] = held[node].expand(value.shape)
            continue
        joins = node.target is aten.cat.default or (is_view(node) and not joined.isdisjoint(node.all_input_nodes))
        if (whole := _of_positions(node, small, _JOINED if joins else _EVALUATED)) is not None:
            small[node] = whole
            if joins:
                joined.add(node)
                _keep(node, whole, held)


def _keep(node: Node, whole: torch.Tensor, held: dict[Node, torch.Tensor]) -> None:
    """Remember what a node gives, if that is one number: a part of what is joined of several."""
    if (number := _only(whole)) is not None:
        held[node] = torch.full([1] * whole.dim(), number, dtype=whole.dtype)


def _piece(node: Node, small: Mapping[Node, torch.Tensor]) -> torch.Tensor | None:
    """One of several tensors that an operator takes a known one apart into."""
    if node.target is not operator.getitem:
        return None
    source, index = node.args
    if not isinstance(source, Node) or source.target not in _SPLITS or not _reads_only(source, small):
        return None
    target: Any = source.target
    args, kwargs = map_arg((source.args, source.kwargs), small.__getitem__)
    pieces: Any = target(*args, **kwargs)
    piece: torch.Tensor = pieces[index]
    return piece


def _everywhere(mask: Node, held: Mapping[Node, torch.Tensor], small: Mapping[Node, torch.Tensor]) -> bool | None:
    """What a mask is, if it is the same everywhere: a number, or computed of positions, as those of `tril` are."""
    if mask in held:
        return bool(held[mask].item())
    number = _only(small[mask]) if mask in small else None
    return None if number is None else bool(number)


def _only(whole: torch.Tensor) -> int | float | None:
    """What all elements of a tensor are, if they are one number."""
    if not whole.numel() or whole.is_complex():
        return None
    first = whole.flatten()[0]
    same = (whole == first) & (torch.signbit(whole) == torch.signbit(first))
    return first.item() if bool(same.all()) else None


def _of_positions(node: Node, small: Mapping[Node, torch.Tensor], most: int) -> torch.Tensor | None:
    """What a node gives of positions and numbers alone, if that has so many elements at most."""
    target: Any = node.target
    begins = target.overloadpacket in _RANGES and not node.all_input_nodes
    if node.meta["val"].numel() > most or not (begins or (node.all_input_nodes and _reads_only(node, small))):
        return None
    return _called(node, small)


def _take(node: Node, taken: Node) -> None:
    """Make a copy of a choice that is the same everywhere: torch-mlir drops it, as if nothing had been chosen."""
    value = node.meta["val"]
    if taken.meta["val"].dtype != value.dtype:
        with node.graph.inserting_before(node):
            taken = call_of(node, torch.ops.prims.convert_element_type.default, taken, value.dtype)
    if value.shape == taken.meta["val"].shape:
        node.target, node.args = aten.clone.default, (taken,)
    else:
        node.target, node.args = aten.expand.default, (taken, list(value.shape))


def _whatever_is_read(node: Node, value: torch.Tensor, held: Mapping[Node, torch.Tensor]) -> Any:
    assert isinstance(node.target, torch._ops.OpOverload)
    packet = node.target.overloadpacket
    if packet is aten.clamp and not value.dtype.is_floating_point:
        return _clamped(*node.args[1:])
    if len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if first is second and isinstance(first, Node) and not (_is_inexact(node) or _is_inexact(first)):
        return _OF_EQUALS.get(packet)
    if packet in _OF_COMPLEMENTS and (_are_complements(first, second) or _are_complements(second, first)):
        return _bits(_OF_COMPLEMENTS[packet], value.dtype)
    if (rule := _RULES.get(packet)) is None:
        return None
    for read in (second,) if packet in _SECOND else (second, first):
        number: Any = held[read].item() if isinstance(read, Node) and read in held else read
        if not isinstance(number, Node) and (result := rule(value, number)) is not None:
            return result
    return None


def _are_complements(value: Any, negated: Any) -> bool:
    """Whether a value is what another negates, or is computed as that is."""
    if not isinstance(value, Node) or not isinstance(negated, Node) or negated.target not in _NOT:
        return False
    same: Any = negated.args[0]
    if value.meta["val"].dtype != same.meta["val"].dtype or (
        negated.target is aten.logical_not.default and same.meta["val"].dtype is not torch.bool
    ):
        return False
    alike = value.target == same.target and value.args == same.args and value.kwargs == same.kwargs
    return value is same or (value.op == "call_function" and alike and not _is_random(value))


def _is_random(node: Node) -> bool:
    target: Any = node.target
    return torch.Tag.nondeterministic_seeded in target.tags


def _clamped(low: Any = None, high: Any = None) -> Any:
    """What whole numbers are between limits that leave one of them; the upper one is what limits that cross leave."""
    return high if isinstance(low, int) and isinstance(high, int) and low >= high else None


def _is_inexact(node: Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.dtype.is_floating_point or value.dtype.is_complex


def _number(node: Node, held: Mapping[Node, torch.Tensor]) -> int | float | None:
    """What a constant, or another shape of one, holds everywhere."""
    target: Any = node.target
    if target is aten.cat.default and _reads_only(node, held):
        return _only(torch.cat([held[part].flatten() for part in node.all_input_nodes]).to(node.meta["val"].dtype))
    if is_view(node) and len(node.all_input_nodes) == 1 and node.all_input_nodes[0] in held:
        whole = held[node.all_input_nodes[0]]
        return whole.item() if whole.dtype is node.meta["val"].dtype else None  # else its bits are read anew
    position = _POSITIONS.get(target.overloadpacket)
    number = node.args[position] if position is not None else _NUMBERS.get(target.overloadpacket)
    return number if isinstance(number, int | float) else None


def _computed(node: Node, held: Mapping[Node, torch.Tensor]) -> torch.Tensor | None:
    """What an element-wise operator gives of one element of each constant, of as many axes as that has: torch's
    promotion of types asks for them."""
    target: Any = node.target
    pointwise = torch.Tag.pointwise in target.tags or target in _ELEMENTWISE
    return _called(node, held) if pointwise and node.all_input_nodes and _reads_only(node, held) else None


def _reads_only(node: Node, known: Mapping[Node, torch.Tensor]) -> bool:
    return known.keys() >= set(node.all_input_nodes)


def _called(node: Node, known: Mapping[Node, torch.Tensor]) -> torch.Tensor | None:
    """What an operator gives of known tensors; None if it is random, or writes to them."""
    target: Any = node.target
    if _is_random(node) or target._schema.is_mutable:
        return None
    args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
    try:
        result = target(*args, **kwargs)
    except Exception:  # what eager refuses is the compiler's to refuse
        return None
    return result if isinstance(result, torch.Tensor) else None
