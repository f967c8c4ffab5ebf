"""Sizes and positions in IR: numbers where they are known, values of type ``index`` where not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from torch_mlir import ir
from torch_mlir.dialects import arith, tensor

IndexValue: TypeAlias = "int | ir.Value"
_DYNAMIC = ir.ShapedType.get_dynamic_size()


def value_of(number: IndexValue) -> ir.Value:
    """As a value."""
    return arith.ConstantOp(ir.IndexType.get(), number).result if isinstance(number, int) else number


def plus(one: IndexValue, other: IndexValue) -> IndexValue:
    """The sum."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if other == 0 or one == 0:
        return one if other == 0 else other
    return arith.AddIOp(value_of(one), value_of(other)).result


def times(one: IndexValue, factor: int) -> IndexValue:
    """The product."""
    if isinstance(one, int):
        return one * factor
    return one if factor == 1 else arith.MulIOp(one, value_of(factor)).result


def at_least_zero(one: IndexValue) -> IndexValue:
    """The number, or 0 if it is negative."""
    return max(0, one) if isinstance(one, int) else arith.MaxSIOp(one, value_of(0)).result


def dimension(source: Any, k: int) -> IndexValue:
    """The size of a tensor's dimension."""
    size: int = source.type.shape[k]
    return tensor.DimOp(source, value_of(k)).result if size < 0 else size


def pad(source: Any, low: Sequence[IndexValue], high: Sequence[IndexValue], filling: ir.Attribute) -> Any:
    """The tensor with elements of one value before and after it."""
    element = source.type.element_type
    filled = arith.ConstantOp(element, filling).result
    shape = [
        size + a + b if size >= 0 and isinstance(a, int) and isinstance(b, int) else _DYNAMIC
        for size, a, b in zip(source.type.shape, low, high, strict=True)
    ]
    kind = ir.RankedTensorType.get(shape, element)
    op = tensor.PadOp(kind, source, _dynamic(low), _dynamic(high), _static(low), _static(high))
    index = ir.IndexType.get()
    block = op.regions[0].blocks.append(*[index] * len(shape), arg_locs=[ir.Location.current] * len(shape))
    with ir.InsertionPoint(block):
        ir.Operation.create("tensor.yield", [], [filled])
    return op.result


def slice_of(source: Any, starts: Sequence[IndexValue], sizes: Sequence[IndexValue]) -> Any:
    """A part of a tensor, without gaps."""
    kind = ir.RankedTensorType.get(_static(sizes), source.type.element_type)
    strides = [1] * len(sizes)
    return tensor.ExtractSliceOp(
        kind, source, _dynamic(starts), _dynamic(sizes), [], _static(starts), _static(sizes), strides
    ).result


def _dynamic(numbers: Sequence[IndexValue]) -> list[ir.Value]:
    return [number for number in numbers if not isinstance(number, int)]


def _static(numbers: Sequence[IndexValue]) -> list[int]:
    return [number if isinstance(number, int) else _DYNAMIC for number in numbers]
