"""Between which numbers the elements of integer tensors lie, whatever the arguments are."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from covan_mlir.frontend.constants import evaluated

aten = torch.ops.aten
prims = torch.ops.prims
Number = int | torch.SymInt


@dataclass(frozen=True)
class Interval:
    """Both ends belong to it."""

    low: Number
    high: Number

    def within(self, low: Number, high: Number) -> bool:
        """Whether it surely lies between two numbers, which belong to those."""
        return known(low <= self.low) and known(self.high <= high)


def known(condition: Any) -> bool:
    """Whether a condition on sizes holds for all sizes that they may have."""
    return statically_known_true(condition)


def intervals(graph: Graph, weights: Mapping[Node, torch.Tensor]) -> dict[Node, Interval]:
    """Of the nodes of a graph of which something is known.

    Args:
        weights: placeholders whose tensors are the same at every call.
    """
    constants = evaluated(graph, (node for node in graph.nodes if _is_integer(node)))
    ranges: dict[Node, Interval] = {}
    for node in graph.nodes:
        if not _is_integer(node):
            continue
        constant = weights.get(node, constants.get(node))
        if constant is not None:
            interval = _of_tensor(constant)
        else:
            interval = _held(_of_call(node, ranges), node.meta["val"].dtype)
        if interval is not None:
            ranges[node] = interval
    return ranges


def _is_integer(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _of_tensor(tensor: torch.Tensor) -> Interval | None:
    if not tensor.numel() or tensor.is_meta or tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return None
    least, greatest = torch.aminmax(tensor)
    return Interval(int(least), int(greatest))


def _of_type(dtype: torch.dtype) -> Interval | None:
    if dtype is torch.bool:
        return Interval(0, 1)
    if dtype in (torch.uint8, torch.int8, torch.int16):
        limits = torch.iinfo(dtype)
        return Interval(limits.min, limits.max)
    return None


def _held(interval: Interval | None, dtype: torch.dtype) -> Interval | None:
    """What is known of elements of a type: sums and products that it does not hold are cut."""
    if interval is None or dtype is torch.bool:
        return _of_type(dtype)
    limits = torch.iinfo(dtype)
    # Sizes are less than 2^63, also where nothing says so.
    ends = [end for end in (interval.low, interval.high) if isinstance(end, int) or limits.bits < 64]
    return interval if all(known(limits.min <= end) and known(end <= limits.max) for end in ends) else _of_type(dtype)


def _of_call(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    if node.target is operator.getitem:
        return _of_item(node, ranges)
    packet = getattr(node.target, "overloadpacket", None)
    rule = _RULES.get(packet)
    if node.op != "call_function" or rule is None:
        return None
    return rule(node, [_operand(arg, ranges) for arg in node.args])


def _operand(arg: Any, ranges: Mapping[Node, Interval]) -> Any:
    """Of an argument: a tensor, a number, or a list of such."""
    if isinstance(arg, list | tuple):
        return [_operand(item, ranges) for item in arg]
    if isinstance(arg, Node):
        if arg in ranges:
            return ranges[arg]
        arg = arg.meta.get("val")
    if isinstance(arg, bool | int | torch.SymInt):
        return Interval(arg, arg)
    return None


_Rule = Callable[[Node, Sequence[Any]], Interval | None]


def _known_interval(operand: Any) -> Interval | None:
    return operand if isinstance(operand, Interval) else None


def _first(node: Node, operands: Sequence[Any]) -> Interval | None:
    return _known_interval(operands[0])


def _converted(node: Node, operands: Sequence[Any]) -> Interval | None:
    """A conversion keeps what the type can hold."""
    dtype = node.meta["val"].dtype
    limits = torch.iinfo(dtype) if dtype is not torch.bool else None
    if operands[0] is None or limits is None:
        return None
    return _known_interval(operands[0]) if operands[0].within(limits.min, limits.max) else None


def _arange(node: Node, operands: Sequence[Any]) -> Interval | None:
    numbers: list[Any] = [arg.meta.get("val") if isinstance(arg, Node) else arg for arg in node.args]
    start: Any
    end: Any
    start, end, step = {1: (0, *numbers, 1), 2: (*numbers, 1), 3: tuple(numbers)}[len(numbers)]
    if not all(isinstance(number, int | torch.SymInt) for number in (start, end)) or type(step) is not int:
        return None
    return Interval(start, end - 1) if step > 0 else Interval(end + 1, start)


def _filled(position: int) -> _Rule:
    def rule(node: Node, operands: Sequence[Any]) -> Interval | None:
        return _known_interval(operands[position])

    return rule


def _union(*all_of: Interval | None) -> Interval | None:
    if not all_of or None in all_of:
        return None
    low, high = _least([each.low for each in all_of if each]), _greatest([each.high for each in all_of if each])
    return None if low is None or high is None else Interval(low, high)


def _least(numbers: Sequence[Number]) -> Number | None:
    return next((one for one in numbers if all(known(one <= other) for other in numbers)), None)


def _greatest(numbers: Sequence[Number]) -> Number | None:
    return next((one for one in numbers if all(known(one >= other) for other in numbers)), None)


def _where(node: Node, operands: Sequence[Any]) -> Interval | None:
    index = counted_from_end(node)
    if index is not None and operands[1] is not None and operands[2] is not None:
        # Elements below 0 are taken from one branch, and others from the other.
        size = operands[1].high - operands[2].high
        if known(operands[2].low >= -size) and known(operands[2].high < size):
            return Interval(0, size - 1)
    return _union(operands[1], operands[2])


def counted_from_end(node: Node) -> Node | None:
    """The index of ``where(index < 0, index + size, index)``."""
    if node.target is not aten.where.self:
        return None
    condition, shifted, index = node.args
    below = isinstance(condition, Node) and condition.target is aten.lt.Scalar and condition.args == (index, 0)
    added = isinstance(shifted, Node) and shifted.target is aten.add.Tensor and shifted.args[0] is index
    return index if below and added and isinstance(index, Node) else None


def _add(sign: int) -> _Rule:
    def rule(node: Node, operands: Sequence[Any]) -> Interval | None:
        one, other = operands[:2]
        scale = node.kwargs.get("alpha", 1)
        if one is None or other is None or type(scale) is not int:
            return None
        return _sum(one, _times(other, sign * scale))

    return rule


def _sum(one: Interval, other: Interval) -> Interval:
    return Interval(one.low + other.low, one.high + other.high)


def _times(one: Interval, factor: int) -> Interval:
    ends = (one.low * factor, one.high * factor)
    return Interval(*ends) if factor >= 0 else Interval(ends[1], ends[0])


def _product(node: Node, operands: Sequence[Any]) -> Interval | None:
    one, other = operands[:2]
    if one is None or other is None:
        return None
    ends = [x * y for x in (one.low, one.high) for y in (other.low, other.high)]
    low, high = _least(ends), _greatest(ends)
    return None if low is None or high is None else Interval(low, high)


def _negated(node: Node, operands: Sequence[Any]) -> Interval | None:
    return None if operands[0] is None else _times(operands[0], -1)


def _clamped(node: Node, operands: Sequence[Any]) -> Interval | None:
    if node.target is not aten.clamp.default:
        return None  # bounds that are tensors
    named = {name: _operand(value, {}) for name, value in node.kwargs.items()}
    low = named.get("min", operands[1] if len(operands) > 1 else None)
    high = named.get("max", operands[2] if len(operands) > 2 else None)
    return _between(operands[0], low, high)


def _between(one: Interval | None, low: Interval | None, high: Interval | None) -> Interval | None:
    """Of elements that are raised to ``low`` and then lowered to ``high``, where those are given."""
    least, greatest = (None, None) if one is None else (one.low, one.high)
    if low is not None:
        least = low.low if least is None else _or(_greatest([least, low.low]), low.low)
        greatest = None if greatest is None else _greatest([greatest, low.high])
    if high is not None:
        least = None if least is None else _least([least, high.low])
        greatest = high.high if greatest is None else _or(_least([greatest, high.high]), high.high)
    return None if least is None or greatest is None else Interval(least, greatest)


def _or(number: Number | None, other: Number) -> Number:
    return other if number is None else number


def _greater(node: Node, operands: Sequence[Any]) -> Interval | None:
    return _between(operands[0], operands[1], None)


def _smaller(node: Node, operands: Sequence[Any]) -> Interval | None:
    return _between(operands[0], None, operands[1])


def _remainder(node: Node, operands: Sequence[Any]) -> Interval | None:
    divisor = operands[1]
    if divisor is None or not known(divisor.low >= 1):
        return None
    return Interval(0, divisor.high - 1)


def _quotient(node: Node, operands: Sequence[Any]) -> Interval | None:
    one, divisor = operands[:2]
    if one is None or divisor is None or not known(divisor.low >= 1) or not known(one.low >= 0):
        return None
    return Interval(0, one.high)


def _bits(node: Node, operands: Sequence[Any]) -> Interval | None:
    positive = [each for each in operands[:2] if each is not None and known(each.low >= 0)]
    return Interval(0, positive[0].high) if positive else None


def _position(node: Node, operands: Sequence[Any]) -> Interval | None:
    """Of the place of an extreme element."""
    return _places(node, node.args[1] if len(node.args) > 1 else None)


def _places(node: Node, axis: Any) -> Interval | None:
    tensor: Any = node.args[0]
    shape = tensor.meta["val"].shape
    if axis is None:
        return Interval(0, tensor.meta["val"].numel() - 1)
    return Interval(0, shape[axis] - 1 if shape else 0) if type(axis) is int else None


_DIMENSION = {
    aten.max.dim: 1,
    aten.min.dim: 1,
    aten.topk.default: 2,
    aten.sort.default: 1,
    aten.sort.stable: None,
    aten.kthvalue.default: 2,
    aten.median.dim: 1,
    aten.mode.default: 1,
}
"""Operations that give values and their places, and where the axis stands; the last axis without one."""


def _of_item(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    call, number = node.args
    if not isinstance(call, Node):
        return None
    if call.target in _DIMENSION and number == 1:
        position = _DIMENSION[call.target]
        given = call.args[position] if position is not None and len(call.args) > position else None
        return _places(call, call.kwargs.get("dim", -1 if given is None else given))
    if getattr(call.target, "overloadpacket", None) in _PIECES and isinstance(call.args[0], Node):
        return ranges.get(call.args[0])
    return None


def _joined(node: Node, operands: Sequence[Any]) -> Interval | None:
    """Of the elements of several tensors."""
    return _union(*operands[0])


def _filled_in(node: Node, operands: Sequence[Any]) -> Interval | None:
    """Of elements some of which are replaced by a number."""
    return _union(operands[0], operands[2] if len(operands) > 2 else Interval(0, 0))


def _summed(node: Node, operands: Sequence[Any]) -> Interval | None:
    tensor: Any = node.args[0]
    shape = tensor.meta["val"].shape
    axes: Any = node.args[1] if len(node.args) > 1 else None
    return _added(operands[0], math.prod(shape[axis] for axis in (axes or range(len(shape)))))


def _summed_up(node: Node, operands: Sequence[Any]) -> Interval | None:
    """Of sums of the first elements: of one to all."""
    tensor: Any = node.args[0]
    shape = tensor.meta["val"].shape
    whole = _added(operands[0], shape[node.args[1]] if shape else 1)
    return _union(operands[0], whole)


def _added(one: Interval | None, count: Number) -> Interval | None:
    return None if one is None else Interval(one.low * count, one.high * count)


_PIECES = {aten.split, aten.split_with_sizes, aten.unbind, aten.chunk}
_SAME = (
    *(aten.view, aten.reshape, aten._unsafe_view, aten.expand, aten.permute, aten.transpose, aten.t, aten.unsqueeze),
    *(aten.squeeze, aten.slice, aten.select, aten.clone, aten.alias, aten.detach, aten.flip, aten.roll, aten.repeat),
    *(aten.gather, aten.index_select, aten.index, aten.contiguous, aten.lift_fresh_copy, aten.amax, aten.amin),
)
_RULES: dict[Any, _Rule] = {
    **dict.fromkeys(_SAME, _first),
    aten._to_copy: _converted,
    prims.convert_element_type: _converted,
    aten.arange: _arange,
    aten.full: _filled(1),
    aten.full_like: _filled(1),
    aten.scalar_tensor: _filled(0),
    aten.where: _where,
    aten.add: _add(1),
    aten.sub: _add(-1),
    aten.mul: _product,
    aten.neg: _negated,
    aten.clamp: _clamped,
    aten.clamp_min: _greater,
    aten.clamp_max: _smaller,
    aten.remainder: _remainder,
    aten.floor_divide: _quotient,
    aten.bitwise_and: _bits,
    aten.argmax: _position,
    aten.argmin: _position,
    aten.argsort: _position,
    aten.cat: _joined,
    aten.stack: _joined,
    aten.masked_fill: _filled_in,
    aten.constant_pad_nd: _filled_in,
    aten.maximum: _greater,
    aten.minimum: _smaller,
    aten.sum: _summed,
    aten.cumsum: _summed_up,
}
