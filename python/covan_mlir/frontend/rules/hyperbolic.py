"""Hyperbolic functions and their inverses, and sums of exponentials by their logarithms: near 0, far out, and with NaN.

The lowerings subtract numbers that are nearly equal, square what then overflows, and know one sign.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import float_type, promoted, rule, wide

aten = torch.ops.aten


def _far(y: Tensor) -> float:
    """Beyond it, 1 is no part of ``y`` squared."""
    return 2 / math.sqrt(torch.finfo(y.dtype).eps)


def _signed(y: Tensor, magnitude: Tensor, x: Tensor) -> Tensor:
    """``magnitude`` with the sign of ``y``, in the type that a function of ``x`` has."""
    return torch.where(y < 0, -magnitude, magnitude).to(float_type(x))


@rule(aten.asinh.default)
def asinh(x: Tensor) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    y = wide(x)
    size = y.abs()
    far = size > _far(y)
    near = torch.where(far, 1.0, size)
    square = near * near
    value = torch.log1p(near + square / (1 + torch.sqrt(1 + square)))
    return _signed(y, torch.where(far, torch.log(size) + math.log(2), value), x)


@rule(aten.acosh.default)
def acosh(x: Tensor) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    y = wide(x)
    far = y > _far(y)
    beyond = torch.where(far, 1.0, y) - 1
    value = torch.log1p(beyond + torch.sqrt(beyond * (2 + beyond)))
    return torch.where(y < 1, math.nan, torch.where(far, torch.log(y) + math.log(2), value)).to(float_type(x))


@rule(aten.atanh.default)
def atanh(x: Tensor) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    y = wide(x)
    size = y.abs()
    return _signed(y, 0.5 * torch.log1p(2 * size / (1 - size)), x)


@rule(aten.sinh.default)
def sinh(x: Tensor) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    y = wide(x)
    size = y.abs()
    far = size > 16
    less = torch.expm1(torch.where(far, 1.0, size))
    root = torch.exp(0.5 * size)  # its square overflows with the result, not before
    return _signed(y, torch.where(far, 0.5 * root * root, 0.5 * (less + less / (less + 1))), x)


@rule(aten.cosh.default)
def cosh(x: Tensor) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    root = torch.exp(0.5 * wide(x).abs())
    return (0.5 * root * root + 0.5 / root / root).to(float_type(x))


@rule(aten.logaddexp.default)
def logaddexp(a: Tensor, b: Tensor) -> Any:
    dtype = torch.result_type(a, b)
    if not dtype.is_floating_point:
        return NotImplemented
    a, b = (wide(side) for side in promoted(a, b))
    more = torch.where(a == b, math.log(2), torch.log1p(torch.exp(-(a - b).abs())))  # infinities have no difference
    return (torch.maximum(a, b) + more).to(dtype)


@rule(aten.logaddexp2.default)
def logaddexp2(a: Tensor, b: Tensor) -> Any:
    dtype = torch.result_type(a, b)
    if not dtype.is_floating_point:
        return NotImplemented
    a, b = (wide(side) for side in promoted(a, b))
    more = torch.log1p(torch.exp2(-(a - b).abs())) * (1 / math.log(2))
    return (torch.maximum(a, b) + torch.where(a == b, 1.0, more)).to(dtype)
