"""Compiled: operations whose lowerings lose digits, signs or NaN. The rules themselves: test_rules.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from limits import part
from torch import Tensor

import covan_mlir

WIDE = torch.tensor([2**31 - 1, -(2**31), 2**24 + 1, -(2**24) - 1, 0, 5])
TURNS = torch.tensor([0.0, 3.14159, -500.25, 1e4, -9.7e5, 1e7])
NANS = torch.tensor([[1.0, torch.nan, torch.inf], [-torch.inf, 2, torch.nan], [1, 3, 2]])
TENTHS = torch.tensor([0.3, -0.3, 0.7, 1.0, -torch.inf, 1e10])
HALVES = torch.tensor([1.0, -3, 6e4, 3e-5], dtype=torch.float16)
LONG = torch.arange(3000).mul(0.37).cos().add(1).reshape(1, 1, 50, 60)
BYTES = torch.tensor([[0, 1], [3, 200]], dtype=torch.uint8)
NEAR = torch.linspace(-9, 9, 23)
LARGE = torch.tensor([2**63 - 1, -(2**63), 2**53 + 1, 7, -7])

PROGRAMS: dict[str, tuple[Any, tuple[Tensor, ...], float]] = {
    "negated integers": (lambda x: (-x, -x.to(torch.int32)), (WIDE,), 0),
    "sine and cosine": (lambda x: (x.sin(), x.cos()), (TURNS,), 1e-6),
    "places of extremes": (lambda x: (*x.max(1), *x.min(0)), (NANS,), 0),
    "floor division": (lambda x, y: (x // y, torch.fmod(x, y), x // 0.1), (TENTHS, TENTHS.flip(0)), 0),
    "negative powers": (lambda x: (x**-1.0, x**-3, x**-1.5), (NANS * 0.5,), 1e-6),
    "inverse hyperbolic": (lambda x: (x.asinh(), x.acosh()), (TURNS,), 1e-6),
    "comparisons with numbers": (lambda x: (x == 0.3, x > 0.7, x <= 0.7, x.half() < 0.3, x.int() > 0.5), (TENTHS,), 0),
    "long sums of halves": (
        lambda x: (x.mean(3), x.mean(), F.l1_loss(x, x.flip(3)), F.adaptive_avg_pool2d(x, 1)),
        (LONG.half(),),
        1e-3,
    ),
    "means of windows of halves": (lambda x: F.avg_pool2d(x, 25), (LONG.half(),), 1e-3),
    "halves in several steps": (lambda x: (F.gelu(x - 3), F.elu(x - 1), x.sub(1).asin()), (LONG.bfloat16(),), 8e-3),
    "numbers to powers of halves": (lambda x: (1e4**x, 3.3**x, 1e-9**x, 1**x, 1e6**x), (NEAR.div(9).half(),), 1e-3),
    "bytes": (lambda x: (x.any(), x.all(1), x.any(0)), (BYTES,), 0),
    "whole quotients": (lambda x: (x // 3, x // -3, x.div(7, rounding_mode="floor")), (LARGE,), 0),
    "powers of 2 as factors": (lambda x, n: x.ldexp(n), (TENTHS, WIDE.clamp(-100, 100)), 0),
    "bounds that are NaN": (lambda x: (x.clamp(torch.nan, 2), x.clamp(0, torch.nan)), (TENTHS,), 0),
    "integers without a sign": (
        lambda x: (x.to(torch.uint16), x.to(torch.uint16).to(torch.int64) + 1, x.to(torch.uint64)),
        (WIDE,),
        0,
    ),
    "bits of one number": (lambda x: (x[0] * 2).view(torch.int32) + 1, (TENTHS,), 0),
    "floats of 8 bits": (
        lambda x: (x * 3).to(torch.float8_e5m2).float() + x.to(torch.float8_e4m3fn).float(),
        (NEAR,),
        0,
    ),
    "steps of each channel": (
        lambda x, scale: (
            torch.fake_quantize_per_channel_affine(x, scale, torch.tensor([1, -3], dtype=torch.int32), 0, -128, 127),
            torch.fake_quantize_per_channel_affine(x, scale, torch.tensor([0.3, -2.1]), 0, -128, 127),
        ),
        (torch.stack([TENTHS, TENTHS * 7]), torch.tensor([0.013, 0.11])),
        0,
    ),
    "kept by dropout": (lambda x: (*torch.native_dropout(x, 0.5, False), x + 1), (TENTHS,), 0),
    "halves and numbers": (lambda x: (x * 1e-8, x / 2e5, x.double().mul(0.5).half()), (HALVES,), 0),
}


@pytest.mark.parametrize("name", part(PROGRAMS, kept=list(PROGRAMS)[::2]))
def test_agrees_and_verifies(name: str) -> None:
    function, args, tolerance = PROGRAMS[name]
    exe = covan_mlir.compile_module(function, args)
    torch.testing.assert_close(exe(*args), function(*args), rtol=tolerance, atol=tolerance, equal_nan=True)
    assert exe.verify().outcome == "yes"


def test_remainders_of_doubles() -> None:
    """Of quotients that round up to whole numbers."""
    x = torch.tensor([0.3, 0.7, 1.0, -1.0, 2.5], dtype=torch.float64)

    def remainders(x: Tensor) -> tuple[Tensor, ...]:
        return x.fmod(0.1), x.fmod(0.001), x % 0.1

    exe = covan_mlir.compile_module(remainders, (x,))
    torch.testing.assert_close(exe(x), remainders(x), rtol=0, atol=0)
