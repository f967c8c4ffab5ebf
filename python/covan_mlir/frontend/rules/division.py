"""Quotients and remainders of fractions as eager has them: exact where the lowering rounds a quotient first."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import promoted, rule, wide

aten = torch.ops.aten
Number = Any  # int, float, bool, or a symbolic one
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@rule(aten.fmod.Tensor)
def fmod(a: Tensor, b: Tensor) -> Any:
    a, b = promoted(a, b)
    dtype = a.dtype
    if not dtype.is_floating_point:
        return a - torch.div(a, b, rounding_mode="trunc") * b
    return _fmod(wide(a), wide(b)).to(dtype)


@rule(aten.fmod.Scalar)
def fmod_scalar(a: Tensor, b: Number) -> Any:
    # As a tensor of the full shape: torch-mlir crashes on one without axes.
    return torch.fmod(a, torch.full_like(a, b, dtype=torch.result_type(a, b)))


@rule(aten.remainder.Tensor)
def remainder(a: Tensor, b: Tensor) -> Any:
    if torch.result_type(a, b) is not torch.float64:
        return NotImplemented
    a, b = promoted(a, b)
    left = _fmod(a, b)
    return torch.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


@rule(aten.remainder.Scalar)
def remainder_scalar(a: Tensor, b: Number) -> Any:
    if torch.result_type(a, b) is not torch.float64:
        return NotImplemented
    return torch.remainder(a, torch.full_like(a, b, dtype=torch.float64))


@rule(aten.div.Tensor_mode)
def divide(a: Any, b: Any, *, rounding_mode: str | None) -> Any:
    dtype = torch.result_type(a, b)
    if rounding_mode != "floor":
        return NotImplemented
    if dtype in _WHOLE:  # which the lowering divides as fractions
        dividend, divisor = promoted(a, b)
        quotient = torch.div(dividend, divisor, rounding_mode="trunc")
        left = dividend - quotient * divisor
        below = (left != 0) & ((left < 0) != (divisor < 0))
        # By zero is what was divided, where that is no error.
        return torch.where(below & (divisor != 0), quotient - 1, quotient)
    if not dtype.is_floating_point:
        return NotImplemented
    dividend, divisor = promoted(a, b)
    whole = _floor_divide(wide(dividend), wide(divisor))
    if isinstance(b, Tensor) or b == 0:
        whole = torch.where(divisor == 0, dividend / divisor, whole.to(dtype))
    return whole.to(dtype)


@rule(aten.floor_divide.default)
def floor_divide(a: Any, b: Any) -> Any:
    return divide(a, b, rounding_mode="floor")


@rule(aten.div.Scalar_mode)
def divide_by_number(a: Tensor, b: Number, *, rounding_mode: str | None) -> Any:
    return divide(a, b, rounding_mode=rounding_mode)


@rule(aten.floor_divide.Scalar)
def floor_divide_by_number(a: Tensor, b: Number) -> Any:
    return divide_by_number(a, b, rounding_mode="floor")


def _fmod(a: Tensor, b: Tensor) -> Tensor:
    """What is left of ``a``, with its sign. The lowering for float32 subtracts a rounded product, of an infinity too.

    ``a - n b`` with ``n`` the quotient's whole part is exact in float64 for float32 operands, if ``n`` is taken in two
    parts of at most 28 bits.
    """
    if a.dtype is torch.float64:
        left = _less_product(a, torch.trunc(a / b), b)
        over = (left != 0) & ((left < 0) != (a < 0))  # the quotient rounded up to a whole number
        left = torch.where(over, left + torch.where(a < 0, -b.abs(), b.abs()), left)
    else:
        x, y = a.to(torch.float64).abs(), b.to(torch.float64).abs()
        left = x - torch.floor(x / y * 2.0**-28) * 2.0**28 * y
        left = (left - torch.floor(left / y) * y).to(a.dtype)
        left = torch.where(a < 0, -left, left)
    whole = ((b.abs() == math.inf) & (a.abs() < math.inf)) | ((a == 0) & (b.abs() > 0))
    return torch.where(whole, a, left)


def _less_product(a: Tensor, n: Tensor, b: Tensor) -> Tensor:
    """``a - n b`` in float64 with the product's rounding error taken off, too: one operation of two roundings.

    T. Dekker, A floating-point technique for extending the available precision, Numer. Math. 18 (1971), section 5.
    """
    product = n * b
    (n_high, n_low), (b_high, b_low) = _split(n), _split(b)
    error = ((n_high * b_high - product) + n_high * b_low + n_low * b_high) + n_low * b_low
    return (a - product) - torch.where(error.isfinite(), error, 0)  # beyond 1e300 halves overflow


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two numbers of at most 26 bits whose sum is ``x``."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _floor_divide(a: Tensor, b: Tensor) -> Tensor:
    """As Python divides: from the remainder, for the quotient may round up to a whole number (``0.3 // 0.1``)."""
    left = _fmod(a, b)
    quotient = (a - left) / b
    quotient = torch.where((left != 0) & ((left < 0) != (b < 0)), quotient - 1, quotient)
    whole = torch.round(quotient)
    return torch.where(quotient == 0, 0 * quotient, whole)
