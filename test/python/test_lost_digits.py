"""Compiled: operations whose lowerings lose digits, signs or NaN. The rules themselves: test_rules.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import covan_mlir

WIDE = torch.tensor([2**31 - 1, -(2**31), 2**24 + 1, -(2**24) - 1, 0, 5])
TURNS = torch.tensor([0.0, 3.14159, -500.25, 1e4, -9.7e5, 1e7])
NANS = torch.tensor([[1.0, torch.nan, torch.inf], [-torch.inf, 2, torch.nan], [1, 3, 2]])
TENTHS = torch.tensor([0.3, -0.3, 0.7, 1.0, -torch.inf, 1e10])
HALVES = torch.tensor([1.0, -3, 6e4, 3e-5], dtype=torch.float16)

PROGRAMS: dict[str, tuple[Any, tuple[Tensor, ...], float]] = {
    "negated integers": (lambda x: (-x, -x.to(torch.int32)), (WIDE,), 0),
    "sine and cosine": (lambda x: (x.sin(), x.cos()), (TURNS,), 1e-6),
    "places of extremes": (lambda x: (*x.max(1), *x.min(0)), (NANS,), 0),
    "floor division": (lambda x, y: (x // y, torch.fmod(x, y), x // 0.1), (TENTHS, TENTHS.flip(0)), 0),
    "negative powers": (lambda x: (x**-1.0, x**-3, x**-1.5), (NANS * 0.5,), 1e-6),
    "inverse hyperbolic": (lambda x: (x.asinh(), x.acosh()), (TURNS,), 1e-6),
    "halves and numbers": (lambda x: (x * 1e-8, x / 2e5, x.double().mul(0.5).half()), (HALVES,), 0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_and_verifies(name: str) -> None:
    function, args, tolerance = PROGRAMS[name]
    exe = covan_mlir.compile_module(function, args)
    torch.testing.assert_close(exe(*args), function(*args), rtol=tolerance, atol=tolerance, equal_nan=True)
    assert exe.verify().outcome == "yes"
