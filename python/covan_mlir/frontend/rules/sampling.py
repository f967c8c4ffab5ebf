"""Pictures read between their points: resizing with a filter against aliases, and samples of volumes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor) -> Tensor:
    """With a = -0.5."""
    x = x.abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, -0.5 * (((x - 5) * x + 8) * x - 4)
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _weights(
    size: int, places: int, corners: bool, factor: float | None, curve: Callable[[Tensor], Tensor], reach: int
) -> Tensor:
    """What each place of the result takes of each of the input, [places, size] in float64.

    The filter is as wide as the places of the input that one of the result stands for."""
    scale = 1 / factor if factor else size / places
    if corners:
        scale = (size - 1) / (places - 1) if places > 1 else 0.0
    breadth = max(scale, 1.0)
    middle = ((torch.arange(places).to(torch.float64) + 0.5) * scale).unsqueeze(1)
    taken = torch.arange(size).to(torch.float64)
    inside = (taken >= torch.trunc(middle - reach * breadth + 0.5)) & (
        taken < torch.trunc(middle + reach * breadth + 0.5)
    )
    values = torch.where(inside, curve((taken - middle + 0.5) / breadth), 0.0)
    total = values.sum(1, keepdim=True)
    return values / torch.where(total == 0, 1.0, total)


def _resized(
    x: Tensor, output_size: list[int], corners: bool, factors: Any, curve: Callable[[Tensor], Tensor], reach: int
) -> Any:
    sizes = list(x.shape[-2:])
    return _by_matrices(x, sizes, output_size, corners, factors, curve, reach, backwards=False)


def _by_matrices(
    x: Tensor,
    sizes: list[int],
    output_size: list[int],
    corners: bool,
    factors: Any,
    curve: Callable[[Tensor], Tensor],
    reach: int,
    *,
    backwards: bool,
) -> Any:
    """A picture of ``sizes`` resized, or what differentiates that: the matrices of both axes, or these transposed."""
    if not all(isinstance(size, int) for size in (*sizes, *output_size)) or not x.dtype.is_floating_point:
        return NotImplemented
    y = wide(x)
    down, across = (
        # Eager leaves an axis that keeps its size alone, whatever the factor.
        None if size == places else _weights(size, places, corners, factor, curve, reach).to(y.dtype)
        for size, places, factor in zip(sizes, output_size, factors, strict=True)
    )
    y = y if across is None else torch.matmul(y, across if backwards else across.mT)
    y = y if down is None else torch.matmul(down.mT if backwards else down, y)
    return y.clone() if y is x else y.to(x.dtype)


@rule(aten._upsample_bilinear2d_aa.default)
def bilinear(
    x: Tensor, output_size: list[int], align_corners: bool, scales_h: float | None = None, scales_w: float | None = None
) -> Any:
    return _resized(x, output_size, align_corners, (scales_h, scales_w), _triangle, 1)


@rule(aten._upsample_bicubic2d_aa.default)
def bicubic(
    x: Tensor, output_size: list[int], align_corners: bool, scales_h: float | None = None, scales_w: float | None = None
) -> Any:
    return _resized(x, output_size, align_corners, (scales_h, scales_w), _cubic, 2)


@rule(aten._upsample_bilinear2d_aa_backward.default)
def bilinear_gradient(
    gradient: Tensor,
    output_size: list[int],
    input_size: list[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    sizes, factors = input_size[-2:], (scales_h, scales_w)
    return _by_matrices(gradient, sizes, output_size, align_corners, factors, _triangle, 1, backwards=True)


@rule(aten._upsample_bicubic2d_aa_backward.default)
def bicubic_gradient(
    gradient: Tensor,
    output_size: list[int],
    input_size: list[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    sizes, factors = input_size[-2:], (scales_h, scales_w)
    return _by_matrices(gradient, sizes, output_size, align_corners, factors, _cubic, 2, backwards=True)


def _mirrored(at: Tensor, low: float, high: float) -> Tensor:
    """Places beyond the ends, at those that a mirror there shows."""
    span = high - low
    if span == 0:
        return torch.zeros_like(at)
    way = torch.remainder((at - low).abs(), 2 * span)
    return torch.where(way > span, 2 * span - way, way) + low


def _place(at: Tensor, size: int, padding: int, corners: bool) -> Tensor:
    """From [-1, 1] to points 0 to size - 1; those outside as the padding says: 0: zeros, 1: border, 2: reflection."""
    point = (at + 1) / 2 * (size - 1) if corners else ((at + 1) * size - 1) / 2
    if padding == 2:
        point = _mirrored(point, 0, size - 1) if corners else _mirrored(point, -0.5, size - 0.5)
    return point if padding == 0 else point.clamp(0, size - 1)


@rule(aten.grid_sampler_3d.default)
def grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    """Of [n, c, depth, height, width] at [n, d, h, w, (x, y, z)]: between eight points (0), or the nearest (1)."""
    sizes = [int(size) for size in x.shape[2:]] if all(isinstance(size, int) for size in x.shape[2:]) else []
    if not sizes or mode not in (0, 1) or not x.dtype.is_floating_point:
        return NotImplemented
    points = [_place(wide(grid[..., 2 - n]), size, padding, align_corners) for n, size in enumerate(sizes)]
    flat = x.flatten(2)
    steps = [math.prod(sizes[n + 1 :]) for n in range(3)]

    def read(corner: list[Tensor]) -> Tensor:
        """At whole places, [n, c, d, h, w]; zero outside."""
        inside = torch.ones_like(corner[0], dtype=torch.bool)
        place = torch.zeros_like(corner[0], dtype=torch.int64)
        for at, size, step in zip(corner, sizes, steps, strict=True):
            inside = inside & (at >= 0) & (at <= size - 1)
            place = place + at.clamp(0, size - 1).to(torch.int64) * step
        index = place.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)
        values = torch.gather(flat, 2, index).reshape(*x.shape[:2], *grid.shape[1:4])
        return torch.where(inside.unsqueeze(1), values, 0.0)

    if mode == 1:
        return read([torch.round(point) for point in points])
    floors = [torch.floor(point) for point in points]
    parts = [point - floor for point, floor in zip(points, floors, strict=True)]
    total = torch.zeros((*x.shape[:2], *grid.shape[1:4]), dtype=wide(x).dtype)
    for ups in itertools.product((0, 1), repeat=3):
        weight = torch.ones_like(parts[0])
        for up, part in zip(ups, parts, strict=True):
            weight = weight * (part if up else 1 - part)
        total = total + read([floor + up for floor, up in zip(floors, ups, strict=True)]) * weight.unsqueeze(1)
    return total.to(x.dtype)
