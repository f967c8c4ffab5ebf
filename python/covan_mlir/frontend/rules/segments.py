"""Reductions of segments of an axis: each element against each segment."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_EMPTY = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}
"""What a segment without elements gives; a mean has none."""


@rule(aten.segment_reduce.default)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Of segments by lengths, [before, segments], or by where they begin and end, [before, segments + 1]."""
    if indices is not None or not data.dtype.is_floating_point:
        return NotImplemented
    axis = axis % data.dim()
    spans = _spans(lengths, offsets)
    if spans is None:
        return NotImplemented
    starts, ends = spans
    inside = _inside(data, axis, starts, ends)
    first = _EMPTY[reduce] if initial is None else initial
    values = torch.where(inside, data.unsqueeze(axis), _EMPTY[reduce])
    if reduce == "max":
        return values.amax(axis + 1).clamp(min=first)
    if reduce == "min":
        return values.amin(axis + 1).clamp(max=first)
    if reduce == "prod":
        return values.prod(axis + 1) * first
    total = values.sum(axis + 1) + first
    if reduce == "sum":
        return total
    count = (ends - starts).reshape([*starts.shape, *[1] * (data.dim() - axis - 1)])
    nothing = torch.full_like(total, math.nan if initial is None else first)
    return torch.where(count > 0, total / count.clamp(min=1), nothing)


def _spans(lengths: Tensor | None, offsets: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Where segments begin, and where they end."""
    if lengths is not None:
        ends = lengths.to(torch.int64).cumsum(-1)
        return ends - lengths, ends
    return None if offsets is None else (offsets[..., :-1], offsets[..., 1:])


def _inside(data: Tensor, axis: int, starts: Tensor, ends: Tensor) -> Tensor:
    """Which elements are in which segment, ``[before, segments, elements, *1s]``."""
    place = torch.arange(data.shape[axis])
    inside = (place >= starts.unsqueeze(-1)) & (place < ends.unsqueeze(-1))
    return inside.reshape([*inside.shape, *[1] * (data.dim() - axis - 1)])


@rule(aten._segment_reduce_backward.default)
def segment_gradient(
    gradient: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Any:
    """Of an element: that of its segment. Those that are as large as the largest share it; of a product, an element
    gets the product of the others."""
    axis = axis % data.dim()
    spans = _spans(lengths, offsets)
    if spans is None:
        return NotImplemented
    inside = _inside(data, axis, *spans)
    own, elements, given = output.unsqueeze(axis + 1), data.unsqueeze(axis), gradient.unsqueeze(axis + 1)
    if reduce in ("max", "min"):
        taken = inside & ((elements == own) | elements.isnan())
        shares = given / taken.sum(axis + 1, keepdim=True).clamp(min=1)
        return torch.where(taken, shares, 0.0).sum(axis)
    if reduce == "mean":
        starts, ends = spans
        count = (ends - starts).clamp(min=1).reshape([*starts.shape, *[1] * (data.dim() - axis)])
        return torch.where(inside, given / count, 0.0).sum(axis)
    if reduce == "sum":
        return torch.where(inside, given, 0.0).sum(axis)
    zeros = (inside & (elements == 0)).sum(axis + 1, keepdim=True)
    product = torch.where(inside & (elements != 0), elements, 1.0).prod(axis + 1).unsqueeze(axis + 1)
    product = product * (1.0 if initial is None else initial)
    others = torch.where(elements == 0, torch.where(zeros == 1, product, 0.0), own / elements)
    return torch.where(inside, given * others, 0.0).sum(axis)
