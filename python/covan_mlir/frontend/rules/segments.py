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
    if lengths is not None:
        ends = lengths.to(torch.int64).cumsum(-1)
        starts = ends - lengths
    elif offsets is not None:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    else:
        return NotImplemented
    place = torch.arange(data.shape[axis])
    inside = (place >= starts.unsqueeze(-1)) & (place < ends.unsqueeze(-1))
    inside = inside.reshape([*inside.shape, *[1] * (data.dim() - axis - 1)])
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
