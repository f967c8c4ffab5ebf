"""Tensors between the shape that a program gives them and the shape that has one dimension per axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, tensor

Sizes = Sequence[int | str]
"""Sizes of pieces of dimensions; the name of a piece stands for a size that is known at run time only."""

Extent = Callable[[str], ir.Value]
"""Gives the size of a piece by name."""

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def _product(sizes: Sequence[int]) -> int:
    return _DYNAMIC if _DYNAMIC in sizes else math.prod(sizes)


def _type(value: Any, sizes: Sequence[int]) -> ir.Type:
    return ir.RankedTensorType.get(list(sizes), value.type.element_type)


def extent(value: Any, dimension: int, known: int = 1) -> ir.Value:
    """The size of a piece of a dimension whose other pieces have ``known`` positions together."""
    size = tensor.DimOp(value, arith.ConstantOp(ir.IndexType.get(), dimension).result).result
    if known == 1:
        return size
    return arith.DivUIOp(size, arith.ConstantOp(ir.IndexType.get(), known).result).result


def collapse(value: Any, counts: Sequence[int]) -> Any:
    """Puts so many dimensions together, from the first on. No counts: to a single element."""
    if all(count == 1 for count in counts) and counts:
        return value
    shape = list(value.type.shape)
    if not shape:
        return value
    rows, sizes, at = [], [], 0
    for count in counts:
        rows.append(list(range(at, at + count)))
        sizes.append(_product(shape[at : at + count]))
        at += count
    return tensor.CollapseShapeOp(_type(value, sizes), value, rows).result


def expand(value: Any, parts: Sequence[Sizes], size: Extent) -> Any:
    """Takes each dimension apart into those sizes; a single element into 1s."""
    shape = list(value.type.shape)
    if all(len(part) == 1 for part in parts) and len(parts) == len(shape):
        return value
    flat = [size for part in parts for size in part]
    if not shape and not flat:
        return value
    rows, at = [], 0
    for part in parts:
        rows.append(list(range(at, at + len(part))))
        at += len(part)
    dynamic = [size(one) for one in flat if isinstance(one, str)]
    marked = [_DYNAMIC if isinstance(one, str) else one for one in flat]
    return tensor.ExpandShapeOp(_type(value, marked), value, rows if shape else [], dynamic, marked).result


def to_axes(value: Any, groups: Sequence[Sizes], counts: Sequence[int], size: Extent) -> Any:
    """The tensor with one dimension per axis.

    Args:
        groups: for each dimension of the value, the sizes of the pieces that it holds: none for one of size 1.
        counts: how many pieces each axis is, in order.
    """
    wide = [group for group in groups if group]
    value = collapse(value, _attached([bool(group) for group in groups]))
    return collapse(expand(value, wide, size), counts)


def from_axes(value: Any, groups: Sequence[Sizes], counts: Sequence[int], kind: ir.Type, size: Extent) -> Any:
    """The reverse of `to_axes`: a tensor of type ``kind``."""
    pieces = [size for group in groups for size in group]
    parts, at = [], 0
    for count in counts:
        parts.append(pieces[at : at + count])
        at += count
    value = collapse(expand(value, parts, size), [len(group) for group in groups if group])
    wide = [bool(group) for group in groups]
    # Dimensions by their numbers, where their sizes are not known.
    shape = iter([str(n) if one == _DYNAMIC else one for n, one in enumerate(value.type.shape)])
    rows: list[list[int | str]] = []
    held = iter(_attached(wide))
    at = 0
    if any(wide):
        for count in held:
            rows.append([next(shape) if wide[i] else 1 for i in range(at, at + count)])
            at += count
    else:
        rows = [[1] * len(wide)] if wide else []
    whole = value
    value = expand(value, rows, lambda number: extent(whole, int(number)))
    return value if value.type == kind else tensor.CastOp(kind, value).result


def _attached(wide: Sequence[bool]) -> list[int]:
    """Lengths of runs with one wide dimension each: what is narrow goes with the one before, or with the first."""
    counts: list[int] = []
    leading = 0
    for is_wide in wide:
        if is_wide:
            counts.append(1 + leading)
            leading = 0
        elif counts:
            counts[-1] += 1
        else:
            leading += 1
    return counts
