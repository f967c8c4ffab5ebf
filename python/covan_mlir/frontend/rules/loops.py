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
    function: Callable[[Tensor, Tensor], Tensor],
    first: Tensor,
    second: Tensor,
    dtype: torch.dtype,
    within: torch.dtype = torch.float64,
) -> Tensor:
    """A function of two rows of type ``within``, for tensors of any shapes and types; the result has ``dtype``."""
    # Before they are ``within``: it fills no tensors with a number of 64 bits that it does not know.
    first, second = torch.broadcast_tensors(first, second)  # type: ignore[no-untyped-call]  # torch's
    if not first.numel():
        return first.to(dtype)
    rows = (side.to(within).reshape(-1) for side in (first, second))
    return function(*rows).reshape(first.shape).to(dtype)
