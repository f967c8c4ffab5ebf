"""Pooling in the forms that torch-mlir has no lowering for."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import plain, rule

aten = torch.ops.aten


def spread(value: Any, axes: int) -> list[int]:
    """A number for each axis, where one may stand for all."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * axes if len(values) == 1 else values


@rule(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool_with_indices(
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Rounding up as rounding down of a larger picture: the lowering of the indices ignores the rounding mode."""
    axes = x.dim() - 2
    op = aten.max_pool2d_with_indices.default if axes == 2 else aten.max_pool3d_with_indices.default
    sizes = list(x.shape[2:])
    whole = not x.dtype.is_floating_point
    if not (ceil_mode or whole) or not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    kernel = spread(kernel_size, axes)
    steps = spread(stride, axes) if stride else kernel
    pads, gaps = spread(padding, axes), spread(dilation, axes)
    if whole:
        return _largest(x, kernel, steps, pads, gaps, ceil_mode)
    more = []
    for size, k, s, p, d in zip(sizes, kernel, steps, pads, gaps, strict=True):
        span = d * (k - 1) + 1
        places = -(-(size + 2 * p - span) // s) + 1
        if (places - 1) * s >= size + p:
            places -= 1  # a window may not start in the padding behind
        more.append(max((places - 1) * s + span - 2 * p - size, 0))
    widths = [width for extra in reversed(more) for width in (0, extra)]
    larger = aten.constant_pad_nd.default(x, widths, -torch.inf)
    pooled, places_ = plain(op, larger, kernel, steps, pads, gaps, False)
    index = torch.zeros_like(places_)
    factor, rest = 1, places_
    for size, extra in reversed(list(zip(sizes, more, strict=True))):
        index = index + (rest % (size + extra)) * factor
        rest, factor = rest // (size + extra), factor * size
    return pooled, index


def _largest(
    x: Tensor, kernel: list[int], steps: list[int], pads: list[int], gaps: list[int], ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    """Of whole numbers, which torch-mlir's lowering compares as floats: the windows' elements side by side."""
    axes = len(kernel)
    sizes = list(x.shape[-axes:])
    flat, inside, places = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.bool), []
    for axis, (size, k, s, p, d) in enumerate(zip(sizes, kernel, steps, pads, gaps, strict=True)):
        room = size + 2 * p - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        count -= ceil_mode and (count - 1) * s >= size + p  # a window may not start in the padding behind
        at = (torch.arange(count) * s - p).unsqueeze(1) + torch.arange(k) * d
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = count, k
        flat = flat * size + at.clamp(0, size - 1).reshape(shape)
        inside = inside & ((at >= 0) & (at < size)).reshape(shape)
        places.append(count)
    windows = flat.reshape(-1)
    seen = torch.index_select(x.flatten(-axes), -1, windows).reshape(*x.shape[:-axes], math.prod(places), -1)
    inside = inside.reshape(math.prod(places), -1)
    seen = torch.where(inside, seen, torch.iinfo(x.dtype).min)
    largest = inside & (seen == seen.amax(-1, keepdim=True))
    first = largest.to(torch.int64).argmax(-1, keepdim=True)
    index = windows.reshape(math.prod(places), -1).expand(seen.shape).gather(-1, first)
    shape = [*x.shape[:-axes], *places]
    return seen.gather(-1, first).reshape(shape), index.reshape(shape)


@rule(aten.avg_pool1d.default, aten.avg_pool2d.default)
def avg_pool(
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """A window longer than the tensor, which rounding up allows, is the mean along that axis."""
    axes = len(kernel_size)
    sizes, kernel = x.shape[-axes:], list(kernel_size)
    pads, steps = spread(padding, axes), list(stride) or list(kernel_size)
    longer = []
    if ceil_mode and all(isinstance(size, int) for size in sizes):
        longer = [i for i in range(axes) if kernel[i] > sizes[i] and not pads[i]]
    if not longer:
        if padding == pads or divisor_override is None:
            return NotImplemented
        # torch-mlir takes one number of padding for that of all axes, but not with a divisor.
        return plain(aten.avg_pool2d.default, x, kernel, steps, pads, ceil_mode, count_include_pad, divisor_override)
    along = [i - axes for i in longer]
    x = x.mean(along, keepdim=True) if divisor_override is None else x.sum(along, keepdim=True)
    for i in longer:
        kernel[i] = steps[i] = 1
    if divisor_override is not None:
        return plain(aten.avg_pool2d.default, x, kernel, steps, pads, True, count_include_pad, divisor_override)
    if all(k == s == 1 for k, s in zip(kernel, steps, strict=True)) and not any(pads):
        return x
    op = aten.avg_pool1d.default if axes == 1 else aten.avg_pool2d.default
    return plain(op, x, kernel, steps, pads, True, count_include_pad)


def _windows(size: int, places: int) -> Tensor:
    """Positions in each window, ``[places, longest]``; a shorter window repeats its last one."""
    spans = [(i * size // places, -(-(i + 1) * size // places)) for i in range(places)]
    longest = max(end - start for start, end in spans)
    place, step = torch.arange(places).unsqueeze(1), torch.arange(longest)
    return torch.minimum(place * size // places + step, ((place + 1) * size + places - 1) // places - 1)


@rule(aten.adaptive_max_pool2d.default)
def adaptive_max_pool2d(x: Tensor, output_size: list[int]) -> Any:
    """Windows of different sizes."""
    high, wide = x.shape[-2:]
    rows, columns = output_size
    if not (isinstance(high, int) and isinstance(wide, int)) or not rows or not columns or x.dim() != 4:
        return NotImplemented
    if high % rows == 0 and wide % columns == 0:
        return NotImplemented
    y, z = _windows(high, rows), _windows(wide, columns)
    picked = x.index_select(2, y.reshape(-1)).index_select(3, z.reshape(-1))
    picked = picked.reshape(*x.shape[:2], rows, y.shape[1], columns, z.shape[1]).transpose(3, 4)
    pooled, best = picked.reshape(*x.shape[:2], rows, columns, -1).max(-1)
    place = y.reshape(rows, 1, -1, 1) * wide + z.reshape(1, columns, 1, -1)
    flat = place.reshape(1, 1, rows, columns, -1).expand(*best.shape, -1)
    return pooled, flat.gather(-1, best.unsqueeze(-1)).squeeze(-1)


@rule(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def fractional_max_pool(x: Tensor, kernel_size: list[int], output_size: list[int], random_samples: Tensor) -> Any:
    """Windows begin where a random number of each plane and axis says, and the last one ends with the tensor."""
    axes = len(kernel_size)
    planes, sizes = list(x.shape[:-axes]), x.shape[-axes:]
    if not all(isinstance(size, int) for size in x.shape):
        return NotImplemented
    samples = random_samples.reshape(*planes, axes)
    flat = torch.zeros((), dtype=torch.int64)
    for axis, (size, k, places) in enumerate(zip(sizes, kernel_size, output_size, strict=True)):
        sample = samples[..., 1 - axis if axes == 2 else axis].unsqueeze(-1)  # of pictures, columns have the first
        starts = torch.full([*planes, 1], size - k)
        if places > 1:
            step = (size - k) / (places - 1)
            moved = (torch.arange(places - 1, dtype=x.dtype) + sample) * step
            starts = torch.cat([moved.to(torch.int64) - (sample * step).to(torch.int64), starts], -1)
        shape = [*planes, *[1] * (2 * axes)]
        shape[len(planes) + axis], shape[len(planes) + axes + axis] = places, k
        flat = flat * size + (starts.unsqueeze(-1) + torch.arange(k)).reshape(shape)
    windows = flat.reshape(*planes, math.prod(output_size), math.prod(kernel_size))
    seen = x.flatten(-axes).gather(-1, windows.flatten(-2)).reshape(windows.shape)
    largest, first = seen.max(-1)
    index = windows.gather(-1, first.unsqueeze(-1)).squeeze(-1)
    return largest.reshape(*planes, *output_size), index.reshape(*planes, *output_size)
