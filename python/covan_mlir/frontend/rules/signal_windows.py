"""Windows of signals, as torch's factories make them: torch-mlir knows Hann's alone."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten


def _steps(length: int, periodic: bool, dtype: torch.dtype | None) -> Tensor | None:
    """0, 1, ... over the length of a period; None of a single element, which is 1 in each window."""
    if length < 2:
        return None
    return torch.arange(length, dtype=dtype or torch.get_default_dtype()) / (length if periodic else length - 1)


def _cosines(length: int, periodic: bool, dtype: torch.dtype | None, factors: tuple[float, ...]) -> Tensor:
    """Sums of cosines (Harris 1978, section V)."""
    if (steps := _steps(length, periodic, dtype)) is None:
        return torch.ones(length, dtype=dtype or torch.get_default_dtype())
    terms = [factor * torch.cos(2 * math.pi * n * steps) for n, factor in enumerate(factors) if n]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total + factors[0]


@rule(aten.hamming_window.periodic_alpha_beta, aten.hamming_window.periodic_alpha, aten.hamming_window.periodic)
def hamming(
    length: int,
    periodic: bool,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: torch.dtype | None = None,
    **placed: Any,
) -> Any:
    return _cosines(length, periodic, dtype, (alpha, -beta))


@rule(aten.hamming_window.default)
def periodic_hamming(length: int, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    return hamming(length, True, dtype=dtype)


@rule(aten.blackman_window.periodic)
def blackman(length: int, periodic: bool, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    return _cosines(length, periodic, dtype, (0.42, -0.5, 0.08))


@rule(aten.blackman_window.default)
def periodic_blackman(length: int, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    return blackman(length, True, dtype=dtype)


@rule(aten.bartlett_window.periodic)
def bartlett(length: int, periodic: bool, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    """A triangle."""
    steps = _steps(length, periodic, dtype)
    if steps is None:
        return torch.ones(length, dtype=dtype or torch.get_default_dtype())
    return 1 - torch.abs(2 * steps - 1)


@rule(aten.bartlett_window.default)
def periodic_bartlett(length: int, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    return bartlett(length, True, dtype=dtype)


@rule(aten.kaiser_window.beta, aten.kaiser_window.periodic)
def kaiser(length: int, periodic: bool, beta: float = 12.0, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    """Bessel functions (Kaiser 1974)."""
    steps = _steps(length, periodic, dtype)
    if steps is None:
        return torch.ones(length, dtype=dtype or torch.get_default_dtype())
    bent = beta * torch.sqrt(torch.clamp(1 - torch.square(2 * steps - 1), min=0))
    return torch.special.i0(bent) / torch.special.i0(torch.full((), beta, dtype=steps.dtype))


@rule(aten.kaiser_window.default)
def periodic_kaiser(length: int, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    return kaiser(length, True, dtype=dtype)
