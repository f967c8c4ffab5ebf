"""What differentiates pooling: each element looks at the windows that cover it.

A mean gives each element its share of the windows' gradients, axis by axis. A maximum gives an element the gradients of
those windows whose largest element it was, by the indices that the forward graph kept. Both read; nothing is written to
a place that values choose, so that windows may overlap and sums still have one order.

Windows at regular distances are looked at by blocks of as many elements as lie between two of them: all elements of a
block are covered by the same few, so these are broadcast over it, and nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.pooling import spread
from covan_mlir.frontend.rules.registry import rule, wide
from covan_mlir.frontend.rules.taps import gradient_along, reversed_taps

aten = torch.ops.aten
Windows = Sequence[Sequence[int]]
"""The elements in each window along an axis."""
MOST_COVERS = 16
"""Windows that cover a block, whose gradients are summed side by side."""


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


@dataclass(frozen=True)
class _Blocks:
    """Blocks of elements along an axis, each as long as one window is behind the other.

    Attributes:
        size: elements.
        places: windows.
        stride: from one to the next.
        padding: before the first element.
        reach: from the first element of a window to its last one.
    """

    size: int
    places: int
    stride: int
    padding: int
    reach: int

    @property
    def first(self) -> int:
        """The number of the block that has the first element: that of the window that begins with it."""
        return self.padding // self.stride

    @property
    def count(self) -> int:
        """Of the blocks that have elements."""
        return (self.size - 1 + self.padding) // self.stride - self.first + 1

    @property
    def covers(self) -> int:
        """Windows that cover a block, or a part of it: the one that begins with it, and those before."""
        return self.reach // self.stride + 1

    @property
    def widths(self) -> tuple[int, int]:
        """Windows that there are not, before and behind those that there are; what is negative is not read."""
        begin = self.first - self.covers + 1
        return -begin, self.first + self.count - self.places

    @property
    def begin(self) -> int:
        """Where the first block begins, among the elements."""
        return self.first * self.stride - self.padding


def _of_largest_in_blocks(gradient: Tensor, indices: Tensor, x: Tensor, blocks: Sequence[_Blocks]) -> Tensor:
    """Of elements that were the largest ones of their windows, which lie at regular distances.

    Args:
        indices: of the largest element of each window, among those of the last axes in row-major order.
        blocks: for each of these axes.
    """
    axes, lead = len(blocks), list(x.shape[: x.dim() - len(blocks)])
    widths = [width for each in reversed(blocks) for width in each.widths]
    largest = aten.constant_pad_nd.default(indices, widths, -1) if any(widths) else indices
    values = wide(gradient)
    values = aten.constant_pad_nd.default(values, widths, 0.0) if any(widths) else values
    # Outside of the axes a position is that of another element: such are cut off at last.
    position = torch.zeros((), dtype=torch.int64)
    for n, each in enumerate(blocks):
        shape = [1] * (2 * axes)
        shape[2 * n], shape[2 * n + 1] = each.count, each.stride
        at = torch.arange(each.begin, each.begin + each.count * each.stride).reshape(shape)
        position = position * each.size + at
    total: Tensor | None = None
    for shifts in combinations(*(range(each.covers) for each in blocks)):

        def seen(of: Tensor, shifts: tuple[int, ...] = shifts) -> Tensor:
            for n, (each, shift) in enumerate(zip(blocks, shifts, strict=True)):
                dim = len(lead) + n
                of = of if of.shape[dim] == each.count else of.narrow(dim, shift, each.count)
            return of.reshape([*lead, *(size for each in blocks for size in (each.count, 1))])

        one = torch.where(seen(largest) == position, seen(values), 0.0)
        total = one if total is None else total + one
    assert total is not None
    result = total.reshape([*lead, *(each.count * each.stride for each in blocks)])
    for n, each in enumerate(blocks):
        if each.begin or each.count * each.stride != each.size:
            result = result.narrow(len(lead) + n, -each.begin, each.size)
    return result.to(gradient.dtype)


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
    blocks = [
        _Blocks(size, count, s, p, d * (k - 1))
        for size, count, k, s, p, d in zip(sizes, places, kernel, steps, pads, gaps, strict=True)
    ]
    if prod(each.covers for each in blocks) <= MOST_COVERS and min(x.shape, default=0) > 0:
        return _of_largest_in_blocks(gradient, indices, x, blocks)
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
