"""Scans, and whatever depends on the order of numbers, NaN included: torch takes it for the greatest and the least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import statically_known_true

from covan_mlir.frontend.rules.registry import plain, rule, wide

aten = torch.ops.aten


def _scan(parts: tuple[Tensor, ...], dim: int, merge: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Inclusive scan by doubling: log2(n) steps over the whole axis."""
    size = parts[0].shape[dim]
    step = 1
    while step < size:
        head = tuple(p.narrow(dim, 0, step) for p in parts)
        before = tuple(p.narrow(dim, 0, size - step) for p in parts)
        after = tuple(p.narrow(dim, step, size - step) for p in parts)
        parts = tuple(torch.cat([h, m], dim) for h, m in zip(head, merge(before, after), strict=True))
        step *= 2
    return parts


def _static(x: Tensor, dim: int) -> bool:
    return x.dim() == 0 or isinstance(x.shape[dim], int)


def has_one(x: Tensor, dim: int | None) -> bool:
    """Whether there is nothing to order along an axis, or in all of a tensor: one element, whatever it is."""
    return x.dim() == 0 or statically_known_true((x.numel() if dim is None else x.shape[dim]) == 1)


def the_one(x: Tensor, dim: int | None, keepdim: bool = True) -> tuple[Tensor, Tensor]:
    """The only elements along an axis, and their places: constants, no function of the elements."""
    gone: list[int] = [] if keepdim else list(range(x.dim())) if dim is None else [dim]
    values = x.squeeze(gone) if gone else x.clone()
    return values, torch.zeros_like(values, dtype=torch.int64)


def _extreme(x: Tensor, dim: int, later: Callable[[Tensor, Tensor], Tensor]) -> Any:
    if has_one(x, dim):
        return the_one(x, dim)
    if not _static(x, dim):
        return NotImplemented
    shape = [1] * x.dim()
    shape[dim] = -1
    places = torch.arange(x.shape[dim]).reshape(shape).expand(x.shape)

    def merge(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        takes = later(b[0], a[0])
        if x.dtype.is_floating_point:
            takes = torch.isnan(b[0]) | (~torch.isnan(a[0]) & takes)
        return torch.where(takes, b[0], a[0]), torch.where(takes, b[1], a[1])

    return _scan((x, places), dim, merge)


@rule(aten.cummax.default)
def cummax(x: Tensor, dim: int) -> Any:
    return _extreme(x, dim, torch.ge)


@rule(aten.cummin.default)
def cummin(x: Tensor, dim: int) -> Any:
    return _extreme(x, dim, torch.le)


@rule(aten.cumprod.default)
def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    if not _static(x, dim):
        return NotImplemented
    dtype = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    x = x.to(dtype)
    return x if x.dim() == 0 else _scan((wide(x) if dtype.is_floating_point else x,), dim, _times)[0].to(dtype)


@rule(aten.cumsum.default)
def cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Half precision through float32, as in eager: rounded once."""
    dtype = dtype or x.dtype
    if dtype not in (torch.float16, torch.bfloat16):
        return NotImplemented
    return torch.cumsum(x.to(torch.float32), dim).to(dtype)


def _times(a: tuple[Tensor], b: tuple[Tensor]) -> tuple[Tensor]:
    return (a[0] * b[0],)


@rule(aten.logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Any:
    # torch-mlir sums the exponentials themselves, which overflow.
    if x.dim() == 0:
        return x.clone()
    if not _static(x, dim):
        return NotImplemented

    def merge(a: tuple[Tensor], b: tuple[Tensor]) -> tuple[Tensor]:
        big, small = torch.maximum(a[0], b[0]), torch.minimum(a[0], b[0])
        total = big + torch.log1p(torch.exp(small - big))
        return (torch.where(small == big, big + 0.6931471805599453, total),)  # two infinities have no difference

    return _scan((wide(x),), dim, merge)[0].to(x.dtype)


def ordered(x: Tensor, dtype: torch.dtype, *, nan_first: bool = False) -> Tensor:
    """Numbers in the order of ``x`` that no comparison is undefined for: NaN stands beyond infinity.

    The range of a wider ``dtype`` makes room for that. Without room, infinity and the greatest number become one.
    """
    y = x.to(dtype)
    beyond, far = (-torch.inf, -torch.finfo(dtype).max) if nan_first else (torch.inf, torch.finfo(dtype).max)
    return torch.where(torch.isnan(y), beyond, torch.where(y == beyond, far, y))


@rule(aten.argmax.default)
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    if has_one(x, dim):
        return the_one(x, dim, keepdim)[1]
    if not x.dtype.is_floating_point:
        return NotImplemented
    return plain(aten.argmax.default, ordered(x, torch.float64), dim, keepdim)


@rule(aten.argmin.default)
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    if has_one(x, dim):
        return the_one(x, dim, keepdim)[1]
    if not x.dtype.is_floating_point:
        return NotImplemented
    return plain(aten.argmin.default, ordered(x, torch.float64, nan_first=True), dim, keepdim)


def _greatest(op: OpOverload, x: Tensor, dim: Sequence[int], keepdim: bool) -> Any:
    """The greatest or least of one element is that: the compilers leave nothing of the reduction."""
    axes = {axis % x.dim() for axis in dim} if dim else set(range(x.dim()))
    if not all(statically_known_true(x.shape[axis] == 1) for axis in axes):
        return plain(op, x, dim, keepdim)
    return x.clone() if keepdim else x.squeeze(sorted(axes))


@rule(aten.amax.default)
def amax(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    return _greatest(aten.amax.default, x, dim, keepdim)


@rule(aten.amin.default)
def amin(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    return _greatest(aten.amin.default, x, dim, keepdim)


@rule(aten.max.default)
def max_of_all(x: Tensor) -> Any:
    return x.reshape([]) if has_one(x, None) else NotImplemented


@rule(aten.min.default)
def min_of_all(x: Tensor) -> Any:
    return x.reshape([]) if has_one(x, None) else NotImplemented


@rule(aten.max.dim)
def max_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """By two reductions, of which most programs want one; torch-mlir's own knows no place of a NaN."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    return torch.amax(x, dim, keepdim), torch.argmax(x, dim, keepdim)


@rule(aten.min.dim)
def min_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    return torch.amin(x, dim, keepdim), torch.argmin(x, dim, keepdim)


def _pick(x: Tensor, dim: int, at: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The element at rank ``at`` along ``dim``; a tensor of ranks keeps ``dim``."""
    values, places = aten.sort.default(x, dim)
    if not isinstance(at, Tensor):
        values, places = values.narrow(dim, at, 1), places.narrow(dim, at, 1)
    else:
        values, places = torch.gather(values, dim, at), torch.gather(places, dim, at)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


@rule(aten.kthvalue.default)
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if has_one(x, dim):
        return the_one(x, dim, keepdim)
    return _pick(x, dim, k - 1, keepdim)


def _median(x: Tensor, dim: int, keepdim: bool, skip: bool) -> Any:
    if has_one(x, dim):
        return the_one(x, dim, keepdim)
    size = x.shape[dim]
    if not x.dtype.is_floating_point:
        return _pick(x, dim, (size - 1) // 2, keepdim)
    bad = torch.isnan(x).sum(dim, keepdim=True)  # sorting puts them last
    if skip:
        return _pick(x, dim, (size - bad - 1).clamp(min=0) // 2, keepdim)
    middle = torch.full_like(bad, (size - 1) // 2)
    return _pick(x, dim, torch.where(bad > 0, size - bad, middle), keepdim)


@rule(aten.median.dim)
def median_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _median(x, dim, keepdim, skip=False)


@rule(aten.nanmedian.dim)
def nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _median(x, dim, keepdim, skip=True)


@rule(aten.median.default)
def median(x: Tensor) -> Any:
    return _median(x.reshape(-1), 0, False, skip=False)[0]


@rule(aten.nanmedian.default)
def nanmedian(x: Tensor) -> Any:
    return _median(x.reshape(-1), 0, False, skip=True)[0]


@rule(aten.histc.default)
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:  # torch's names
    """Each number against each bin; without limits, those of the data."""
    values = wide(x).reshape(-1)
    if not isinstance(values.shape[0], int) or not values.shape[0]:
        return NotImplemented
    low, high = torch.full((), min, dtype=values.dtype), torch.full((), max, dtype=values.dtype)
    if min == max:
        low, high = values.amin(), values.amax()
    alone = low == high
    low, high = torch.where(alone, low - 1, low), torch.where(alone, high + 1, high)
    places = ((values - low) * bins / (high - low)).to(torch.int64).clamp(max=bins - 1)
    inside = (values >= low) & (values <= high)
    hits = (places.unsqueeze(1) == torch.arange(bins)) & inside.unsqueeze(1)
    return hits.sum(0).to(x.dtype)


@rule(aten.mode.default)
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the most frequent numbers, and where the last of it stands: each element against each."""
    if has_one(x, dim):
        return the_one(x, dim, keepdim)
    along = torch.movedim(x, dim, -1)
    key = along.to(torch.int32) if x.dtype is torch.bool else along
    alike = (key.unsqueeze(-1) == key.unsqueeze(-2)).sum(-1)
    most = alike == alike.amax(-1, keepdim=True)
    ahead = (key.unsqueeze(-1) > key.unsqueeze(-2)).sum(-1)  # how many are less
    least = torch.where(most, ahead, x.shape[dim]).amin(-1, keepdim=True)
    step = torch.arange(x.shape[dim])
    place = torch.where(most & (ahead == least), step, 0).amax(-1, keepdim=True)
    values, places = (torch.movedim(part, -1, dim) for part in (torch.gather(along, -1, place), place))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))
