"""Histograms of points with any number of coordinates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten


def _points(x: Tensor) -> Tensor | None:
    """[points, coordinates], if it is known how many there are."""
    known = all(isinstance(size, int) for size in x.shape)
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) if known and x.dtype.is_floating_point else None


def _even_edges(column: Tensor, bins: int, limits: tuple[float, float] | None) -> Tensor:
    """Of bins of one length, [bins + 1]: between the limits, or between the least and the largest number."""
    limits = (0.0, 1.0) if limits is None and not column.numel() else limits
    if limits is None:
        low, high = column.amin(), column.amax()
    else:
        low, high = (torch.full((), limit, dtype=column.dtype) for limit in limits)
    alone = low == high
    low, high = torch.where(alone, low - 0.5, low), torch.where(alone, high + 0.5, high)
    width = (high - low) / bins
    step = torch.arange(bins + 1).to(column.dtype)
    return torch.where(step < (bins + 1) // 2, low + width * step, high - width * (bins - step))


def _counted(points: Tensor, edges: list[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """Of points [points, coordinates], by edges of each coordinate; the last bin has both of its edges."""
    place = torch.zeros(points.shape[0], dtype=torch.int64)
    inside = torch.ones(points.shape[0], dtype=torch.bool)
    for axis, edge in enumerate(edges):
        column, bins = points[:, axis], edge.shape[0] - 1
        below = (edge <= column.unsqueeze(1)).sum(1)
        place = place * bins + (below - 1).clamp(0, bins - 1)
        inside = inside & (column >= edge[0]) & (column <= edge[-1])
    sizes = [edge.shape[0] - 1 for edge in edges]
    counts = torch.ones_like(points[:, 0]) if weight is None else weight.reshape(-1).to(points.dtype)
    if not points.numel():
        return torch.full(sizes, math.nan if density else 0.0, dtype=points.dtype)
    hits = (place == torch.arange(math.prod(sizes)).unsqueeze(1)) & inside
    histogram = torch.where(hits, counts, 0.0).sum(1).reshape(sizes)
    if density:
        histogram = histogram / histogram.sum()
        for axis, edge in enumerate(edges):
            histogram = histogram / (edge[1:] - edge[:-1]).reshape([-1] + [1] * (len(sizes) - axis - 1))
    return histogram


def _limits(given: Any, axis: int) -> tuple[float, float] | None:
    return None if given is None else (given[2 * axis], given[2 * axis + 1])


@rule(aten._histogramdd_bin_edges.default)
def bin_edges(
    x: Tensor, bins: list[int], *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    points = _points(x)
    if points is None:
        return NotImplemented
    return [_even_edges(points[:, axis], count, _limits(range, axis)) for axis, count in enumerate(bins)]


@rule(aten._histogramdd_from_bin_cts.default)
def from_counts(
    x: Tensor, bins: list[int], *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    edges, points = bin_edges(x, bins, range=range), _points(x)
    return NotImplemented if points is None else _counted(points, edges, weight, density)


@rule(aten._histogramdd_from_bin_tensors.default)
def from_edges(x: Tensor, bins: list[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Any:
    points = _points(x)
    return NotImplemented if points is None else _counted(points, bins, weight, density)


@rule(aten.histogram.bin_ct)
def histogram(
    x: Tensor, bins: int = 100, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    if _points(x.reshape(-1, 1)) is None:
        return NotImplemented
    edges = _even_edges(x.reshape(-1), bins, _limits(range, 0))
    return _counted(x.reshape(-1, 1), [edges], weight, density), edges


@rule(aten.histogram.bins_tensor)
def histogram_of_bins(x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    if _points(x.reshape(-1, 1)) is None:
        return NotImplemented
    return _counted(x.reshape(-1, 1), [bins], weight, density), bins.clone()


@rule(aten.bincount.default)
def weighted_counts(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    if weights is None:
        return NotImplemented
    added = weights if weights.dtype == torch.float32 else weights.to(torch.float64)
    if isinstance(x.shape[0], int) and not x.shape[0]:
        return torch.zeros(minlength, dtype=torch.int64)  # as eager, whatever the weights are
    bins: Any = (x.amax().to(torch.int64) + 1).clamp(min=minlength).item()
    torch._check(bins >= 0)  # type: ignore[no-untyped-call]  # torch's
    return added.new_zeros(bins).index_add(0, x.to(torch.int64), added)
