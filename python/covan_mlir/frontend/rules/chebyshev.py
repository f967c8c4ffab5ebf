"""Chebyshev polynomials of all four kinds, of a degree that is a tensor: by angles, hyperbolic ones beyond [-1, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten


def _first(angle: Tensor, n: Tensor, waves: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    return waves(n * angle)[1]


def _second(angle: Tensor, n: Tensor, waves: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    return torch.where(angle == 0, n + 1, waves((n + 1) * angle)[0] / waves(angle)[0])


def _third(angle: Tensor, n: Tensor, waves: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    return waves((n + 0.5) * angle)[1] / waves(angle / 2)[1]


def _fourth(angle: Tensor, n: Tensor, waves: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    return torch.where(angle == 0, 2 * n + 1, waves((n + 0.5) * angle)[0] / waves(angle / 2)[0])


def _circular(angle: Tensor) -> tuple[Tensor, Tensor]:
    return angle.sin(), angle.cos()


def _hyperbolic(angle: Tensor) -> tuple[Tensor, Tensor]:
    up, down = torch.exp(angle), torch.exp(-angle)
    return torch.expm1(2 * angle) * down / 2, (up + down) / 2


_KINDS = {"t": (_first, _first), "u": (_second, _second), "v": (_third, _fourth), "w": (_fourth, _third)}
"""By letter, the kind for positive places, and the one that it is, but for the sign, at their opposites."""


def _polynomial(kind: str, x: Tensor, n: Tensor) -> Tensor:
    size, n = x.abs(), torch.trunc(n)
    odd = n - 2 * torch.floor(n / 2) != 0
    # Half angles: what is near one loses no digits.
    near = 2 * torch.asin(torch.sqrt((1 - size.clamp(max=1)) / 2))
    far = 2 * torch.asinh(torch.sqrt((size.clamp(min=1) - 1) / 2))
    here, there = (torch.where(size <= 1, form(near, n, _circular), form(far, n, _hyperbolic)) for form in _KINDS[kind])
    value = torch.where(x < 0, torch.where(odd, -there, there), here)
    value = torch.where(n == 0, 1.0, value)
    return torch.where(n < 0, 0.0, torch.where(x.isnan(), math.nan, value))


def _register(kind: str, packet: Any, *, shifted: bool) -> None:
    def chebyshev(x: Any, n: Any) -> Tensor:
        dtype = torch.result_type(x, n)
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        at, degree = (
            side.to(torch.float64) if isinstance(side, Tensor) else torch.scalar_tensor(side, dtype=torch.float64)
            for side in (x, n)
        )
        return _polynomial(kind, 2 * at - 1 if shifted else at, degree).to(dtype)

    rule(packet.default, packet.x_scalar, packet.n_scalar)(chebyshev)


for _kind in _KINDS:
    _register(_kind, getattr(aten, f"special_chebyshev_polynomial_{_kind}"), shifted=False)
    _register(_kind, getattr(aten, f"special_shifted_chebyshev_polynomial_{_kind}"), shifted=True)
