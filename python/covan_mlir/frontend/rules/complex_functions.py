"""Elementary functions of complex numbers, by functions of their real and imaginary parts (principal values)."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from covan_mlir.frontend.rules.complex_numbers import real_and_imaginary
from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_LARGE = {torch.float32: 20.0, torch.float64: 40.0}
"""Real parts beyond which a hyperbolic tangent is that of these, to the last place."""
_MULTIPLIED = 8
"""Exponents up to which a power is products."""


def _complex_rule(*ops: OpOverload) -> Callable[[Callable[[Tensor], Any]], Callable[..., Any]]:
    """Register a function of complex tensors."""

    def register(function: Callable[[Tensor], Any]) -> Callable[..., Any]:
        return rule(*ops, first=True)(lambda x: function(x) if x.dtype.is_complex else NotImplemented)

    return register


@_complex_rule(aten.exp.default)
def exponential(z: Tensor) -> Tensor:
    size = torch.exp(z.real)
    # Of a real number it is real, and not infinity times zero.
    return torch.complex(size * torch.cos(z.imag), torch.where(z.imag == 0, z.imag, size * torch.sin(z.imag)))


@_complex_rule(aten.log.default)
def logarithm(z: Tensor) -> Tensor:
    return torch.complex(torch.log(torch.hypot(z.real, z.imag)), torch.atan2(z.imag, z.real))


@_complex_rule(aten.log2.default)
def binary_logarithm(z: Tensor) -> Tensor:
    return torch.log(z) * (1 / math.log(2))


@_complex_rule(aten.log10.default)
def decimal_logarithm(z: Tensor) -> Tensor:
    return torch.log(z) * (1 / math.log(10))


@_complex_rule(aten.sqrt.default)
def root(z: Tensor) -> Tensor:
    """The half of the plane with real parts above zero first: nothing is subtracted (Kahan 1987)."""
    a, b = z.real, z.imag
    larger = torch.sqrt((torch.abs(a) + torch.hypot(a, b)) / 2)
    smaller = torch.where(larger == 0, larger, torch.abs(b) / (2 * larger))
    right = a >= 0
    return torch.complex(torch.where(right, larger, smaller), torch.copysign(torch.where(right, smaller, larger), b))


@_complex_rule(aten.rsqrt.default)
def inverse_root(z: Tensor) -> Tensor:
    return torch.reciprocal(torch.sqrt(z))


@_complex_rule(aten.sin.default)
def sine(z: Tensor) -> Tensor:
    return torch.complex(torch.sin(z.real) * torch.cosh(z.imag), torch.cos(z.real) * torch.sinh(z.imag))


@_complex_rule(aten.cos.default)
def cosine(z: Tensor) -> Tensor:
    return torch.complex(torch.cos(z.real) * torch.cosh(z.imag), -torch.sin(z.real) * torch.sinh(z.imag))


@_complex_rule(aten.sinh.default)
def hyperbolic_sine(z: Tensor) -> Tensor:
    return torch.complex(torch.sinh(z.real) * torch.cos(z.imag), torch.cosh(z.real) * torch.sin(z.imag))


@_complex_rule(aten.cosh.default)
def hyperbolic_cosine(z: Tensor) -> Tensor:
    return torch.complex(torch.cosh(z.real) * torch.cos(z.imag), torch.sinh(z.real) * torch.sin(z.imag))


@_complex_rule(aten.tanh.default)
def hyperbolic_tangent(z: Tensor) -> Tensor:
    large = _LARGE[z.real.dtype]
    sinh, cosh = (function(torch.clamp(z.real, -large, large)) for function in (torch.sinh, torch.cosh))
    sin, cos = torch.sin(z.imag), torch.cos(z.imag)
    size = sinh * sinh + cos * cos
    return torch.complex(sinh * cosh / size, sin * cos / size)


@_complex_rule(aten.tan.default)
def tangent(z: Tensor) -> Tensor:
    turned = torch.tanh(torch.complex(-z.imag, z.real))
    return torch.complex(turned.imag, -turned.real)


@_complex_rule(aten.sigmoid.default)
def sigmoid(z: Tensor) -> Tensor:
    return torch.reciprocal(torch.exp(-z) + 1)


@_complex_rule(aten.neg.default)
def negative(z: Tensor) -> Tensor:
    return torch.complex(-z.real, -z.imag)


@_complex_rule(aten.isnan.default)
def is_no_number(z: Tensor) -> Tensor:
    return torch.isnan(z.real) | torch.isnan(z.imag)


@_complex_rule(aten.isinf.default)
def is_infinite(z: Tensor) -> Tensor:
    return torch.isinf(z.real) | torch.isinf(z.imag)


@_complex_rule(aten.isfinite.default)
def is_finite(z: Tensor) -> Tensor:
    return torch.isfinite(z.real) & torch.isfinite(z.imag)


@_complex_rule(aten.sgn.default)
def direction(z: Tensor) -> Tensor:
    size = torch.hypot(z.real, z.imag)
    return z / torch.where(size == 0, 1.0, size)


@rule(aten.cumsum.default, first=True)
def sums_so_far(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    if not x.dtype.is_complex or dtype not in (None, x.dtype):
        return NotImplemented
    return torch.complex(torch.cumsum(x.real, dim), torch.cumsum(x.imag, dim))


@rule(aten.prod.dim_int, first=True)
def product_along(z: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Of pairs, and of pairs of those."""
    size = z.shape[dim] if z.dim() else 1
    if not (z.dtype if dtype is None else dtype).is_complex or not isinstance(size, int):
        return NotImplemented
    z = z if dtype is None else z.to(dtype)
    z = z.unsqueeze(0) if not z.dim() else z.movedim(dim, 0)
    if not size:
        z, size = torch.ones_like(torch.cat([z, z.new_zeros((1, *z.shape[1:]))])), 1
    while size > 1:
        half = size // 2
        pairs = z[:half] * z[half : 2 * half]
        z, size = (torch.cat([pairs, z[2 * half :]]), half + size % 2) if size % 2 else (pairs, half)
    return z.movedim(0, dim) if keepdim else z[0]


@rule(aten.prod.default, first=True)
def product_of_all(z: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return product_along(z.reshape(-1), 0, dtype=dtype) if (dtype or z.dtype).is_complex else NotImplemented


@rule(aten.var.correction, first=True)
def variance(z: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if not z.dtype.is_complex:
        return NotImplemented
    halves = (torch.var(half, dim, correction=correction, keepdim=keepdim) for half in (z.real, z.imag))
    real, imaginary = halves
    return real + imaginary


@rule(aten.var.dim, first=True)
def variance_along(z: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
    return variance(z, dim, correction=int(unbiased), keepdim=keepdim)


@rule(aten.std.correction, first=True)
def deviation(z: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    squares = variance(z, dim, correction=correction, keepdim=keepdim)
    return NotImplemented if squares is NotImplemented else torch.sqrt(squares)


@rule(aten.pow.Tensor_Scalar, first=True)
def power(z: Tensor, exponent: Any) -> Any:
    if not z.dtype.is_complex:
        return NotImplemented
    if not isinstance(exponent, complex) and exponent == int(exponent) and 0 < abs(exponent) <= _MULTIPLIED:
        product = z
        for _ in range(abs(int(exponent)) - 1):
            product = product * z
        return product if exponent > 0 else torch.reciprocal(product)
    if exponent == 0:
        return torch.ones_like(z)
    return _power(z, torch.log(z) * exponent)


@rule(aten.pow.Tensor_Tensor, first=True)
def power_of_each(z: Tensor, exponent: Tensor) -> Any:
    if not torch.result_type(z, exponent).is_complex:
        return NotImplemented
    dtype = torch.result_type(z, exponent)
    base, exponent = z.to(dtype), exponent.to(dtype)
    zero = (exponent.real == 0) & (exponent.imag == 0)
    raised = _power(base, torch.log(base) * exponent)
    return torch.complex(torch.where(zero, 1.0, raised.real), torch.where(zero, 0.0, raised.imag))


@rule(aten.pow.Scalar, first=True)
def power_of_number(base: Any, exponent: Tensor) -> Any:
    if not (isinstance(base, complex) or exponent.dtype.is_complex):
        return NotImplemented
    exponent = exponent.to(torch.result_type(base, exponent))
    if base:
        return torch.exp(exponent * cmath.log(base))
    zero = (exponent.real == 0) & (exponent.imag == 0)
    return torch.complex(zero.to(exponent.real.dtype), torch.zeros_like(exponent.real))


@rule(aten.eq.Tensor, aten.eq.Scalar, first=True)
def equal(x: Tensor, y: Any) -> Any:
    if not torch.result_type(x, y).is_complex:
        return NotImplemented
    (a, b), (c, d) = real_and_imaginary(x), real_and_imaginary(y)
    return (a == c) & (b == d)


@rule(aten.ne.Tensor, aten.ne.Scalar, first=True)
def unequal(x: Tensor, y: Any) -> Any:
    same = equal(x, y)
    return NotImplemented if same is NotImplemented else torch.logical_not(same)


@rule(aten.where.self, first=True)
def chosen(condition: Tensor, x: Tensor, y: Tensor) -> Any:
    if not torch.result_type(x, y).is_complex:
        return NotImplemented
    dtype = torch.result_type(x, y)
    x, y = x.to(dtype), y.to(dtype)
    return torch.complex(torch.where(condition, x.real, y.real), torch.where(condition, x.imag, y.imag))


@rule(aten.scalar_tensor.default, first=True)
def number(value: Any, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    if dtype is None or not dtype.is_complex:
        return NotImplemented
    value = complex(value)
    halves = (torch.scalar_tensor(part, dtype=dtype.to_real()) for part in (value.real, value.imag))
    return torch.complex(*halves)


def _power(base: Tensor, logarithm: Tensor) -> Tensor:
    """A power that is not the zeroth, given its logarithm: zero has none."""
    raised, zero = torch.exp(logarithm), (base.real == 0) & (base.imag == 0)
    return torch.complex(torch.where(zero, 0.0, raised.real), torch.where(zero, 0.0, raised.imag))
