"""Hermite, Laguerre and Legendre polynomials of a degree that is a tensor: recurrences, as a loop of the program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.loops import elementwise, looped
from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""The polynomial of degree k + 1 from x, k, and those of degrees k and k - 1."""

_HIGHEST = {torch.float64: 512}
"""Degrees above which Hermite's are NaN, as in eager; 128 in other types."""


def _physicists(x: Tensor, k: Tensor, own: Tensor, before: Tensor) -> Tensor:
    return 2 * x * own - 2 * k * before


def _probabilists(x: Tensor, k: Tensor, own: Tensor, before: Tensor) -> Tensor:
    return x * own - k * before


def _laguerre(x: Tensor, k: Tensor, own: Tensor, before: Tensor) -> Tensor:
    return ((2 * k + 1 - x) * own - k * before) / (k + 1)


def _legendre(x: Tensor, k: Tensor, own: Tensor, before: Tensor) -> Tensor:
    return ((2 * k + 1) * x * own - k * before) / (k + 1)


def recurrence(step: Step, x: Tensor, n: Tensor) -> Tensor:
    """Of degrees n, whole numbers, [places] in float64; 0 where they are negative."""

    def unfinished(k: Tensor, own: Tensor, before: Tensor, x: Tensor, n: Tensor) -> Tensor:
        return (k < n).any()

    def onwards(k: Tensor, own: Tensor, before: Tensor, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        more = k < n
        return k + 1, torch.where(more, step(x, k, own, before), own), torch.where(more, own, before)

    start = (torch.zeros(1, dtype=torch.float64), torch.ones_like(x), torch.zeros_like(x))
    _, value, _ = looped(unfinished, onwards, start, (x, n))
    return torch.where(n < 0, 0.0, value)


def _register(name: str, step: Step, *, limited: bool) -> None:
    packet = getattr(aten, name)

    def polynomial(x: Any, n: Any) -> Tensor:
        dtype = torch.result_type(x, n)
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        highest = _HIGHEST.get(dtype, 128) if limited else math.inf

        def value(places: Tensor, degrees: Tensor) -> Tensor:
            degrees = torch.trunc(degrees)
            known = recurrence(step, places, torch.where(degrees > highest, 0.0, degrees))
            return torch.where(degrees > highest, math.nan, known)

        at, degree = (side if isinstance(side, Tensor) else torch.scalar_tensor(side, dtype=dtype) for side in (x, n))
        return elementwise(value, at, degree, dtype)

    rule(packet.default, packet.x_scalar, packet.n_scalar)(polynomial)


_register("special_hermite_polynomial_h", _physicists, limited=True)
_register("special_hermite_polynomial_he", _probabilists, limited=True)
_register("special_laguerre_polynomial_l", _laguerre, limited=False)
_register("special_legendre_polynomial_p", _legendre, limited=False)
