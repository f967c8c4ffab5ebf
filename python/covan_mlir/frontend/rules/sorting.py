"""Sorting, by places: where the elements of a sorted axis stand. Equal elements keep their order.

Short axes are sorted by counting for each element those before it. Long ones are cut into runs of that kind, which are
merged eight at a time: an element's place is its place in its own run and, by binary search, the number of elements of
the others before it. IREE's own sort works in place and forgets to copy: two sorts that share their (equal)
index tensors spoil each other's.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from covan_mlir.frontend.rules.ordering import has_one, ordered, the_one
from covan_mlir.frontend.rules.registry import rule
from covan_mlir.frontend.rules.searching import leading

aten = torch.ops.aten

_COUNTED = 128
"""Elements up to which each is compared with each."""
_MANY = 16
"""Elements for each that is wanted, from which on most are ruled out before the others are compared."""
_WAYS = 8
"""Runs that become one at once: with fewer there are more kernels, with more there is more to search."""


def _places(x: Tensor, dim: int, descending: bool, count: Any) -> Tensor:
    """Where the first ``count`` elements of the sorted axis stand, equal ones in their old order."""
    x = torch.movedim(x, dim, -1)
    length = x.shape[-1]
    key = _key(x, descending)
    if isinstance(count, int) and isinstance(length, int) and 0 < _MANY * count <= length:
        likely = _likely(key, count)
        fits = likely < length
        some = torch.where(fits, torch.gather(key, -1, torch.where(fits, likely, 0)), _end(key.dtype))
        places = torch.gather(likely, -1, _sorted(some).narrow(-1, 0, count))
    elif isinstance(length, int) and length > _COUNTED:
        places = _sorted(key).narrow(-1, 0, count)
    else:
        places = _first(_ranks(key), count)
    return torch.movedim(places, -1, dim)


def _key(x: Tensor, descending: bool) -> Tensor:
    """Numbers that ascend in the order that is asked for, and that can be compared."""
    if x.dtype.is_floating_point:
        key = ordered(x, torch.float64)
        return -key if descending else key
    key = x.to(torch.int32) if x.dtype in (torch.bool, torch.uint8) else x
    return -1 - key if descending else key  # unlike -key, of the least number, too


def _end(dtype: torch.dtype) -> float | int:
    """A number that no other comes after."""
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def _ranks(key: Tensor) -> Tensor:
    """How many elements of the last axis come before each."""
    here, there = key.unsqueeze(-1), key.unsqueeze(-2)
    step = torch.arange(key.shape[-1])
    return ((there < here) | ((there == here) & (step.unsqueeze(0) < step.unsqueeze(1)))).sum(-1)


def _first(rank: Tensor, count: Any) -> Tensor:
    """Where the elements of the first ranks stand."""
    fits = rank.unsqueeze(-2) == torch.arange(count).unsqueeze(-1)
    return torch.where(fits, torch.arange(rank.shape[-1]), 0).sum(-1)


def _sorted(key: Tensor) -> Tensor:
    """Where the elements of the sorted last axis stand."""
    length = key.shape[-1]
    groups = 1
    while -(-length // groups) > _COUNTED:
        groups *= _WAYS
    run = -(-length // groups)
    key = _longer(key, groups * run)
    runs = key.reshape(*key.shape[:-1], groups, run)
    places = _first(_ranks(runs), run) + (torch.arange(groups) * run).unsqueeze(-1)
    while groups > 1:
        runs = torch.gather(key, -1, places.flatten(-2)).reshape(*key.shape[:-1], groups // _WAYS, _WAYS, run)
        groups, run = groups // _WAYS, _WAYS * run
        places = places.reshape(*key.shape[:-1], groups, run)
        places = _moved(places, _merged(runs).flatten(-2))
    return places.flatten(-2).narrow(-1, 0, length)


def _merged(runs: Tensor) -> Tensor:
    """`[..., ways, run]` sorted rows -> the place of each element among those of all rows."""
    ways, run = runs.shape[-2:]
    row = torch.arange(ways).reshape(-1, 1, 1)
    other = (row + torch.arange(1, ways)) % ways
    sought, earlier = runs.unsqueeze(-1), other < row

    def precedes(there: Tensor) -> Tensor:
        return (there < sought) | ((there == sought) & earlier)

    shape = torch.Size((*runs.shape, ways - 1))
    return torch.arange(run) + leading(runs.flatten(-2), other * run, run, shape, precedes).sum(-1)


def _moved(x: Tensor, places: Tensor) -> Tensor:
    """The elements of each row, at other places of it: as one row, for which a scatter needs one number an element."""
    length = x.shape[-1]
    rows = x.numel() // length
    first = (torch.arange(rows) * length).unsqueeze(-1)
    to = (first + places.reshape(rows, length)).flatten()
    return torch.zeros_like(to).scatter(0, to, x.flatten()).reshape(x.shape)


def _longer(key: Tensor, length: int) -> Tensor:
    """With elements behind all others of the last axis, so that it has ``length``."""
    more = length - key.shape[-1]
    return aten.constant_pad_nd.default(key, [0, more], _end(key.dtype)) if more else key


def _likely(key: Tensor, count: int) -> Tensor:
    """Where elements stand among which the first ``count`` of the last axis are, in their old order; perhaps beyond it.

    Of blocks, those that have the first ``count`` of all blocks' own first elements: an element of another block comes
    after one of each of these. With blocks of ``sqrt(n / count)``, blocks and elements that are left are as many.
    """
    size = math.isqrt(key.shape[-1] // count)
    blocks = -(-key.shape[-1] // size)
    rows = _longer(key, blocks * size).reshape(*key.shape[:-1], blocks, size)
    chosen = (_ranks(rows.amin(-1)) < count).to(torch.int64)
    step = torch.arange(blocks)
    before = (chosen.unsqueeze(-2) * (step.unsqueeze(0) < step.unsqueeze(1))).sum(-1)
    block = _first(torch.where(chosen != 0, before, blocks), count)
    return (block.unsqueeze(-1) * size + torch.arange(size)).flatten(-2)


@rule(aten.sort.default)
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    if has_one(x, dim):
        return the_one(x, dim)
    places = _places(x, dim, descending, x.shape[dim])
    return torch.gather(x, dim, places), places


@rule(aten.sort.stable)
def sort_stable(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return aten.sort.default(x, dim, descending)


@rule(aten.topk.default)
def topk(x: Tensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if has_one(x, dim) and statically_known_true(k == 1):
        return the_one(x, dim)
    places = _places(x, dim, largest, k)
    return torch.gather(x, dim, places), places
