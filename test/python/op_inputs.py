"""Arguments for the programs of `op_programs_math` and `op_programs_shape`: seeded, so that every run sees the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Program = tuple[Callable[..., Any], tuple[Any, ...]]
Group = dict[str, Program]

_rng = torch.Generator().manual_seed(0)


def r(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, generator=_rng).to(dtype)


def u(*shape: int) -> Tensor:
    """Uniformly distributed in (0.05, 0.95)."""
    return torch.rand(shape, generator=_rng) * 0.9 + 0.05


def n(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64) -> Tensor:
    """Whole numbers in [low, high)."""
    return torch.randint(low, high, shape, generator=_rng).to(dtype)


def b(*shape: int) -> Tensor:
    """Booleans."""
    return torch.rand(shape, generator=_rng) > 0.5


def module(layer: nn.Module) -> nn.Module:
    """A module with weights that do not depend on the order of the tests."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=_rng) * 0.3)
    return layer.eval()


def ints(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Dividends and divisors of both signs, multiples and zero dividends among them."""
    a = torch.tensor([7, -7, 7, -7, 6, -6, 0, 1, -1])
    return a.to(dtype), torch.tensor([3, 3, -3, -3, 3, -3, 5, -2, 2]).to(dtype)


SPECIAL = torch.tensor([0.0, -0.0, 1.5, -2.5, float("inf"), -float("inf"), float("nan"), 1e-30, 3e38])
HALVES = torch.tensor([-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.4999999, 8388609.0, -1e10])
