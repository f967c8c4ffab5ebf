"""What differentiates padding with elements of the input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide
from covan_mlir.frontend.rules.taps import gradient_along

aten = torch.ops.aten


def _gradient(gradient: Tensor, x: Tensor, padding: list[int], mirrored: bool) -> Any:
    """Axis by axis, the last one first, as the padding is listed."""
    sizes = x.shape[-len(padding) // 2 :]
    if not all(isinstance(size, int) for size in (*sizes, *padding)):
        return NotImplemented
    result = wide(gradient)
    for n, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), start=1):
        if before or after:
            dim, size = x.dim() - n, x.shape[-n]
            read = [_read(place, size, mirrored) for place in range(-before, size + after)]
            result = gradient_along(result, dim, [{element: 1.0} for element in read], size)
    return result.clone() if result is gradient else result.to(gradient.dtype)


def _read(place: int, size: int, mirrored: bool) -> int:
    """The element that stands at a place; beyond the ends of what is padded, places are negative or too large."""
    if mirrored:
        return size - 1 - abs(size - 1 - abs(place))
    return min(max(place, 0), size - 1)


@rule(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_gradient(gradient: Tensor, x: Tensor, padding: list[int]) -> Any:
    return _gradient(gradient, x, padding, mirrored=False)


@rule(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_gradient(gradient: Tensor, x: Tensor, padding: list[int]) -> Any:
    return _gradient(gradient, x, padding, mirrored=True)
