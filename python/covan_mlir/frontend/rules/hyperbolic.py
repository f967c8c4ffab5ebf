"""Hyperbolic functions and their inverses, and sums of exponentials by their logarithms: near 0, far out, and with NaN.

The lowerings subtract numbers that are nearly equal, square what then overflows, and know one sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from covan_mlir.frontend.rules.registry import float_type, promoted, rule, wide

aten = torch.ops.aten


def _far(x: Tensor) -> float:
    """Beyond it, 1 is no part of ``x`` squared."""
    return 2 / math.sqrt(torch.finfo(x.dtype).eps)


def _of_reals(op: OpOverload) -> Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]:
    """Register a function of float32 or float64 for all real types."""

    def register(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def of_reals(x: Tensor) -> Any:
            return NotImplemented if x.dtype.is_complex else function(wide(x)).to(float_type(x))

        rule(op)(of_reals)
        return function

    return register


@_of_reals(aten.asinh.default)
def asinh(x: Tensor) -> Tensor:
    size = x.abs()
    far = size > _far(x)
    near = torch.where(far, 1.0, size)
    square = near * near
    value = torch.log1p(near + square / (1 + torch.sqrt(1 + square)))
    value = torch.where(far, torch.log(size) + math.log(2), value)
    return torch.where(x < 0, -value, value)


@_of_reals(aten.acosh.default)
def acosh(x: Tensor) -> Tensor:
    far = x > _far(x)
    beyond = torch.where(far, 1.0, x) - 1
    value = torch.log1p(beyond + torch.sqrt(beyond * (2 + beyond)))
    return torch.where(x < 1, math.nan, torch.where(far, torch.log(x) + math.log(2), value))


@_of_reals(aten.atanh.default)
def atanh(x: Tensor) -> Tensor:
    size = x.abs()
    value = 0.5 * torch.log1p(2 * size / (1 - size))
    return torch.where(x < 0, -value, value)


@_of_reals(aten.sinh.default)
def sinh(x: Tensor) -> Tensor:
    size = x.abs()
    far = size > 16
    less = torch.expm1(torch.where(far, 1.0, size))
    root = torch.exp(0.5 * size)  # its square overflows with the result, not before
    value = torch.where(far, 0.5 * root * root, 0.5 * (less + less / (less + 1)))
    return torch.where(x < 0, -value, value)


@_of_reals(aten.cosh.default)
def cosh(x: Tensor) -> Tensor:
    root = torch.exp(0.5 * x.abs())
    return 0.5 * root * root + 0.5 / root / root


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
