"""float64 functions that IREE's CPU backend leaves to a libm that is not there.

Other types keep their lowering, but where it loses digits. Polynomials and splits are those of fdlibm (Sun
Microsystems, 1993), whose errors are below one unit in the last place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from covan_mlir.frontend.rules.registry import float_type, rule, wide

aten = torch.ops.aten


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Horner's rule; the constant term comes last."""
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _for_doubles(*ops: OpOverload) -> Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]:
    def register(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def only_doubles(x: Tensor) -> Any:
            return function(x) if x.dtype is torch.float64 else NotImplemented

        rule(*ops)(only_doubles)
        return function

    return register


_SIN = (1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
        -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01)  # fmt: skip
_COS = (-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
        2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02)  # fmt: skip
_ATAN = (1.62858201153657823623e-02, -3.65315727442169155270e-02, 4.97687799461593236017e-02,
         -5.83357013379057348645e-02, 6.66107313738753120669e-02, -7.69187620504482999495e-02,
         9.09088713343650656196e-02, -1.11111104054623557880e-01, 1.42857142725034663711e-01,
         -1.99999999998764832476e-01, 3.33333333333329318027e-01)  # fmt: skip

_LOG_2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)  # its leading 32 bits, and the rest

# π to 160 bits; half of it in parts of 26 bits, so that a part times a number of 27 bits is exact.
_PI = Fraction(0x3243F6A8885A308D313198A2E03707344A409382, 1 << 156)


def _parts(value: Fraction, bits: int, count: int) -> list[float]:
    parts = []
    scale = Fraction(1 << (bits - 1))
    for _ in range(count):
        part = Fraction(math.floor(value * scale), 1) / scale
        parts.append(float(part))
        value -= part
        scale *= 1 << bits
    return parts


_HALF_PI = _parts(_PI / 2, 26, 5)


def sin_kernel(r: Tensor) -> Tensor:
    """sin on [-π/4, π/4]."""
    z = r * r
    return r + r * z * polynomial(z, _SIN)


def cos_kernel(r: Tensor) -> Tensor:
    """cos on [-π/4, π/4]."""
    z = r * r
    return 1 - (0.5 * z - z * z * polynomial(z, _COS))


def _reduced(x: Tensor) -> tuple[Tensor, Tensor]:
    """x minus the nearest multiple of π/2, and that multiple modulo 4; exact for |x| < 2^50."""
    k = torch.round(x * (2 / math.pi))
    high = torch.round(k / 2.0**26) * 2.0**26
    low = k - high
    p = _HALF_PI
    r = x - high * p[0]
    for part, following in itertools.pairwise(p):
        r = r - low * part - high * following
    return r.clamp(-1, 1), k - 4 * torch.floor(k / 4)  # beyond 2^50, r is any number


def _quadrants(x: Tensor, shift: int) -> Tensor:
    r, quadrant = _reduced(x)
    if shift:
        quadrant = torch.where(quadrant == 3, 0.0, quadrant + 1)
    s, c = sin_kernel(r), cos_kernel(r)
    return torch.where(
        quadrant == 0, s, torch.where(quadrant == 1, c, torch.where(quadrant == 2, -s, torch.where(x == x, -c, x)))
    )


@rule(aten.sin.default)
def sin(x: Tensor) -> Tensor:
    return _quadrants(x, 0) if x.dtype is torch.float64 else _half_turns(x, cosine=False)


@rule(aten.cos.default)
def cos(x: Tensor) -> Tensor:
    return _quadrants(x, 1) if x.dtype is torch.float64 else _half_turns(x, cosine=True)


def _half_turns(x: Tensor, *, cosine: bool) -> Tensor:
    """Sine or cosine of narrower types, right to float32 for |x| < 10^8; digits are lost beyond.

    Their lowering reduces its argument in float32: of 10,000, three digits are right.
    """
    angle = wide(x).to(torch.float64)
    turns = angle * (1 / math.pi)
    whole = torch.round(turns + 0.5 if cosine else turns)
    turns = whole - 0.5 if cosine else whole
    for part in _HALF_PI[:3]:
        angle = angle - turns * (2 * part)
    sine = sin_kernel(angle.clamp(-2, 2))  # the next term of the series is below 10^-9 at π/2
    half = 0.5 * whole
    return torch.where(half == torch.floor(half), sine, -sine).to(float_type(x))


@rule(aten.tan.default)
def tan(x: Tensor) -> Tensor:
    """Of any type: near its poles, float32's own lowering has no right digit."""
    r, quadrant = _reduced(wide(x).to(torch.float64))
    s, c = sin_kernel(r), cos_kernel(r)
    odd = (quadrant == 1) | (quadrant == 3)
    return (torch.where(odd, -c, s) / torch.where(odd, s, c)).to(float_type(x))


@rule(aten.atan.default)
def atan(x: Tensor) -> Tensor:
    """Of any type: float32's own lowering is right to 25 units in the last place."""
    y = wide(x)
    a = y.abs()
    # atan(a) = base + atan(t) with |t| < 7/16
    cases = (
        (a < 0.4375, 0.0, a),
        (a < 0.6875, math.atan(0.5), (2 * a - 1) / (2 + a)),
        (a < 1.1875, math.pi / 4, (a - 1) / (a + 1)),
        (a < 2.4375, math.atan(1.5), (a - 1.5) / (1 + 1.5 * a)),
    )
    base, t = torch.full_like(a, math.pi / 2), -1 / a
    for condition, offset, argument in reversed(cases):
        base, t = torch.where(condition, offset, base), torch.where(condition, argument, t)
    z = t * t
    angle = base + (t - t * z * polynomial(z, _ATAN))
    return torch.where(y < 0, -angle, torch.where(y == 0, y, angle)).to(float_type(x))


@rule(aten.atan2.default)
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """Of any type: IREE's own gives NaN at the origin."""
    dtype = torch.result_type(y, x)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    y, x = wide(y.to(dtype)), wide(x.to(dtype))
    a, b = y.abs(), x.abs()
    both = (a == math.inf) & (b == math.inf)
    ratio = torch.where(both, 1.0, a / torch.where((a == 0) & (b == 0), 1.0, b))
    angle = torch.atan(ratio)
    left = (x < 0) | ((x == 0) & (1 / x < 0))
    angle = torch.where(left, math.pi - angle, angle)
    below = (y < 0) | ((y == 0) & (1 / y < 0))
    signed = torch.where(below, -angle, angle)
    return torch.where(torch.isnan(x) | torch.isnan(y), math.nan, signed).to(dtype)


@_for_doubles(aten.asin.default)
def asin(x: Tensor) -> Tensor:
    return atan(x / torch.sqrt((1 - x) * (1 + x)))


@_for_doubles(aten.acos.default)
def acos(x: Tensor) -> Tensor:
    return 2 * atan(torch.sqrt((1 - x) / (1 + x)))


@_for_doubles(aten.tanh.default)
def tanh(x: Tensor) -> Tensor:
    e = torch.expm1(-2 * x.abs())
    magnitude = -e / (2 + e)
    return torch.where(x < 0, -magnitude, torch.where(x == 0, x, magnitude))


@_for_doubles(aten.expm1.default)
def expm1(x: Tensor) -> Tensor:
    """The errors of e^x and of its logarithm are the same near 1 (W. Kahan); the lowering subtracts 1 alone."""
    e = torch.exp(x)
    near = (e - 1) * (x / torch.where(e == 1, 1.0, torch.log(e)))
    return torch.where(e == 1, x, torch.where(x.abs() < 1, near, e - 1))


@_for_doubles(aten.log1p.default)
def log1p(x: Tensor) -> Tensor:
    whole = 1 + x
    near = torch.log(whole) * (x / torch.where(whole == 1, 1.0, whole - 1))
    return torch.where(whole == 1, x, torch.where(x.abs() < 1, near, torch.log(whole)))


@_for_doubles(aten.exp2.default)
def exp2(x: Tensor) -> Tensor:
    """The whole part times the leading bits of the logarithm of 2 is exact; the lowering rounds that product."""
    x = x.clamp(-1100, 1100)
    whole = torch.round(x)
    leading, rest = _LOG_2
    return torch.exp(whole * leading) * torch.exp(whole * rest + (x - whole) * math.log(2))


@_for_doubles(aten.log2.default)
def log2(x: Tensor) -> Tensor:
    return torch.log(x) * (1 / math.log(2))


@_for_doubles(aten.erf.default)
def erf(x: Tensor) -> Tensor:
    z = x * x
    series = [(-1.0) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(20)]
    near = 2 / math.sqrt(math.pi) * x * polynomial(z, series[::-1])
    far = 1 - torch.erfc(x.abs())
    return torch.where(x.abs() < 1, near, torch.where(x < 0, -far, far))
