"""Bessel functions, Airy's function and the quantile of the normal distribution, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules import coefficients as table
from covan_mlir.frontend.rules.double import polynomial
from covan_mlir.frontend.rules.registry import float_type, rule
from covan_mlir.frontend.rules.special import erfcx

aten, prims = torch.ops.aten, torch.ops.prims


def _in_double(*ops: Any) -> Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]:
    """Register a function of float64 tensors for tensors of any type."""

    def register(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def rounded(x: Tensor) -> Tensor:
            return function(x.to(torch.float64)).to(float_type(x))

        rule(*ops)(rounded)
        return function

    return register


def _ratio(x: Tensor, above: Sequence[float], below: Sequence[float]) -> Tensor:
    return polynomial(x, above) / polynomial(x, below)


def _chebyshev(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Clenshaw's recurrence; the constant term comes last, and counts half. x is twice the usual argument."""
    value, before, last = torch.full_like(x, coefficients[0]), torch.zeros_like(x), torch.zeros_like(x)
    for coefficient in coefficients[1:]:
        value, before, last = x * value - before + coefficient, value, before
    return 0.5 * (value - last)


def _wave(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """J and Y of order 0 or 1 for x > 5: sums of waves of slowly changing amplitude."""
    pp, pq, qp, qq = (
        (table.J0_PP, table.J0_PQ, table.J0_QP, table.J0_QQ),
        (table.J1_PP, table.J1_PQ, table.J1_QP, table.J1_QQ),
    )[order]
    z = 25 / (x * x)
    even, odd = _ratio(z, pp, pq), 5 / x * _ratio(z, qp, qq)
    angle = x - (0.25 + 0.5 * order) * math.pi
    sine, cosine, scale = angle.sin(), angle.cos(), torch.sqrt(2 / (math.pi * x))
    return (even * cosine - odd * sine) * scale, (even * sine + odd * cosine) * scale


@_in_double(aten.special_bessel_j0.default, prims.bessel_j0.default)
def j0(x: Tensor) -> Tensor:
    a = x.abs()
    z = a * a
    near = (z - 5.78318596294678452118) * (z - 30.4712623436620863991) * _ratio(z, table.J0_RP, table.J0_RQ)
    return torch.where(a <= 5, near, _wave(a, 0)[0])


@_in_double(aten.special_bessel_j1.default, prims.bessel_j1.default)
def j1(x: Tensor) -> Tensor:
    a = x.abs()
    z = a * a
    near = a * (z - 14.6819706421238932572) * (z - 49.2184563216946036703) * _ratio(z, table.J1_RP, table.J1_RQ)
    value = torch.where(a <= 5, near, _wave(a, 1)[0])
    return torch.where(x < 0, -value, value)


def _from_zero(x: Tensor, value: Tensor, at_zero: float) -> Tensor:
    """A function of positive numbers that has a pole at zero."""
    return torch.where(x > 0, value, torch.where(x == 0, at_zero, math.nan))


@_in_double(aten.special_bessel_y0.default)
def y0(x: Tensor) -> Tensor:
    near = _ratio(x * x, table.Y0_P, table.Y0_Q) + 2 / math.pi * torch.log(x) * j0(x)
    return _from_zero(x, torch.where(x <= 5, near, _wave(x, 0)[1]), -math.inf)


@_in_double(aten.special_bessel_y1.default)
def y1(x: Tensor) -> Tensor:
    near = x * _ratio(x * x, table.Y1_P, table.Y1_Q) + 2 / math.pi * (j1(x) * torch.log(x) - 1 / x)
    return _from_zero(x, torch.where(x <= 5, near, _wave(x, 1)[1]), -math.inf)


@_in_double(aten.special_i0e.default, prims.bessel_i0e.default)
def i0e(x: Tensor) -> Tensor:
    a = x.abs()
    far = _chebyshev(32 / a - 2, table.I0_FAR) * torch.rsqrt(a)
    return torch.where(a <= 8, _chebyshev(a / 2 - 2, table.I0_NEAR), far)


@_in_double(aten.special_i1e.default, prims.bessel_i1e.default)
def i1e(x: Tensor) -> Tensor:
    a = x.abs()
    far = _chebyshev(32 / a - 2, table.I1_FAR) * torch.rsqrt(a)
    value = torch.where(a <= 8, _chebyshev(a / 2 - 2, table.I1_NEAR) * a, far)
    return torch.where(x < 0, -value, value)


@_in_double(aten.i0.default, aten.special_modified_bessel_i0.default, prims.bessel_i0.default)
def i0(x: Tensor) -> Tensor:
    return i0e(x) * torch.exp(x.abs())


@_in_double(aten.special_i1.default, aten.special_modified_bessel_i1.default, prims.bessel_i1.default)
def i1(x: Tensor) -> Tensor:
    return i1e(x) * torch.exp(x.abs())


def _k0(x: Tensor, scaled: bool) -> Tensor:
    near = _chebyshev(x * x - 2, table.K0_NEAR) - torch.log(0.5 * x) * i0(x)
    far = _chebyshev(8 / x - 2, table.K0_FAR) * torch.rsqrt(x)
    value = torch.where(x <= 2, near * torch.exp(x), far) if scaled else torch.where(x <= 2, near, far * torch.exp(-x))
    return _from_zero(x, value, math.inf)


def _k1(x: Tensor, scaled: bool) -> Tensor:
    near = torch.log(0.5 * x) * i1(x) + _chebyshev(x * x - 2, table.K1_NEAR) / x
    far = _chebyshev(8 / x - 2, table.K1_FAR) * torch.rsqrt(x)
    value = torch.where(x <= 2, near * torch.exp(x), far) if scaled else torch.where(x <= 2, near, far * torch.exp(-x))
    return _from_zero(x, value, math.inf)


@_in_double(aten.special_modified_bessel_k0.default)
def k0(x: Tensor) -> Tensor:
    return _k0(x, scaled=False)


@_in_double(aten.special_modified_bessel_k1.default)
def k1(x: Tensor) -> Tensor:
    return _k1(x, scaled=False)


@_in_double(aten.special_scaled_modified_bessel_k0.default)
def k0e(x: Tensor) -> Tensor:
    return _k0(x, scaled=True)


@_in_double(aten.special_scaled_modified_bessel_k1.default)
def k1e(x: Tensor) -> Tensor:
    return _k1(x, scaled=True)


@_in_double(aten.special_spherical_bessel_j0.default, prims.spherical_bessel_j0.default)
def spherical_j0(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1.0, torch.where(x.isinf(), 0.0, torch.sin(x) / x))


@_in_double(aten.special_airy_ai.default)
def airy(x: Tensor) -> Tensor:
    """Asymptotic forms on both sides, and the power series between them."""
    size = x.abs().clamp(min=1.0)
    zeta = 2 / 3 * size * torch.sqrt(size)
    scale = 1 / math.sqrt(math.pi) * torch.rsqrt(torch.sqrt(size))
    right = 0.5 * scale * torch.exp(-zeta) * _ratio(1 / zeta, table.AIRY_AN, table.AIRY_AD)
    z = 1 / (zeta * zeta)
    even = 1 + z * _ratio(z, table.AIRY_AFN, table.AIRY_AFD)
    odd = _ratio(z, table.AIRY_AGN, table.AIRY_AGD) / zeta
    angle = zeta + 0.25 * math.pi
    left = scale * (torch.sin(angle) * even - torch.cos(angle) * odd)
    inner = x.clamp(-2.1, 2.1)
    cube = inner * inner * inner
    one, other = torch.ones_like(inner), inner
    first, second = one, other
    for k in range(2, 40, 3):  # their ratios are below 1e-17 then
        one, other = one * cube / (k * (k + 1)), other * cube / ((k + 1) * (k + 2))
        first, second = first + one, second + other
    middle = 0.355028053887817239260 * first - 0.258819403792806798405 * second
    value = torch.where(x < -2.09, left, torch.where(x >= 2.09, right, middle))
    return torch.where(x.isinf() | x.isnan(), math.nan, value)


@_in_double(aten.special_ndtri.default)
def ndtri(x: Tensor) -> Tensor:
    tail = math.exp(-2.0)
    upper = x > 1 - tail
    p = torch.where(upper, 1 - x, x)
    middle = p - 0.5
    z = middle * middle
    inner = math.sqrt(2 * math.pi) * (middle + middle * z * _ratio(z, table.NORMAL_P0, table.NORMAL_Q0))
    far = torch.sqrt(-2 * torch.log(p))
    z = 1 / far
    near, beyond = (
        z * _ratio(z, above, below)
        for above, below in ((table.NORMAL_P1, table.NORMAL_Q1), (table.NORMAL_P2, table.NORMAL_Q2))
    )
    outer = far - torch.log(far) / far - torch.where(far < 8, near, beyond)
    value = torch.where(p > tail, inner, torch.where(upper, outer, -outer))
    value = torch.where(x == 0, -math.inf, torch.where(x == 1, math.inf, value))
    return torch.where((x >= 0) & (x <= 1), value, math.nan)


@_in_double(aten.special_log_ndtr.default)
def log_ndtr(x: Tensor) -> Tensor:
    t = x * math.sqrt(0.5)
    return torch.where(x < -1, torch.log(erfcx(-t) / 2) - t * t, torch.log1p(-torch.erfc(t) / 2))


_BERNOULLI = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip
"""(2k)! over the Bernoulli number B(2k)."""


def _positive_zeta(s: Tensor, q: Tensor) -> Tensor:
    """Hurwitz' zeta function for s > 1, q > 0, by Euler's and Maclaurin's formula from the tenth term on."""

    def power(a: Tensor) -> Tensor:
        return torch.exp(-s * torch.log(a))

    total = power(q)
    for k in range(1, 10):
        total = total + power(q + k)
    w = q + 9
    b = power(w)
    total = total + b * w / (s - 1) - 0.5 * b
    factor = torch.ones_like(b)
    for k, bernoulli in enumerate(_BERNOULLI):
        factor, b = factor * (s + 2 * k), b / w
        total = total + factor * b / bernoulli
        factor, b = factor * (s + 2 * k + 1), b / w
    return total


def hurwitz(s: Tensor, q: Tensor) -> Tensor:
    """Hurwitz' zeta function for s > 1, in float64; for q < 0 and whole s by its values at q > 0."""
    negative = q < 0
    fraction = q - torch.floor(q)
    q, s = torch.where(negative & (fraction == 0), 0.0, q), s.expand((s + q).shape)
    start = torch.where(negative, fraction, q)
    below = _positive_zeta(s, 1 - fraction) - _positive_zeta(s, q.abs() + 1)
    odd = torch.floor(s * 0.5) * 2 != s
    value = _positive_zeta(s, start) + torch.where(negative, torch.where(odd, -below, below), 0.0)
    value = torch.where(negative & (torch.floor(s) != s), math.nan, value)
    value = torch.where((q <= 0) & (fraction == 0), math.inf, value)
    return torch.where(q.isnan(), math.nan, value)


@rule(aten.special_zeta.default, prims.zeta.default)
def zeta(s: Tensor, q: Tensor) -> Tensor:
    dtype = torch.result_type(s, q)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    order = s.to(torch.float64)
    value = hurwitz(order, q.to(torch.float64))
    return torch.where(order > 1, value, torch.where(order == 1, math.inf, math.nan)).to(dtype)


@rule(aten.polygamma.default)
def polygamma(n: int, x: Tensor) -> Tensor:
    if n == 0:
        return torch.digamma(x)
    y = x.to(torch.float64)
    sign = 1.0 if n % 2 else -1.0
    return (sign * math.factorial(n) * hurwitz(torch.full_like(y, n + 1.0), y)).to(float_type(x))
