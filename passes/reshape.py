"""Tensors between the shape that a program gives them and the shape that has one dimension per axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, tensor

Sizes = Sequence[int | None]


def _product(sizes: Sizes) -> int | None:
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _shape(value: Any) -> list[int | None]:
    return [None if size < 0 else size for size in value.type.shape]


def _type(value: Any, sizes: Sizes) -> ir.Type:
    dynamic = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get([dynamic if size is None else size for size in sizes], value.type.element_type)


def collapse(value: Any, counts: Sequence[int]) -> Any:
    """Puts so many dimensions together, from the first on. No counts: to a single element."""
    if all(count == 1 for count in counts) and counts:
        return value
    shape = _shape(value)
    if not shape:
        return value
    rows, sizes, at = [], [], 0
    for count in counts:
        rows.append(list(range(at, at + count)))
        sizes.append(_product(shape[at : at + count]))
        at += count
    return tensor.CollapseShapeOp(_type(value, sizes), value, rows).result


def expand(value: Any, parts: Sequence[Sizes]) -> Any:
    """Takes each dimension apart into those sizes, of which one at most is dynamic; a single element into 1s."""
    shape = _shape(value)
    if all(len(part) == 1 for part in parts) and len(parts) == len(shape):
        return value
    flat = [size for part in parts for size in part]
    if not shape and not flat:
        return value
    rows, dynamic, at = [], [], 0
    for k, part in enumerate(parts):
        rows.append(list(range(at, at + len(part))))
        at += len(part)
        if None in part:
            size = tensor.DimOp(value, arith.ConstantOp(ir.IndexType.get(), k).result).result
            known = math.prod(one for one in part if one is not None)
            if known != 1:
                size = arith.DivUIOp(size, arith.ConstantOp(ir.IndexType.get(), known).result).result
            dynamic.append(size)
    marked = [ir.ShapedType.get_dynamic_size() if size is None else size for size in flat]
    return tensor.ExpandShapeOp(_type(value, flat), value, rows if shape else [], dynamic, marked).result


def to_axes(value: Any, groups: Sequence[Sizes], counts: Sequence[int]) -> Any:
    """The tensor with one dimension per axis.

    Args:
        groups: for each dimension of the value, the sizes of the pieces that it holds: none for one of size 1.
        counts: how many pieces each axis is, in order.
    """
    wide = [group for group in groups if group]
    value = collapse(value, _attached([bool(group) for group in groups]))
    return collapse(expand(value, wide), counts)


def from_axes(value: Any, groups: Sequence[Sizes], counts: Sequence[int], kind: ir.Type) -> Any:
    """The reverse of `to_axes`: a tensor of type ``kind``."""
    pieces = [size for group in groups for size in group]
    parts, at = [], 0
    for count in counts:
        parts.append(pieces[at : at + count])
        at += count
    value = collapse(expand(value, parts), [len(group) for group in groups if group])
    wide = [bool(group) for group in groups]
    shape = iter(_shape(value))
    rows: list[list[int | None]] = []
    held = iter(_attached(wide))
    at = 0
    if any(wide):
        for count in held:
            rows.append([next(shape) if wide[i] else 1 for i in range(at, at + count)])
            at += count
    else:
        rows = [[1] * len(wide)] if wide else []
    value = expand(value, rows)
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
