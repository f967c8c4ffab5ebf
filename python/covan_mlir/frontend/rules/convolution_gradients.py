"""What differentiates a convolution, as convolutions.

With ``y[n, o, q] = sum over i, r of x[n, i, q*s + r*d - p] * w[o, i, r]``, for each axis, and ``g`` the gradient of
``y``: that of ``x`` is a transposed convolution of ``g``; that of ``w`` is ``sum over n, q of x[n, i, q*s + r*d - p] *
g[n, o, q]``, a convolution whose windows are as large as ``g``, of which dilation and stride have changed places, and
images and channels. A transposed convolution is the first with ``x`` and ``g`` in each other's place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.convolutions import framed
from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten


@rule(aten.convolution_backward.default)
def convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> Any:
    """Each of the three gradients that is asked for."""
    axes = x.dim() - 2
    stride, padding, dilation = (list(values) * (axes // len(values)) for values in (stride, padding, dilation))
    of_input, of_weight, of_bias = output_mask
    windows = stride, padding, dilation
    gradients: list[Tensor | None] = [None, None, None]
    if of_input and transposed:
        gradients[0] = aten.convolution.default(gradient, weight, None, *windows, False, [0] * axes, groups)
    elif of_input:
        beyond = [
            size - ((count - 1) * s - 2 * p + d * (taps - 1) + 1)
            for size, count, taps, s, p, d in zip(
                x.shape[2:], gradient.shape[2:], weight.shape[2:], *windows, strict=True
            )
        ]
        gradients[0] = aten.convolution.default(gradient, weight, None, *windows, True, beyond, groups)
    if of_weight:
        read, by = (gradient, x) if transposed else (x, gradient)
        gradients[1] = _of_weight(read, by, list(weight.shape[2:]), windows, groups)
    if of_bias:
        gradients[2] = gradient.sum([0, *range(2, x.dim())])
    return tuple(gradients)


def _of_weight(
    x: Tensor, gradient: Tensor, taps: list[int], windows: tuple[list[int], list[int], list[int]], groups: int
) -> Tensor:
    """``[n, groups * i, positions]`` and ``[n, groups * o, fewer]`` -> ``[groups * o, i, taps]``."""
    stride, padding, dilation = windows
    images, channels = x.shape[0], x.shape[1] // groups
    by_channel = x.reshape(images, groups, channels, *x.shape[2:]).permute(2, 1, 0, *range(3, x.dim() + 1))
    by_channel = by_channel.reshape(channels, groups * images, *x.shape[2:])
    # Where no window begins at the last positions, there would be room for more shifts than there are taps.
    ends = [
        s * (count - 1) + d * (size - 1) - p + 1
        for count, size, s, p, d in zip(gradient.shape[2:], taps, stride, padding, dilation, strict=True)
    ]
    edges = [(p, end - size) for p, end, size in zip(padding, ends, x.shape[2:], strict=True)]
    by_channel, around = framed(by_channel, edges)
    products: Tensor = aten.convolution.default(
        by_channel, gradient.transpose(0, 1), None, dilation, around, stride, False, [0] * len(taps), groups
    )
    return products.transpose(0, 1)
