"""Rules that are loops of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop_op


def looped(
    unfinished: Callable[..., Tensor],
    onwards: Callable[..., tuple[Tensor, ...]],
    start: tuple[Tensor, ...],
    given: tuple[Tensor, ...] = (),
) -> tuple[Tensor, ...]:
    """``torch.while_loop`` where torch decomposes. Tensors from outside have to be ``given``, and come last; a counter
    of fractions needs an axis: torch takes one without for a number that it has to know."""
    loop: Any = while_loop_op
    carried: tuple[Tensor, ...] = loop(unfinished, onwards, start, given)
    return carried


def elementwise(
    function: Callable[[Tensor, Tensor], Tensor], first: Tensor, second: Tensor, dtype: torch.dtype
) -> Tensor:
    """A function of two rows of float64, for tensors of any shapes and types; the result has ``dtype``.

    IREE has no lowering for loops that carry single numbers: one is computed twice.
    """
    # Before they are float64: it fills no tensors with a number of 64 bits that it does not know.
    first, second = torch.broadcast_tensors(first, second)  # type: ignore[no-untyped-call]
    if not first.numel():
        return first.to(dtype)
    rows = [side.to(torch.float64).reshape(-1) for side in (first, second)]
    if first.numel() == 1:
        rows = [torch.cat([row, row]) for row in rows]
    return function(rows[0], rows[1])[: first.numel()].reshape(first.shape).to(dtype)
