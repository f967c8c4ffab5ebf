"""Numbers sought in sorted rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_COMPARED = 64
"""Elements of a row up to which a number is compared with each of them."""


def leading(
    rows: Tensor, start: Tensor | int, size: int, shape: torch.Size, precedes: Callable[[Tensor], Tensor]
) -> Tensor:
    """How many of the first of ``rows[..., start : start + size]`` precede what is sought, by binary search.

    Args:
        rows: `[..., n]`.
        start: for each number that is sought, where its row begins.
        shape: that of the numbers that are sought, with the dimensions of ``rows`` but the last one first.
        precedes: tells of one element for each number whether it precedes it. Behind one that does not, none does.

    Returns:
        integers of that shape.
    """
    count = torch.zeros(shape, dtype=torch.int64)
    step = 1 << (size.bit_length() - 1)
    while step:
        more = count + step
        at = start + torch.clamp(more, max=size) - 1
        there = torch.gather(rows, -1, at.reshape(*rows.shape[:-1], -1)).reshape(shape)
        count = torch.where(precedes(there) & (more <= size), more, count)
        step //= 2
    return count


@rule(aten.searchsorted.Tensor)
def searchsorted(
    boundaries: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """By counting the boundaries before each number if there are few, else by binary search."""
    if sorter is not None:
        boundaries = torch.gather(boundaries, -1, sorter)
    behind = torch.gt if right or side == "right" else torch.ge
    size = boundaries.shape[-1]
    if isinstance(size, int) and size > _COMPARED:
        before = leading(boundaries, 0, size, x.shape, lambda there: ~behind(there, x))
        return before.to(torch.int32 if out_int32 else torch.int64)
    edges, sought = boundaries.unsqueeze(-2), x.unsqueeze(-1)
    if boundaries.dim() == 1:
        edges = boundaries.reshape([1] * x.dim() + [-1])
    return (~behind(edges, sought)).sum(-1).to(torch.int32 if out_int32 else torch.int64)


@rule(aten.searchsorted.Scalar)
def searchsorted_scalar(boundaries: Tensor, x: Any, **named: Any) -> Tensor:
    return searchsorted(boundaries, torch.full((), x, dtype=torch.result_type(boundaries, x)), **named)


@rule(aten.bucketize.Tensor)
def bucketize(x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@rule(aten.bucketize.Scalar)
def bucketize_scalar(x: Any, boundaries: Tensor, **named: Any) -> Tensor:
    return searchsorted_scalar(boundaries, x, **named)
