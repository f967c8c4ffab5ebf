"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.operators.convolutions import windows
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused


def _flat(begins: Sequence[Any], ends: Sequence[Any]) -> list[Any]:
    """Amounts as torch's ``pad`` takes them: the last axis first."""
    return [amount for pair in reversed(list(zip(begins, ends, strict=True))) for amount in pair]


def _padded(call: Call, value: Tensor, kernel: list[int]) -> tuple[list[int], list[int], list[Any], list[Any]]:
    """-> (strides, dilations, begins, ends), ends with what rounding the number of windows up asks for."""
    rank = len(kernel)
    strides, dilations, pads = windows(call, value.shape[2:], kernel)
    begins, ends = list(pads[:rank]), list(pads[rank:])
    if call.integer("ceil_mode"):
        for axis in range(rank):
            size = value.shape[2 + axis] + begins[axis] + ends[axis]
            reach = dilations[axis] * (kernel[axis] - 1) + 1
            outputs = -(-(size - reach) // strides[axis]) + 1
            if (outputs - 1) * strides[axis] >= value.shape[2 + axis] + begins[axis]:
                outputs -= 1  # a window that begins behind the value and what is before it
            ends[axis] += max((outputs - 1) * strides[axis] + reach - size, 0)
    return strides, dilations, begins, ends


@operator("MaxPool")
def max_pool(call: Call) -> Any:
    """The largest of each window, and its place in the whole value."""
    value = call.tensor(0)
    kernel = call.integers("kernel_shape") or []
    strides, dilations, begins, ends = _padded(call, value, kernel)
    function: Any = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}.get(len(kernel))
    if function is None:
        raise Refused(f"pooling has one, two or three axes, not {len(kernel)}")
    wants_places = len(call.node.output) > 1 and bool(call.node.output[1])
    inside = all(2 * b <= k for b, k in zip(begins, kernel, strict=True))
    if begins == ends and inside and not wants_places and value.dtype.is_floating_point:
        return function(value, kernel, strides, begins, dilations)
    dtype = value.dtype
    if not dtype.is_floating_point:
        value = unsigned.signed(value).to(torch.float64 if dtype in (torch.int64, torch.int32) else torch.float32)
    padded = F.pad(value, _flat(begins, ends), value=float("-inf")) if any(begins) or any(ends) else value
    if not wants_places:
        return function(padded, kernel, strides, 0, dilations).to(dtype)
    result, places = function(padded, kernel, strides, 0, dilations, return_indices=True)
    return result.to(dtype), _places(call, places, value, padded, begins)


def _places(call: Call, places: Tensor, value: Tensor, padded: Tensor, begins: Sequence[int]) -> Tensor:
    """Places in a padded image as places in the whole tensor, rows or columns first."""
    coordinates = []
    rest = places
    for size in reversed(padded.shape[2:]):
        coordinates.append(rest % size)
        rest = torch.div(rest, size, rounding_mode="floor")
    coordinates = [c - b for c, b in zip(reversed(coordinates), begins, strict=True)]
    order = list(range(len(coordinates)))
    if call.integer("storage_order"):
        order = order[::-1]
    flat = torch.zeros_like(places)
    for axis in order:
        flat = flat * value.shape[2 + axis] + coordinates[axis]
    image = math.prod(value.shape[2:])
    planes = torch.arange(value.shape[0] * value.shape[1]).reshape(*value.shape[:2], *[1] * len(coordinates))
    return flat + planes * image


@operator("AveragePool")
def average_pool(call: Call) -> Tensor:
    """The mean of each window; what is around the value counts, or does not."""
    value = call.tensor(0)
    kernel = call.integers("kernel_shape") or []
    strides, dilations, begins, ends = _padded(call, value, kernel)
    counts_around = bool(call.integer("count_include_pad"))
    rank = len(kernel)
    function: Any = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}.get(rank)
    if function is None:
        raise Refused(f"pooling has one, two or three axes, not {rank}")
    plain = all(d == 1 for d in dilations)
    if plain and not any(begins) and not any(ends):
        return function(value, kernel, strides)
    inside = all(2 * b <= k for b, k in zip(begins, kernel, strict=True))
    if plain and begins == ends and inside and not call.integer("ceil_mode"):
        return function(value, kernel, strides, begins, False, counts_around)
    # Sums of windows, divided by how many elements count. What rounding up asks for beyond the pads counts never.
    ones = torch.ones((1, 1, *value.shape[2:]), dtype=value.dtype)
    if counts_around:
        pads = windows(call, value.shape[2:], kernel)[2]
        ones = F.pad(ones, _flat(pads[:rank], pads[rank:]), value=1.0)
        ones = F.pad(ones, _flat([0] * rank, [e - p for e, p in zip(ends, pads[rank:], strict=True)]))
    else:
        ones = F.pad(ones, _flat(begins, ends))
    padded = F.pad(value, _flat(begins, ends))
    return _sums(padded, kernel, strides, dilations) / _sums(ones, kernel, strides, dilations)


def _sums(value: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    """Sums of windows."""
    rank = len(kernel)
    if all(d == 1 for d in dilations):
        function: Any = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[rank]
        result: Tensor = function(value, kernel, strides) * math.prod(kernel)
        return result
    channels = value.shape[1]
    weight = torch.ones((channels, 1, *kernel), dtype=value.dtype)
    convolve: Any = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    summed: Tensor = convolve(value, weight, None, strides, 0, dilations, channels)
    return summed


@operator("LpPool")
def lp_pool(call: Call) -> Tensor:
    """The p-norm of each window."""
    value = call.tensor(0)
    kernel = call.integers("kernel_shape") or []
    strides, dilations, begins, ends = _padded(call, value, kernel)
    power = call.integer("p", 2)
    padded = F.pad(value.abs(), _flat(begins, ends))
    return _sums(padded**power, kernel, strides, dilations) ** (1.0 / power)


@operator("GlobalAveragePool")
def global_average_pool(call: Call) -> Tensor:
    """The mean over all places."""
    value = call.tensor(0)
    if value.dim() == 4:
        return F.adaptive_avg_pool2d(value, (1, 1))
    return value.mean(list(range(2, value.dim())), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call) -> Tensor:
    """The largest of all places."""
    value = call.tensor(0)
    return value.amax(list(range(2, value.dim())), keepdim=True)


@operator("GlobalLpPool")
def global_lp_pool(call: Call) -> Tensor:
    """The p-norm over all places."""
    value, power = call.tensor(0), call.integer("p", 2)
    return (value.abs() ** power).sum(list(range(2, value.dim())), keepdim=True) ** (1.0 / power)


@operator("MaxUnpool", since=9)
def max_unpool(call: Call) -> Tensor:
    """Elements at the places that pooling took them from, with zeros around."""
    value, places = call.tensor(0), call.tensor(1)
    kernel = call.integers("kernel_shape") or []
    rank = len(kernel)
    strides = call.integers("strides") or [1] * rank
    pads = call.integers("pads") or [0] * (2 * rank)
    sizes = [(value.shape[2 + a] - 1) * strides[a] - pads[a] - pads[rank + a] + kernel[a] for a in range(rank)]
    wanted = call.sizes(2) if call.has(2) else [*value.shape[:2], *sizes]
    flat = torch.zeros(math.prod(value.shape[:2]) * math.prod(sizes), dtype=value.dtype)
    result = flat.scatter(0, places.reshape(-1), value.reshape(-1)).reshape(*value.shape[:2], *sizes)
    if list(wanted) != list(result.shape):
        extra = [w - n for w, n in zip(wanted[2:], result.shape[2:], strict=True)]
        result = F.pad(result, _flat([0] * rank, extra))
    return result
