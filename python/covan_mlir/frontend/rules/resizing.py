"""Pictures made larger or smaller, axis by axis: by whole factors without a look-up.

A place of the result lies between two of the input. torch's decomposition looks four of them up for each place of a
picture; here each axis is resized on its own, the last one first where pictures grow. By a whole factor, places repeat
with its period: what they take of the input is a broadcast, which needs no look-up at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.fx.experimental.symbolic_shapes import statically_known_true

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten
Sizes = Sequence[Any]
_FINEST = 10_000
"""Of the denominators that factors are taken to have: 2.3 is 23 / 10."""


def _factors(x: Tensor, output_size: Sizes | None, factors: Sequence[float | None]) -> list[int] | None:
    """By which whole number each axis grows, None where one does otherwise."""
    whole: list[int] = []
    for n, factor in enumerate(factors):
        size = x.shape[2 + n]
        if factor is None:
            places = output_size[n] if output_size is not None else None
            if not isinstance(size, int) or not isinstance(places, int) or not size or places % size:
                return None
            whole.append(places // size)
        elif float(factor).is_integer() and factor >= 1:
            whole.append(int(factor))
        else:
            return None
    return whole


def _scales(x: Tensor, factors: Sequence[float | None] | None) -> list[float | None]:
    return list(factors) if factors else [None] * (x.dim() - 2)


def _apart(x: Tensor, dim: int) -> Tensor:
    """With an axis of one position behind ``dim``."""
    return x.unsqueeze(dim + 1)


def _repeated(x: Tensor, factors: Sequence[int]) -> Tensor:
    """Each element, so many times along each axis but the first two."""
    sizes: list[Any] = [*x.shape[:2]]
    whole: list[Any] = [*x.shape[:2]]
    for n in reversed(range(len(factors))):
        x = _apart(x, 2 + n)
    for n, factor in enumerate(factors):
        size = x.shape[2 + 2 * n]
        sizes += [size, factor]
        whole.append(size * factor)
    return x.expand(sizes).clone(memory_format=torch.contiguous_format).reshape(whole)


def _nearest(x: Tensor, output_size: Sizes | None, factors: Sequence[float | None]) -> Any:
    whole = _factors(x, output_size, factors)
    return NotImplemented if whole is None or math.prod(whole) == 1 else _repeated(x, whole)


@rule(
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
    aten._upsample_nearest_exact1d.vec,
    aten._upsample_nearest_exact2d.vec,
    aten._upsample_nearest_exact3d.vec,
)
def nearest(x: Tensor, output_size: Any, scale_factors: Any) -> Any:
    return _nearest(x, output_size, _scales(x, scale_factors))


@rule(
    aten.upsample_nearest1d.default,
    aten.upsample_nearest2d.default,
    aten.upsample_nearest3d.default,
    aten._upsample_nearest_exact1d.default,
    aten._upsample_nearest_exact2d.default,
    aten._upsample_nearest_exact3d.default,
)
def nearest_to(x: Tensor, output_size: Any, *scales: float | None, **named: float | None) -> Any:
    return _nearest(x, output_size, _scales(x, (*scales, *named.values())))


@rule(aten.upsample_nearest2d.vec)
def nearest_by_fractions(x: Tensor, output_size: Any, scale_factors: Any) -> Any:
    """torch-mlir's lowering for factors that are no whole numbers does not verify."""
    if not scale_factors or all(float(factor).is_integer() for factor in scale_factors):
        return NotImplemented
    return decomposition_table[aten.upsample_nearest2d.vec](x, output_size, scale_factors)


def _between(x: Tensor, dim: int, factor: int) -> Tensor:
    """An axis with ``factor`` places in each x"""
    middle = (torch.arange(factor).to(torch.float64) + 0.5) / factor - 0.5
    shape = [1] * (x.dim() + 1)
    shape[dim + 1] = factor
    own = (1 - middle.abs()).to(x.dtype).reshape(shape)
    other = middle.abs().to(x.dtype).reshape(shape)
    size = x.shape[dim]
    longer = torch.cat([x.narrow(dim, 0, 1), x, x.narrow(dim, size - 1, 1)], dim)
    before, behind = (_apart(longer.narrow(dim, at, size), dim) for at in (0, 2))
    neighbour = torch.where((middle < 0).reshape(shape), before, behind)
    return (_apart(x, dim) * own + neighbour * other).flatten(dim, dim + 1)


def as_fraction(factor: float) -> Fraction | None:
    """A factor as the fraction that it was written as; None where it is none with few digits."""
    fraction = Fraction(factor).limit_denominator(_FINEST)
    return fraction if float(fraction) == factor else None


def _looked_up(x: Tensor, dim: int, places: Any, corners: bool, factor: Fraction | None) -> Tensor:
    """An axis with so many places, each between two elements that are looked up.

    Where they are is counted in whole numbers: ``at / whole`` elements from the first. So what lies on an element is
    there exactly, whatever the sizes are.
    """
    size: Any = x.shape[dim]  # as ``places``, perhaps known at run time only
    place = torch.arange(places)
    whole: Any
    if corners:
        at, whole = place * (size - 1), places - 1
        whole = whole if isinstance(whole, torch.SymInt) else max(whole, 1)
    elif factor is not None:
        at, whole = (2 * place + 1) * factor.denominator - factor.numerator, 2 * factor.numerator
    else:
        at, whole = (2 * place + 1) * size - places, 2 * places
    at = at.clamp(min=0)
    low = torch.div(at, whole, rounding_mode="floor").clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    shape: list[Any] = [1] * x.dim()
    shape[dim] = places
    share = ((at - low * whole).to(x.dtype) / whole).clamp(max=1).reshape(shape)
    result: Tensor = x.index_select(dim, low) * (1 - share) + x.index_select(dim, high) * share
    return result


def _linear(x: Tensor, output_size: Sizes | None, corners: bool, factors: Sequence[float | None]) -> Any:
    """Resizes all axes but the first two."""
    fractions = [None if factor is None else as_fraction(factor) for factor in factors]
    if not x.dtype.is_floating_point or any(
        f is not None and g is None for f, g in zip(factors, fractions, strict=True)
    ):
        return NotImplemented
    sizes = x.shape[2:]
    known = all(isinstance(size, int) for size in sizes)
    whole = None if corners or not known else _factors(x, output_size, factors)
    y = wide(x)
    if whole is not None:
        for n in reversed(range(len(whole))):
            y = y if whole[n] == 1 else _between(y, 2 + n, whole[n])
        return y.clone() if y is x else y.to(x.dtype)
    places = output_size or [
        size * (fraction or 1).numerator // (fraction or 1).denominator
        for size, fraction in zip(sizes, fractions, strict=True)
    ]
    # What makes the picture smaller comes first, then the last axis: of those behind it there is less to do.
    shrinks = [isinstance(m, int) and isinstance(n, int) and m < n for m, n in zip(places, sizes, strict=True)]
    for n in sorted(range(len(sizes)), key=lambda n: (not shrinks[n], -n)):
        if fractions[n] is not None or not statically_known_true(places[n] == sizes[n]):
            y = _looked_up(y, 2 + n, places[n], corners, fractions[n])
    return y.clone() if y is x else y.to(x.dtype)


@rule(aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec)
def linear(x: Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
    return _linear(x, output_size, align_corners, _scales(x, scale_factors))


@rule(aten.upsample_linear1d.default, aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default)
def linear_to(x: Tensor, output_size: Any, align_corners: bool, *scales: float | None, **named: float | None) -> Any:
    return _linear(x, output_size, align_corners, _scales(x, (*scales, *named.values())))
