"""Special functions without a lowering.

float32 and narrower compute in float64, which leaves the last digit of the result to rounding alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from covan_mlir.frontend.rules.double import cos_kernel, polynomial, sin_kernel
from covan_mlir.frontend.rules.registry import float_type, rule, wide

aten = torch.ops.aten


_ERFC = (
    # W. Press et al., Numerical Recipes, 3rd ed., section 6.2.2: Chebyshev coefficients of exp(x^2) erfc(x) / t in
    # 4t - 2 with t = 2 / (2 + x), x >= 0; relative error 1.2e-16.
    -1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3, -9.46595344482036e-4,
    3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5, -1.624290004647e-6, 1.303655835580e-6,
    1.5626441722e-8, -8.5238095915e-8, 6.529054439e-9, 5.059343495e-9, -9.91364156e-10, -2.27365122e-10,
    9.6467911e-11, 2.394038e-12, -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13, 3.81e-16, 7.106e-15,
    -1.523e-15, -9.4e-17, 1.21e-16, -2.8e-17,
)  # fmt: skip


def _log_erfcx(x: Tensor) -> tuple[Tensor, Tensor]:
    """t and log(erfcx(x) / t) for x >= 0."""
    t = 2 / (2 + x)
    ty = 4 * t - 2
    d, dd = torch.zeros_like(x), torch.zeros_like(x)
    for coefficient in reversed(_ERFC[1:]):
        d, dd = ty * d - dd + coefficient, d
    return t, 0.5 * (_ERFC[0] + ty * d) - dd


@rule(aten.erfc.default)
def erfc(x: Tensor) -> Tensor:
    y = x.to(torch.float64)
    t, log = _log_erfcx(y.abs())
    tail = t * torch.exp(log - y * y)
    return torch.where(y < 0, 2 - tail, torch.where(y == math.inf, 0.0, tail)).to(float_type(x))


@rule(aten.special_erfcx.default)
def erfcx(x: Tensor) -> Tensor:
    y = x.to(torch.float64)
    t, log = _log_erfcx(y.abs())
    right = t * torch.exp(log)
    return torch.where(y < 0, 2 * torch.exp(y * y) - right, right).to(float_type(x))


@rule(aten.erfinv.default)
def erfinv(x: Tensor) -> Tensor:
    """A rational start and two steps of Newton's method, as torch does it."""
    y = x.to(torch.float64)
    size = y.abs()
    z = y * y
    inner = y * polynomial(z, (-0.140543331, 0.914624893, -1.645349621, 0.886226899))
    inner = inner / polynomial(z, (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0))
    z = torch.sqrt(-torch.log((1 - size) / 2))
    outer = polynomial(z, (1.641345311, 3.429567803, -1.624906493, -1.970840454))
    outer = outer / polynomial(z, (1.6370678, 3.5438892, 1.0))
    root = torch.where(size <= 0.7, inner, torch.where(y < 0, -outer, outer))
    for _ in range(2):
        # erf(root) - y without cancellation where erf is close to one
        tail = torch.where(root.abs() > 0.7, _erfc_minus(root, y, size), torch.erf(root) - y)
        root = root - tail / (2 / math.sqrt(math.pi) * torch.exp(-root * root))
    root = torch.where(size == 1, torch.where(y < 0, -math.inf, math.inf), root)
    return torch.where((size > 1) | torch.isnan(y), math.nan, root).to(float_type(x))


def _erfc_minus(root: Tensor, y: Tensor, size: Tensor) -> Tensor:
    t, log = _log_erfcx(root.abs())
    error = (1 - size) - t * torch.exp(log - root * root)
    return torch.where(y < 0, -error, error)


def _half_turn(fraction: Tensor) -> tuple[Tensor, Tensor]:
    """sin and cos of π times a number in [0, 1)."""
    side = torch.minimum(fraction, 1 - fraction)
    near, other = math.pi * side, math.pi * (0.5 - side)
    sine = torch.where(side < 0.25, sin_kernel(near), cos_kernel(other))
    cosine = torch.where(side < 0.25, cos_kernel(near), sin_kernel(other))
    return sine, torch.where(fraction > 0.5, -cosine, cosine)


# B. Lanczos' series, g = 7, n = 9 (P. Godfrey's coefficients): relative error of gamma about 1e-15.
_LANCZOS = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


@rule(aten.lgamma.default)
def lgamma(x: Tensor) -> Tensor:
    y = x.to(torch.float64)
    left = y < 0.5
    a = torch.where(left, 1 - y, y) - 1
    series = torch.full_like(a, 0.99999999999980993)
    for i, coefficient in enumerate(_LANCZOS):
        series = series + coefficient / (a + (i + 1))
    t = a + 7.5
    right = 0.5 * math.log(2 * math.pi) + (a + 0.5) * torch.log(t) - t + torch.log(series)
    fraction = y.abs() - torch.floor(y.abs())
    value = torch.where(left, math.log(math.pi) - torch.log(_half_turn(fraction)[0]) - right, right)
    value = torch.where((y <= 0) & (fraction == 0), math.inf, value)
    value = torch.where((y == 1) | (y == 2), 0.0, value)
    return torch.where(torch.isinf(y), math.inf, value).to(float_type(x))


@rule(aten.digamma.default, aten.special_psi.default)
def digamma(x: Tensor) -> Tensor:
    """Recurrence up to 6, then the asymptotic series (Abramowitz and Stegun 6.3.18); reflection for negative x."""
    y = x.to(torch.float64)
    left = y < 0
    a = torch.where(left, 1 - y, y)
    shift = torch.zeros_like(a)
    for _ in range(10):
        small = a < 10
        shift = torch.where(small, shift - 1 / a, shift)
        a = torch.where(small, a + 1, a)
    z = 1 / (a * a)
    tail = z * polynomial(z, (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12))
    right = shift + torch.log(a) - 0.5 / a - tail
    fraction = y.abs() - torch.floor(y.abs())
    sine, cosine = _half_turn(fraction)
    value = torch.where(left, right + math.pi * cosine / sine, right)
    value = torch.where(left & (fraction == 0), math.nan, value)
    value = torch.where(y == 0, torch.where(torch.signbit(y), math.inf, -math.inf), value)
    return torch.where(y == math.inf, math.inf, torch.where(y == -math.inf, math.nan, value)).to(float_type(x))


def _of_a_number(op: OpOverload, tensors: OpOverload) -> None:
    """Register ``tensors`` as the decomposition of ``op``, of whose operands one is a number."""

    def of_a_number(a: Any, b: Any) -> Tensor:
        x: Tensor = a if isinstance(a, Tensor) else b
        kind = wide(x).dtype
        left, right = (
            wide(operand) if isinstance(operand, Tensor) else torch.full((), float(operand), dtype=kind)
            for operand in (a, b)
        )
        result: Tensor = tensors(left, right)
        return result.to(float_type(x))

    rule(op)(of_a_number)


_of_a_number(aten.xlogy.Scalar_Self, aten.xlogy.Tensor)
_of_a_number(aten.xlogy.Scalar_Other, aten.xlogy.Tensor)
for _packet in (aten.special_xlog1py, aten.special_zeta):
    _of_a_number(_packet.self_scalar, _packet.default)
    _of_a_number(_packet.other_scalar, _packet.default)
