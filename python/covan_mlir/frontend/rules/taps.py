"""Sums of a few elements each along an axis, which ones is known beforehand: what differentiates resizing, padding and
the means of windows.

Such an operation gives at each place of an axis a weighted sum of elements of its input. Its gradient goes the other
way: each element takes of the places that it was read for. Those are looked up side by side, as many for each element
as for the one that was read most often, and summed: nothing is written twice, so that the order of sums is always the
same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Taps = Sequence[Mapping[int, float]]
"""For each place of the result along an axis: the elements of the input that it takes, with their weights."""


def reversed_taps(taps: Taps, size: int) -> list[dict[int, float]]:
    """For each of ``size`` elements of the input: the places that take it, with the weights."""
    back: list[dict[int, float]] = [{} for _ in range(size)]
    for place, taken in enumerate(taps):
        for element, weight in taken.items():
            if weight:
                back[element][place] = weight
    return back


def gathered(x: Tensor, dim: int, taps: Taps) -> Tensor:
    """What the taps take along an axis of ``x``: as many places as there are taps."""
    size, most = x.shape[dim], max((len(each) for each in taps), default=0)
    shape = [*x.shape[:dim], len(taps), *x.shape[dim + 1 :]]
    if not most or not x.numel():
        return torch.zeros(shape, dtype=x.dtype)
    places = [[*each, *[0] * (most - len(each))] for each in taps]
    weights = [[*each.values(), *[0.0] * (most - len(each))] for each in taps]
    beside = [*shape[: dim + 1], most, *shape[dim + 1 :]]
    flat = [place for each in places for place in each]
    values = x if flat == list(range(size)) else x.index_select(dim, torch.as_tensor(flat))
    values = values.reshape(beside)
    factors = {weight for each in weights for weight in each}
    if len(factors) > 1:
        column = torch.as_tensor(weights, dtype=x.dtype)
        values = values * column.reshape([*column.shape, *[1] * (x.dim() - dim - 1)])
    summed = values.sum(dim + 1) if most > 1 else values.squeeze(dim + 1)
    (factor,) = factors if len(factors) == 1 else (1.0,)
    return summed if factor == 1 else summed * factor


def gradient_along(gradient: Tensor, dim: int, taps: Taps, size: int) -> Tensor:
    """The gradient of an input that has ``size`` elements along an axis, from that of what the taps took of it."""
    return gathered(gradient, dim, reversed_taps(taps, size))
