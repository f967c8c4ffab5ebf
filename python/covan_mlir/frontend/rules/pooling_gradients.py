"""What differentiates pooling: each element looks at the windows that cover it.

A mean gives each element its share of the windows' gradients, axis by axis. A maximum gives an element the gradients of
those windows whose largest element it was, by the indices that the forward graph kept. Both read; nothing is written to
a place that values choose, so that windows may overlap and sums still have one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.pooling import spread
from covan_mlir.frontend.rules.registry import rule, wide
from covan_mlir.frontend.rules.taps import gradient_along, reversed_taps

aten = torch.ops.aten
Windows = Sequence[Sequence[int]]
"""The elements in each window along an axis."""


def _known(*sizes: Any) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _adaptive(size: int, places: int) -> list[range]:
    return [range(n * size // places, -(-(n + 1) * size // places)) for n in range(places)]


def _regular(size: int, places: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> list[list[int]]:
    return [
        [at for at in range(first, first + kernel * dilation, dilation) if 0 <= at < size]
        for first in range(-padding, -padding + places * stride, stride)
    ]


@rule(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def avg_pool_gradient(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """A window is divided by its size, along each axis, which is less where it leaves the padding or, if that does not
    count, the input."""
    axes = len(kernel_size)
    kernel, pads = list(kernel_size), spread(padding, axes)
    steps = spread(stride, axes) if stride else kernel
    if not _known(*x.shape[-axes:]):
        return NotImplemented
    result = wide(gradient)
    for n in range(axes):
        dim = x.dim() - axes + n
        size, places = x.shape[dim], gradient.shape[dim]
        taps = []
        for place, window in enumerate(_regular(size, places, kernel[n], steps[n], pads[n])):
            end = size + 2 * pads[n] - place * steps[n]  # of the padding, from where the window begins
            count = min(kernel[n], end) if count_include_pad else len(window)
            taps.append(dict.fromkeys(window, 1.0 if divisor_override else 1.0 / count))
        result = gradient_along(result, dim, taps, size)
    return (result / divisor_override if divisor_override else result).to(gradient.dtype)


@rule(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_gradient(gradient: Tensor, x: Tensor) -> Any:
    return _of_adaptive_means(gradient, x, 2)


@rule(aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool3d_gradient(gradient: Tensor, x: Tensor) -> Any:
    return _of_adaptive_means(gradient, x, 3)


def _of_adaptive_means(gradient: Tensor, x: Tensor, axes: int) -> Any:
    if not _known(*x.shape[-axes:]):
        return NotImplemented
    result = wide(gradient)
    for dim in range(x.dim() - axes, x.dim()):
        windows = _adaptive(x.shape[dim], gradient.shape[dim])
        result = gradient_along(result, dim, [dict.fromkeys(each, 1 / len(each)) for each in windows], x.shape[dim])
    return result.to(gradient.dtype)


def _of_largest(gradient: Tensor, indices: Tensor, x: Tensor, windows: Sequence[Windows]) -> Tensor:
    """Of elements that were the largest ones of their windows.

    Args:
        indices: of the largest element of each window, among those of the last axes in row-major order.
        windows: for each of these axes, those along it.
    """
    axes = len(windows)
    sizes = x.shape[-axes:]
    largest, values = indices, wide(gradient)
    sides = [1] * (2 * axes)
    position = torch.zeros(sides, dtype=torch.int64)
    inside: Tensor | None = None
    shape: list[int] = [*x.shape[:-axes]]
    for n, (size, along) in enumerate(zip(sizes, windows, strict=True)):
        covers = [sorted(each) for each in reversed_taps([dict.fromkeys(each, 1.0) for each in along], size)]
        most = max(max(map(len, covers), default=0), 1)
        flat = torch.as_tensor([place for each in covers for place in [*each, *[0] * (most - len(each))]])
        dim = x.dim() - axes + n
        if most > 1 or len(along) != size:
            largest, values = largest.index_select(dim, flat), values.index_select(dim, flat)
        own = list(sides)
        own[2 * n] = size
        position = position * size + torch.arange(size).reshape(own)
        if any(len(each) < most for each in covers):
            own[2 * n + 1] = most
            real = torch.as_tensor([[k < len(each) for k in range(most)] for each in covers]).reshape(own)
            inside = real if inside is None else inside & real
        shape += [size, most]
    taken = largest.reshape(shape) == position
    taken = taken if inside is None else taken & inside
    behind = [len(shape) - 2 * axes + 2 * n + 1 for n in range(axes)]
    return torch.where(taken, values.reshape(shape), 0.0).sum(behind).to(gradient.dtype)


@rule(aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
def max_pool_gradient(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Any:
    axes = len(kernel_size)
    kernel, pads, gaps = list(kernel_size), spread(padding, axes), spread(dilation, axes)
    steps = spread(stride, axes) if stride else kernel
    if not _known(*x.shape[-axes:]):
        return _scattered(gradient, indices, x, axes)
    sizes, places = x.shape[-axes:], gradient.shape[-axes:]
    windows = [_regular(*each) for each in zip(sizes, places, kernel, steps, pads, gaps, strict=True)]
    return _of_largest(gradient, indices, x, windows)


@rule(aten.adaptive_max_pool2d_backward.default)
def adaptive_max_pool2d_gradient(gradient: Tensor, x: Tensor, indices: Tensor) -> Any:
    return _of_largest_adaptive(gradient, x, indices, 2)


@rule(aten.adaptive_max_pool3d_backward.default)
def adaptive_max_pool3d_gradient(gradient: Tensor, x: Tensor, indices: Tensor) -> Any:
    return _of_largest_adaptive(gradient, x, indices, 3)


def _of_largest_adaptive(gradient: Tensor, x: Tensor, indices: Tensor, axes: int) -> Any:
    if not _known(*x.shape[-axes:]):
        return _scattered(gradient, indices, x, axes)
    pairs = zip(x.shape[-axes:], gradient.shape[-axes:], strict=True)
    return _of_largest(gradient, indices, x, [_adaptive(size, places) for size, places in pairs])


@rule(aten.fractional_max_pool2d_backward.default, aten.fractional_max_pool3d_backward.default)
def fractional_max_pool_gradient(
    gradient: Tensor, x: Tensor, kernel_size: list[int], output_size: list[int], indices: Tensor
) -> Tensor:
    """Where the windows are, random numbers say."""
    return _scattered(gradient, indices, x, len(kernel_size))


def _scattered(gradient: Tensor, indices: Tensor, x: Tensor, axes: int) -> Tensor:
    """To where the largest elements were."""
    values = wide(gradient).flatten(-axes)
    spread_ = torch.zeros_like(x, dtype=values.dtype).flatten(-axes)
    return spread_.scatter_add(-1, indices.flatten(-axes), values).reshape(x.shape).to(gradient.dtype)
