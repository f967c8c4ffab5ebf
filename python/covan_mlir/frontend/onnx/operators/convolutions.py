"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.translation.refused import Refused


def windows(call: Call, spatial: Sequence[Any], kernel: Sequence[int]) -> tuple[list[int], list[int], list[Any]]:
    """-> (strides, dilations, pads: all begins, then all ends), with ``auto_pad`` worked out."""
    rank = len(spatial)
    strides = call.integers("strides") or [1] * rank
    dilations = call.integers("dilations") or [1] * rank
    kind = call.text("auto_pad", "NOTSET")
    if kind in ("NOTSET", ""):
        return strides, dilations, call.integers("pads") or [0] * (2 * rank)
    if kind == "VALID":
        return strides, dilations, [0] * (2 * rank)
    begins, ends = [], []
    for size, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        outputs = -(-size // s)
        total = max((outputs - 1) * s + (k - 1) * d + 1 - size, 0)
        small = total // 2
        begins.append(small if kind == "SAME_UPPER" else total - small)
        ends.append(total - small if kind == "SAME_UPPER" else small)
    return strides, dilations, begins + ends


def convolved(call: Call, value: Tensor, weight: Tensor, bias: Tensor | None, filler: Tensor | None = None) -> Tensor:
    """A convolution with the attributes of a node."""
    rank = value.dim() - 2
    strides, dilations, pads = windows(call, value.shape[2:], weight.shape[2:])
    begins, ends = pads[:rank], pads[rank:]
    if begins != ends:
        flat: list[Any] = []
        for axis in reversed(range(rank)):
            flat += [begins[axis], ends[axis]]
        value, begins = F.pad(value, flat), [0] * rank
    function: Any = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}.get(rank)
    if function is None:
        raise Refused(f"convolutions have one, two or three axes, not {rank}")
    result: Tensor = function(value, weight, bias, strides, begins, dilations, call.integer("group", 1))
    return result


@operator("Conv")
def conv(call: Call) -> Tensor:
    """A convolution."""
    return convolved(call, call.tensor(0), call.tensor(1), call.optional(2))


@operator("ConvTranspose")
def conv_transpose(call: Call) -> Tensor:
    """A transposed convolution; what is asked of its output shape decides about pads."""
    value, weight, bias = call.tensor(0), call.tensor(1), call.optional(2)
    rank = value.dim() - 2
    strides = call.integers("strides") or [1] * rank
    dilations = call.integers("dilations") or [1] * rank
    extra = call.integers("output_padding") or [0] * rank
    pads = call.integers("pads") or [0] * (2 * rank)
    wanted = call.integers("output_shape")
    kind = call.text("auto_pad", "NOTSET")
    kernel = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    if wanted is not None and len(wanted) == rank + 2:
        wanted = wanted[2:]
    if wanted is None and kind in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(value.shape[2:], strides, strict=True)]
    if wanted is not None:
        begins, ends = [], []
        for axis in range(rank):
            full = strides[axis] * (value.shape[2 + axis] - 1) + extra[axis] + kernel[axis]
            total = full - wanted[axis]
            small = total // 2
            begins.append(total - small if kind != "SAME_UPPER" else small)
            ends.append(small if kind != "SAME_UPPER" else total - small)
        pads = begins + ends
    elif kind == "VALID":
        pads = [0] * (2 * rank)
    begins, ends = pads[:rank], pads[rank:]
    function: Any = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}.get(rank)
    if function is None:
        raise Refused(f"convolutions have one, two or three axes, not {rank}")
    group = call.integer("group", 1)
    if begins == ends and all(e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        result: Tensor = function(value, weight, bias, strides, begins, extra, group, dilations)
        return result
    result = function(value, weight, bias, strides, 0, 0, group, dilations)
    for axis in range(rank):
        after = ends[axis] - extra[axis]
        cut, add = max(after, 0), max(-after, 0)
        first = begins[axis]
        if first < 0:
            raise Refused("its output is larger than what it computes")
        result = result.narrow(2 + axis, first, result.shape[2 + axis] - first - cut)
        if add:
            flat = [0, 0] * (rank - 1 - axis) + [0, add]
            result = F.pad(result, flat)
            if bias is not None:
                raise Refused("its output is larger than what it computes")
    return result


@operator("Col2Im", since=18)
def col2im(call: Call) -> Tensor:
    """Sums of what columns have for each place of an image, of any number of axes."""
    columns, image, block = call.tensor(0), call.sizes(1), call.sizes(2)
    rank = len(image)
    strides = call.integers("strides") or [1] * rank
    dilations = call.integers("dilations") or [1] * rank
    pads = call.integers("pads") or [0] * (2 * rank)
    counts = [
        (image[a] + pads[a] + pads[rank + a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1 for a in range(rank)
    ]
    batch = columns.shape[0]
    total = 1
    for b in block:
        total *= b
    channels = columns.shape[1] // total
    # One row of places for each element of the block: sums over all that fall on one place.
    at = torch.zeros([1] * (2 * rank), dtype=torch.int64)
    sizes = [image[a] + pads[a] + pads[rank + a] for a in range(rank)]
    for axis in range(rank):
        inner = torch.arange(block[axis]).reshape([-1 if a == axis else 1 for a in range(2 * rank)])
        outer = torch.arange(counts[axis]).reshape([-1 if a == rank + axis else 1 for a in range(2 * rank)])
        at = at * sizes[axis] + inner * dilations[axis] + outer * strides[axis]
    size = 1
    for n in sizes:
        size *= n
    flat = torch.zeros(batch, channels, size, dtype=columns.dtype)
    summed = flat.index_add(2, at.reshape(-1), columns.reshape(batch, channels, -1)).reshape(batch, channels, *sizes)
    for axis in range(rank):
        summed = summed.narrow(2 + axis, pads[axis], image[axis])
    return summed
