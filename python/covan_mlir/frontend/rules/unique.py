"""Values that are there, each once: the first of each run of equal ones, of sorted elements or of neighbours; of an
axis, its slices, sorted by their first elements that differ."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_COMPARED = 1 << 22
"""Elements that slices are compared by, each with each, at most."""


@rule(aten._unique2.default)
def unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """In order, whether that is asked for or not."""
    if not _known(x):
        return NotImplemented
    values, places = torch.sort(x.reshape(-1), stable=True)
    first, number, counts = _runs(values, return_inverse, return_counts)
    if return_inverse:
        number = torch.zeros_like(number).scatter(0, places, number).reshape(x.shape)
    return first, number, counts


@rule(aten._unique.default)
def unique_values(x: Tensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    result = unique(x, sorted, return_inverse)
    return result if result is NotImplemented else result[:2]


@rule(aten.unique_consecutive.default)
def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if not _known(x):
        return NotImplemented
    slices = x.reshape(-1) if dim is None else torch.movedim(x, dim, 0)
    first, number, counts = _runs(slices, return_inverse, return_counts)
    if dim is None:
        return first, number.reshape(x.shape) if return_inverse else number, counts
    return torch.movedim(first, 0, dim), number, counts


@rule(aten.unique_dim.default)
def unique_dim(
    x: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    """A slice's place is the number of those before it, as each compared with each tells."""
    if not _known(x) or x.dim() == 0 or x.shape[dim] * x.numel() > _COMPARED:
        return NotImplemented
    slices = torch.movedim(x, dim, 0)
    if slices.shape[0] == 1:
        first, number, counts = _runs(slices, return_inverse, return_counts)
        return torch.movedim(first, 0, dim), number, counts
    rows = slices.reshape(slices.shape[0], -1)
    here, there = rows.unsqueeze(1), rows.unsqueeze(0)
    differs = here != there
    decides = differs.to(torch.int64).argmax(-1, keepdim=True)
    larger = torch.gather(there < here, -1, decides).squeeze(-1)
    step = torch.arange(rows.shape[0])
    earlier = ~differs.any(-1) & (step.unsqueeze(0) < step.unsqueeze(1))
    rank = (larger | earlier).sum(1)
    places = torch.zeros_like(rank).scatter(0, rank, step)
    first, number, counts = _runs(slices.index_select(0, places), return_inverse, return_counts)
    return torch.movedim(first, 0, dim), number.index_select(0, rank) if return_inverse else number, counts


def _known(x: Tensor) -> bool:
    """Whether a tensor has elements, and sizes that are known."""
    return all(isinstance(length, int) for length in x.shape) and math.prod(x.shape) > 0


def _runs(slices: Tensor, numbered: bool, counted: bool) -> tuple[Tensor, Tensor, Tensor]:
    """-> (the first slice of each run of equal ones along the first axis; if asked for, for each slice the number of
    its run; if asked for, how many each has). A NaN is no other's equal."""
    none = torch.empty(0, dtype=torch.int64)
    if slices.shape[0] == 1:  # one run, whatever it holds
        one = torch.ones(1, dtype=torch.int64)
        return slices, one - 1 if numbered else none, one if counted else none
    other = slices[1:] != slices[:-1]
    if slices.dim() > 1:
        other = other.flatten(1).any(1)
    begins = torch.cat([torch.ones(1, dtype=torch.bool), other])
    number = begins.to(torch.int64).cumsum(0) - 1
    places = torch.nonzero(begins).squeeze(1)
    first = torch.index_select(slices, 0, places)
    counts = none
    if counted:
        lengths = torch.zeros_like(number).scatter_add(0, number, torch.ones_like(number))
        counts = torch.index_select(lengths, 0, torch.index_select(number, 0, places))
    return first, number if numbered else none, counts
