"""Transposed convolutions as convolutions of what is there.

torch-mlir puts ``stride - 1`` zeros between the elements of the input, and multiplies them. With ``r = stride * t + q``
for a tap, elements of the result whose positions are alike modulo the stride see the same taps (``q``), so that::

    y[k, stride * b + q - padding] = sum over c, t of x[c, b - t] * weight[c, k, stride * t + q]

is a convolution with stride 1 and ``stride`` times as many channels, between whose elements those of the others lie
(Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
Network", 2016, section 3.2). Taps that are missing in a whole number of strides have weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import plain, rule, wide

aten = torch.ops.aten


@dataclass(frozen=True)
class _Axis:
    """One axis of an image.

    Attributes:
        reach: from the first to the last tap, one more.
        extra: ``output_padding``.
    """

    stride: int
    padding: int
    reach: int
    extra: int

    @property
    def taps(self) -> int:
        """Of an element of the result."""
        return -(-self.reach // self.stride)

    @property
    def before(self) -> int:
        """Blocks of ``stride`` elements in front of that in which the result begins."""
        return self.padding // self.stride

    @property
    def first(self) -> int:
        """Where it begins in that block."""
        return self.padding % self.stride

    @property
    def more(self) -> int:
        """Elements that the result has beyond ``stride`` for each of the input."""
        return self.reach + self.extra - 2 * self.padding - self.stride

    @property
    def blocks(self) -> int:
        """That the result touches beyond one for each element of the input."""
        return -(-(self.first + self.more) // self.stride)

    @property
    def edges(self) -> tuple[int, int]:
        """Zeros before and behind the input; what is negative is cut off."""
        before = self.taps - 1 - self.before
        return before, self.blocks + self.taps - 1 - before


@rule(aten.convolution.default)
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """By blocks with a stride, and where no more products come of it than of the zeros; and of each channel by itself,
    which torch-mlir's lowering with a batch of windows does not verify for. Without a stride by the filter turned: that
    lowering copies the image with zeros around it. Dilated filters otherwise with the zeros: which constant a filter is
    that a lowering turned, nothing would tell."""
    count = x.dim() - 2
    window = weight.shape[2:]
    if not transposed or not all(isinstance(size, int) for size in weight.shape):
        return NotImplemented
    if groups == 1 and not x.dtype.is_floating_point:
        return NotImplemented
    stride, padding, dilation, output_padding = (
        list(values) * (count // len(values)) for values in (stride, padding, dilation, output_padding)
    )
    axes = [
        _Axis(s, p, d * (size - 1) + 1, extra)
        for s, p, d, size, extra in zip(stride, padding, dilation, window, output_padding, strict=True)
    ]
    ones, zeros = [1] * count, [0] * count
    if prod(axis.taps for axis in axes) >= prod(window) and groups != weight.shape[0]:
        if max(dilation) == 1 < max(stride):
            return NotImplemented
        x, pads = framed(_apart(x, stride), [(low := axis.reach - 1 - axis.padding, low + axis.extra) for axis in axes])
        filters = _filters(weight, [_Axis(1, 0, size, 0) for size in window], ones, groups)
        volume = grouped_volume(x, filters, bias, ones, pads, dilation, False, zeros, groups)
        if volume is not NotImplemented:
            return volume
        return plain(aten.convolution.default, x, filters, bias, ones, pads, dilation, False, zeros, groups)
    x, pads = framed(x, [axis.edges for axis in axes])
    filters = _filters(weight, axes, dilation, groups)
    if bias is not None:
        bias = bias.unsqueeze(1).expand(-1, prod(stride)).reshape(-1)
    volume = grouped_volume(x, filters, bias, ones, pads, ones, False, zeros, groups)
    if volume is NotImplemented:
        volume = plain(aten.convolution.default, x, filters, bias, ones, pads, ones, False, zeros, groups)
    return _interleaved(volume, axes)


def framed(x: Tensor, edges: list[tuple[int, int]]) -> tuple[Tensor, list[int]]:
    """-> (an image with zeros around it, or less of it where edges are negative; zeros that are still to be put there,
    on both sides of each axis)."""
    for n, (low, high) in enumerate(edges, 2):
        if min(low, high) < 0:
            x = x.narrow(n, max(0, -low), x.shape[n] - max(0, -low) - max(0, -high))
    around = [(max(0, low), max(0, high)) for low, high in edges]
    if all(low == high for low, high in around):
        return x, [low for low, _ in around]
    x = aten.constant_pad_nd.default(x, [zeros for pair in reversed(around) for zeros in pair], 0.0)
    return x, [0] * len(edges)


def _apart(x: Tensor, stride: list[int]) -> Tensor:
    """An image with ``stride - 1`` zeros between its elements."""
    for n, step in enumerate(stride, 2):
        if step > 1:
            length = (x.shape[n] - 1) * step + 1
            apart = torch.nn.functional.pad(x.unsqueeze(n + 1), [0, 0] * (x.dim() - n - 1) + [0, step - 1])
            x = apart.flatten(n, n + 1).narrow(n, 0, length)
    return x


def _filters(weight: Tensor, axes: list[_Axis], dilation: list[int], groups: int) -> Tensor:
    """``[channels, k, window]`` as ``[k of all groups and places in a block, channels of a group, taps]``."""
    for n, (axis, gap) in enumerate(zip(axes, dilation, strict=True), 2):
        size = weight.shape[n]
        if gap > 1:
            apart = torch.nn.functional.pad(weight.unsqueeze(n + 1), [0, 0] * (weight.dim() - n - 1) + [0, gap - 1])
            weight = apart.flatten(n, n + 1).narrow(n, 0, axis.reach)
            size = axis.reach
        if missing := axis.taps * axis.stride - size:
            weight = torch.nn.functional.pad(weight, [0, 0] * (weight.dim() - n - 1) + [0, missing])
    split = [size for axis in axes for size in (axis.taps, axis.stride)]
    channels, outputs = weight.shape[0] // groups, weight.shape[1]
    taps = weight.reshape(groups, channels, outputs, *split)
    tap_axes, place_axes = range(3, 3 + len(split), 2), range(4, 3 + len(split), 2)
    # A convolution takes the taps from the other end.
    turned = taps.flip(list(tap_axes)) if prod(axis.taps for axis in axes) > 1 else taps
    ordered = turned.permute(0, 2, *place_axes, 1, *tap_axes)
    places = prod(axis.stride for axis in axes)
    return ordered.reshape(groups * outputs * places, channels, *(axis.taps for axis in axes))


def _interleaved(y: Tensor, axes: list[_Axis]) -> Tensor:
    """``[n, k and places in a block, blocks]`` as ``[n, k, image]``."""
    count, places = len(axes), [axis.stride for axis in axes]
    blocks = y.shape[2:]
    apart = y.reshape(y.shape[0], y.shape[1] // prod(places), *places, *blocks)
    order = [n for axis in range(count) for n in (2 + count + axis, 2 + axis)]
    sizes = [block * axis.stride for block, axis in zip(blocks, axes, strict=True)]
    image = apart.permute(0, 1, *order).reshape(y.shape[0], apart.shape[1], *sizes)
    for n, axis in enumerate(axes, 2):
        length = (blocks[n - 2] - axis.blocks) * axis.stride + axis.more
        if axis.first or axis.more != axis.blocks * axis.stride:
            image = image.narrow(n, axis.first, length)
    return image


@rule(aten.convolution.default)
def grouped_volume(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """In groups and three dimensions, which torch-mlir does not lower: the sum, over the taps along the first
    dimension, of convolutions of frames."""
    if x.dim() != 5 or groups == 1 or transposed:
        return NotImplemented
    (step, *strides), (pad, *pads), (apart, *dilations) = (list(v) * (3 // len(v)) for v in (stride, padding, dilation))
    frames = wide(x).transpose(1, 2)
    if pad:
        frames = aten.constant_pad_nd.default(frames, [0, 0, 0, 0, 0, 0, pad, pad], 0)
    reach = (weight.shape[2] - 1) * apart + 1
    count = (frames.shape[1] - reach) // step + 1
    y = None
    for tap in range(weight.shape[2]):
        first = tap * apart
        shown = frames[:, first : first + (count - 1) * step + 1 : step]
        batch = shown.reshape(-1, *shown.shape[2:])
        part = torch.conv2d(batch, wide(weight)[:, :, tap], None, strides, pads, dilations, groups)
        y = part if y is None else y + part
    assert y is not None
    if bias is not None:
        y = y + wide(bias).reshape(-1, 1, 1)
    return y.reshape(x.shape[0], count, *y.shape[1:]).transpose(1, 2).to(x.dtype)


@rule(aten.conv_tbc.default)
def conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Of a sequence as [time, batch, channels], by weights as [time, channels, results]."""
    y = torch.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return y.permute(2, 0, 1)
