"""Pictures made larger or smaller, axis by axis: by whole factors without a look-up.

A place of the result lies between two of the input. torch's decomposition looks four of them up for each place of a
picture; here each axis is resized on its own, the last one first where pictures grow. By a whole factor, places repeat
with its period: what they take of the input is a broadcast, which needs no look-up at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten
Sizes = Sequence[int | torch.SymInt]


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


def _looked_up(x: Tensor, dim: int, places: int, corners: bool, factor: float | None) -> Tensor:
    """An axis with so many places, each between two elements that are looked up."""
    size = x.shape[dim]
    at = torch.arange(places).to(torch.float64)
    if corners:
        at = at * ((size - 1) / (places - 1) if places > 1 else 0.0)
    else:
        at = ((at + 0.5) * (1 / factor if factor else size / places) - 0.5).clamp(min=0)
    low = at.floor().clamp(max=size - 1)
    shape = [1] * x.dim()
    shape[dim] = places
    share = (at - low).clamp(max=1).to(x.dtype).reshape(shape)
    first, second = low.to(torch.int64), (low + 1).clamp(max=size - 1).to(torch.int64)
    return x.index_select(dim, first) * (1 - share) + x.index_select(dim, second) * share


def _linear(x: Tensor, output_size: Sizes | None, corners: bool, factors: Sequence[float | None]) -> Any:
    """Resizes all axes but the first two, whose sizes are known."""
    if not x.dtype.is_floating_point or not all(isinstance(size, int) for size in x.shape[2:]):
        return NotImplemented
    whole = None if corners else _factors(x, output_size, factors)
    y = wide(x)
    if whole is not None:
        for n in reversed(range(len(whole))):
            y = y if whole[n] == 1 else _between(y, 2 + n, whole[n])
        return y.clone() if y is x else y.to(x.dtype)
    sizes = [int(size) for size in x.shape[2:]]
    if output_size is None:
        output_size = [math.floor(size * (factor or 1.0)) for size, factor in zip(sizes, factors, strict=True)]
    known = [places for places in output_size if isinstance(places, int)]
    if len(known) < len(sizes):
        return NotImplemented
    # What makes the picture smaller comes first, then the last axis: of those behind it there is less to do.
    grows = {n: known[n] / sizes[n] for n in range(len(sizes)) if known[n] != sizes[n] or factors[n] not in (None, 1.0)}
    for n in sorted(grows, key=lambda n: (grows[n] >= 1, -n)):
        y = _looked_up(y, 2 + n, known[n], corners, factors[n])
    return y.clone() if y is x else y.to(x.dtype)


@rule(aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec)
def linear(x: Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
    return _linear(x, output_size, align_corners, _scales(x, scale_factors))


@rule(aten.upsample_linear1d.default, aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default)
def linear_to(x: Tensor, output_size: Any, align_corners: bool, *scales: float | None, **named: float | None) -> Any:
    return _linear(x, output_size, align_corners, _scales(x, (*scales, *named.values())))
