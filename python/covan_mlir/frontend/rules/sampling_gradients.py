"""What differentiates pictures and volumes that are read between their points.

Along each axis a point reads a few neighbours, with weights that depend on where between them it lies. All neighbours
of all points are one axis: the picture's gradient is one sum into the elements that were read, that of the points one
look-up, summed with the slopes of the weights.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten

_LINEAR, _NEAREST, _CUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


class _Axis(NamedTuple):
    """What points read along an axis: neighbours, those inside, weights and their slopes, each [n, points, read]."""

    at: Tensor
    inside: Tensor
    weight: Tensor
    slope: Tensor


def _bounded(point: Tensor, size: int, padding: int, corners: bool) -> tuple[Tensor, Tensor]:
    """Points where the padding has them, and how they move there when they are moved."""
    move = torch.ones_like(point)
    if padding == _ZEROS:
        return point, move
    if padding == _REFLECTION:
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(point), torch.zeros_like(point)
        away = point - low
        turns = torch.floor(away.abs() / span)
        rest = away.abs() - turns * span
        even = torch.remainder(turns, 2) == 0
        move = torch.where(even, 1.0, -1.0) * torch.where(away < 0, -1.0, 1.0)
        point = torch.where(even, rest, span - rest) + low
    move = torch.where((point <= 0) | (point >= size - 1), 0.0, move)
    return point.clamp(0, size - 1), move


def _cubic(t: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of the four neighbours, and their slopes: R. Keys (1981), with a = -0.75."""
    a = -0.75
    steps = (t + 1, t, 1 - t, 2 - t)
    weights, slopes = [], []
    for k, x in enumerate(steps):
        sign = 1 if k < 2 else -1
        if k in (0, 3):
            weights.append(((a * x - 5 * a) * x + 8 * a) * x - 4 * a)
            slopes.append(sign * ((3 * a * x - 10 * a) * x + 8 * a))
        else:
            weights.append(((a + 2) * x - (a + 3)) * x * x + 1)
            slopes.append(sign * (3 * (a + 2) * x - 2 * (a + 3)) * x)
    return torch.stack(weights, -1), torch.stack(slopes, -1)


def _read(coordinate: Tensor, size: int, mode: int, padding: int, corners: bool) -> _Axis:
    """Coordinates are [n, points], -1 to 1 from one end of the axis to the other."""
    scale = (size - 1) / 2 if corners else size / 2
    point = (coordinate + 1) * scale if corners else (coordinate + 1) * scale - 0.5
    if mode == _CUBIC:
        first = torch.floor(point)
        weight, slope = _cubic(point - first)
        at, _ = _bounded(first.unsqueeze(-1) + (torch.arange(4) - 1).to(point.dtype), size, padding, corners)
        slope = slope * scale
    else:
        point, move = _bounded(point, size, padding, corners)
        if mode == _NEAREST:
            at = torch.round(point).unsqueeze(-1)
            weight, slope = torch.ones_like(at), torch.zeros_like(at)
        else:
            first = torch.floor(point)
            share, step = point - first, move * scale
            at = torch.stack([first, first + 1], -1)
            weight, slope = torch.stack([1 - share, share], -1), torch.stack([-step, step], -1)
    inside = (at >= 0) & (at <= size - 1)
    return _Axis(at.clamp(0, size - 1).to(torch.int64), inside, weight, slope)


def _spread(x: Tensor, n: int, axes: int) -> Tensor:
    """The neighbours along axis ``n``, beside those along others."""
    return x.reshape([*x.shape[:2], *[1] * n, x.shape[2], *[1] * (axes - n - 1)])


@rule(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_gradient(
    gradient: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool, output_mask: list[bool]
) -> Any:
    """Of the picture [n, c, *sizes] and of the grid [n, *places, (x, y[, z])]."""
    axes = x.dim() - 2
    sizes = list(x.shape[2:])
    if not all(isinstance(size, int) for size in (*x.shape, *grid.shape)):
        return NotImplemented
    images, channels, points = x.shape[0], x.shape[1], math.prod(grid.shape[1:-1])
    flat = wide(grid).reshape(images, points, axes)
    read = [_read(flat[..., axes - 1 - n], size, mode, padding, align_corners) for n, size in enumerate(sizes)]
    place = torch.zeros((), dtype=torch.int64)
    inside = torch.ones((), dtype=torch.bool)
    for n, (axis, size) in enumerate(zip(read, sizes, strict=True)):
        place = place * size + _spread(axis.at, n, axes)
        inside = inside & _spread(axis.inside, n, axes)
    index = place.reshape(images, 1, -1).expand(-1, channels, -1)
    given = wide(gradient).reshape(images, channels, points, *[1] * axes)

    def weighed(sloping: int | None) -> Tensor:
        """Products of weights, [n, points, *read], or their slopes along an axis; none of what is outside."""
        product = torch.ones((), dtype=given.dtype)
        for n, axis in enumerate(read):
            product = product * _spread(axis.slope if n == sloping else axis.weight, n, axes)
        return torch.where(inside, product, 0.0)

    of_x: Tensor | None = None
    if output_mask[0]:
        added = (given * weighed(None).unsqueeze(1)).reshape(images, channels, -1)
        of_x = torch.zeros((images, channels, math.prod(sizes)), dtype=given.dtype).scatter_add(2, index, added)
        of_x = of_x.reshape(x.shape).to(x.dtype)
    of_grid: Tensor | None = None
    if output_mask[1] and mode == _NEAREST:
        of_grid = torch.zeros_like(grid)
    elif output_mask[1]:
        values = torch.gather(wide(x).flatten(2), 2, index).reshape(images, channels, *place.shape[1:])
        products = (values * given).sum(1)
        slopes = [(products * weighed(n)).flatten(2).sum(2) for n in reversed(range(axes))]
        of_grid = torch.stack(slopes, -1).reshape(grid.shape).to(grid.dtype)
    return of_x, of_grid
