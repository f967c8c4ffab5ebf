"""What differentiates the resizing of pictures: each element takes of the places that it was read for, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide
from covan_mlir.frontend.rules.resizing import as_fraction
from covan_mlir.frontend.rules.taps import Taps, gradient_along

aten = torch.ops.aten

Along = Callable[[int, int, float | None], Taps]
"""From the size of an axis, the places of the result along it and the factor, if one is given, to what each takes."""


def _gradient(gradient: Tensor, input_size: Sequence[Any], factors: Sequence[float | None], taps: Along) -> Any:
    sizes, places = input_size[2:], gradient.shape[2:]
    if not all(isinstance(size, int) for size in (*sizes, *places)):
        return NotImplemented
    factors = [*factors, *[None] * (len(sizes) - len(factors))]
    result = wide(gradient)
    # What grew first: there is less to do behind it.
    for n in sorted(range(len(sizes)), key=lambda n: sizes[n] / places[n]):
        along = taps(sizes[n], places[n], factors[n])
        if any(each != {place: 1.0} for place, each in enumerate(along)) or sizes[n] != places[n]:
            result = gradient_along(result, 2 + n, along, sizes[n])
    return result.clone() if result is gradient else result.to(gradient.dtype)


def _nearest(shift: float) -> Along:
    def taps(size: int, places: int, factor: float | None) -> Taps:
        """As eager computes them: in float32."""
        scale = np.float32(1 / factor if factor else np.float32(size) / np.float32(places))
        read = (np.floor((np.arange(places, dtype=np.float32) + np.float32(shift)) * scale)).astype(int)
        if not shift and size == places:
            read = np.arange(places)
        return [{min(int(element), size - 1): 1.0} for element in read]

    return taps


def _place(place: int, size: int, places: int, factor: float | None, corners: bool) -> Fraction:
    """Where a place of the result lies in the input, counted in elements from the middle of the first."""
    if corners:
        return Fraction(place * (size - 1), max(places - 1, 1))
    scale = Fraction(size, places) if factor is None else 1 / (as_fraction(factor) or Fraction(factor))
    return (place + Fraction(1, 2)) * scale - Fraction(1, 2)


def _linear(corners: bool) -> Along:
    def taps(size: int, places: int, factor: float | None) -> Taps:
        along = []
        for place in range(places):
            at = max(_place(place, size, places, factor, corners), Fraction(0))
            low = min(math.floor(at), size - 1)
            high, share = min(low + 1, size - 1), float(min(at - low, Fraction(1)))
            along.append({low: 1.0} if high == low else {low: 1 - share, high: share})
        return along

    return taps


def _cubic(corners: bool) -> Along:
    """R. Keys, Cubic convolution interpolation for digital image processing (1981), with a = -0.75."""
    a = -0.75

    def near(x: float) -> float:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: float) -> float:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    def taps(size: int, places: int, factor: float | None) -> Taps:
        along: list[dict[int, float]] = []
        for place in range(places):
            at = _place(place, size, places, factor, corners)
            low = math.floor(at)
            share = float(at - low)
            taken: dict[int, float] = {}
            for step, weight in enumerate((far(share + 1), near(share), near(1 - share), far(2 - share)), start=-1):
                element = min(max(low + step, 0), size - 1)
                taken[element] = taken.get(element, 0.0) + weight
            along.append(taken)
        return along

    return taps


@rule(
    aten.upsample_nearest1d_backward.default,
    aten.upsample_nearest2d_backward.default,
    aten.upsample_nearest3d_backward.default,
)
def nearest_gradient(
    gradient: Tensor, output_size: Any, input_size: Any, *scales: float | None, **named: float | None
) -> Any:
    return _gradient(gradient, input_size, (*scales, *named.values()), _nearest(0.0))


@rule(
    aten._upsample_nearest_exact1d_backward.default,
    aten._upsample_nearest_exact2d_backward.default,
    aten._upsample_nearest_exact3d_backward.default,
)
def nearest_exact_gradient(
    gradient: Tensor, output_size: Any, input_size: Any, *scales: float | None, **named: float | None
) -> Any:
    return _gradient(gradient, input_size, (*scales, *named.values()), _nearest(0.5))


@rule(
    aten.upsample_linear1d_backward.default,
    aten.upsample_bilinear2d_backward.default,
    aten.upsample_trilinear3d_backward.default,
)
def linear_gradient(
    gradient: Tensor,
    output_size: Any,
    input_size: Any,
    align_corners: bool,
    *scales: float | None,
    **named: float | None,
) -> Any:
    return _gradient(gradient, input_size, (*scales, *named.values()), _linear(align_corners))


@rule(aten.upsample_bicubic2d_backward.default)
def bicubic_gradient(
    gradient: Tensor,
    output_size: Any,
    input_size: Any,
    align_corners: bool,
    *scales: float | None,
    **named: float | None,
) -> Any:
    return _gradient(gradient, input_size, (*scales, *named.values()), _cubic(align_corners))
