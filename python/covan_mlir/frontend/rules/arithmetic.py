"""Element-wise operations that torch-mlir lowers wrongly, or only for some element types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from covan_mlir.frontend.rules.registry import RULES, float_type, promoted, rule, wide

aten = torch.ops.aten

_DIGITS = 1e-13
"""What a power in float64 may be off by, relative to it."""
Number = Any  # int, float, bool, or a symbolic one

_BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


@rule(aten.clamp.default, aten.clip.default)
def clamp(x: Tensor, min: Number = None, max: Number = None) -> Any:
    # torch-mlir's comparison takes NaN for a number below the minimum, and has no fractional bounds of integers.
    dtype = x.dtype
    for bound in (min, max):
        if bound is not None:
            dtype = torch.promote_types(dtype, torch.result_type(x, bound))
    if not dtype.is_floating_point:
        return NotImplemented
    x = x.to(dtype)
    if any(isinstance(bound, float) and bound != bound for bound in (min, max)):
        return torch.full_like(x, math.nan)
    if min is not None:
        x = torch.where(x < min, min, x)
    if max is not None:
        x = torch.where(x > max, max, x)
    return x


@rule(aten.hardtanh.default)
def hardtanh(x: Tensor, min_val: Number = -1, max_val: Number = 1) -> Any:
    return clamp(x, min_val, max_val) if x.dtype.is_floating_point else NotImplemented


@rule(aten.clamp_min.default)
def clamp_min(x: Tensor, min: Number) -> Any:
    return clamp(x, min)


@rule(aten.clamp_max.default)
def clamp_max(x: Tensor, max: Number) -> Any:
    return clamp(x, None, max)


@rule(aten.clamp.Tensor)
def clamp_tensor(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    if min is not None:
        x = torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


@rule(aten.maximum.default)
def maximum(a: Tensor, b: Tensor) -> Any:
    if a is b:  # the compilers leave nothing of the comparison
        return a.clone()
    # torch-mlir's comparison keeps a NaN on one side only.
    dtype = torch.result_type(a, b)
    if not dtype.is_floating_point:
        return NotImplemented
    a, b = a.to(dtype), b.to(dtype)
    return torch.where((a > b) | torch.isnan(a), a, b)


@rule(aten.minimum.default)
def minimum(a: Tensor, b: Tensor) -> Any:
    if a is b:
        return a.clone()
    dtype = torch.result_type(a, b)
    if not dtype.is_floating_point:
        return NotImplemented
    a, b = a.to(dtype), b.to(dtype)
    return torch.where((a < b) | torch.isnan(a), a, b)


@rule(aten.trunc.default)
def trunc(x: Tensor) -> Any:
    # torch-mlir takes the sign and the magnitude apart, and shares them with operations that the user wrote.
    return torch.where(x < 0, torch.ceil(x), torch.floor(x)) if x.dtype.is_floating_point else NotImplemented


def _extreme(op: OpOverload) -> None:
    @rule(op)
    def extreme(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        # torch-mlir does, and shares what comes first with operations along fewer axes.
        axes = sorted((axis % max(x.dim(), 1) for axis in dim or range(x.dim())), reverse=True)
        if len(axes) < 2:
            return NotImplemented
        for axis in axes:
            x = op(x, [axis], keepdim)
        return x


for _op in (aten.amax.default, aten.amin.default):
    _extreme(_op)


@rule(aten.neg.default)
def neg(x: Tensor) -> Any:
    # torch-mlir turns whole numbers into float32 for it, which has 24 bits of them.
    return NotImplemented if x.dtype.is_floating_point or x.dtype.is_complex else 0 - x


@rule(torch.ops.prims.convert_element_type.default)
def convert(x: Tensor, dtype: torch.dtype) -> Any:
    # The compiler's own way from float64 to float16 gives 0 for what is below 2^-14.
    if x.dtype is not torch.float64 or dtype is not torch.float16:
        return NotImplemented
    return x.to(torch.float32).to(dtype)


@rule(aten.isfinite.default)
def isfinite(x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        return torch.ones_like(x, dtype=torch.bool)
    return x.abs() < math.inf


@rule(aten.isinf.default, aten.isnan.default)
def is_no_number(x: Tensor) -> Any:
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return NotImplemented
    return torch.zeros_like(x, dtype=torch.bool)


@rule(aten.eq.Tensor)
def eq(a: Tensor, b: Tensor) -> Any:
    # x == x is folded to true, NaN or not.
    return ~torch.isnan(a) if a is b and a.dtype.is_floating_point else NotImplemented


@rule(aten.gelu.default)
def gelu(x: Tensor, *, approximate: str = "none") -> Any:
    # torch-mlir's constant for the tanh form has three digits.
    if approximate != "tanh":
        return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5))) if x.dtype is torch.float64 else NotImplemented
    y = wide(x)
    inner = math.sqrt(2 / math.pi) * (y + 0.044715 * (y * y * y))
    return (0.5 * y * (1 + torch.tanh(inner))).to(x.dtype)


@rule(aten.fmax.default)
def fmax(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(torch.isnan(a), b, torch.where(torch.isnan(b), a, torch.maximum(a, b)))


@rule(aten.fmin.default)
def fmin(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(torch.isnan(a), b, torch.where(torch.isnan(b), a, torch.minimum(a, b)))


@rule(aten.signbit.default)
def signbit(x: Tensor) -> Tensor:
    # By division, because linalg has no lowering for a view as integers; the sign of NaN is lost.
    if x.dtype.is_floating_point:
        return (x < 0) | ((x == 0) & (1 / x < 0))
    return torch.zeros_like(x) if x.dtype is torch.bool else x < 0


@rule(aten.copysign.Tensor)
def copysign(a: Tensor, b: Tensor) -> Tensor:
    dtype = torch.result_type(a, b)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    size = a.to(dtype).abs()
    return torch.where(signbit(b), -size, size)


@rule(aten.copysign.Scalar)
def copysign_scalar(a: Tensor, b: Number) -> Tensor:
    size = a.to(float_type(a)).abs()
    return -size if math.copysign(1.0, b) < 0 else size


@rule(aten.hypot.default)
def hypot(a: Tensor, b: Tensor) -> Tensor:
    """Scaled by the larger side: no intermediate overflows."""
    dtype = torch.result_type(a, b)
    p, q = wide(a.to(dtype)).abs(), wide(b.to(dtype)).abs()
    big, small = torch.maximum(p, q), torch.minimum(p, q)
    ratio = small / torch.where(big == 0, 1.0, big)
    hypotenuse = big * torch.sqrt(1 + ratio * ratio)
    return torch.where((p == math.inf) | (q == math.inf), math.inf, hypotenuse).to(dtype)


@rule(aten.angle.default)
def angle(x: Tensor) -> Tensor:
    if x.dtype.is_complex:
        return torch.atan2(x.imag, x.real)
    y = x.to(float_type(x))
    return torch.where(torch.isnan(y), y, torch.where(y < 0, math.pi, torch.zeros_like(y)))


@rule(aten.log10.default)
def log10(x: Tensor) -> Tensor:
    # There is no log10 to link against.
    return (torch.log(wide(x)) / math.log(10)).to(float_type(x))


@rule(aten.rms_norm.default)
def rms_norm(x: Tensor, shape: list[Any], weight: Tensor | None = None, eps: float | None = None) -> Any:
    """Half precision through float32: its squares overflow."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return NotImplemented
    return torch.rms_norm(wide(x), shape, None if weight is None else wide(weight), eps).to(x.dtype)


@rule(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: Number = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Half precision through float32, as its powers overflow; torch-mlir has no broken powers."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        if isinstance(ord, int) or float(ord).is_integer() or math.isinf(ord) or x.dtype.is_complex:
            return NotImplemented
        powers = torch.pow(x.to(dtype or x.dtype).abs(), ord)
        return torch.pow(powers.sum(dim, keepdim) if dim is not None or keepdim else powers.sum(), 1 / ord)
    return torch.linalg.vector_norm(wide(x), ord, dim, keepdim).to(dtype or x.dtype)


@rule(aten.addbmm.default)
def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        beta, alpha = int(beta), int(alpha)  # whole numbers lose the fractions of factors, too
    product = torch.bmm(a, b).sum(0, dtype=x.dtype)
    return (x if beta == 1 else x * beta) + (product if alpha == 1 else product * alpha)


@rule(aten.pow.Tensor_Scalar)
def pow_scalar(x: Tensor, exponent: Number) -> Any:
    if x.dtype.is_complex or isinstance(exponent, complex):
        return NotImplemented
    if x.dtype in (torch.float16, torch.bfloat16):
        return torch.pow(wide(x), exponent).to(x.dtype)
    if x.dtype.is_floating_point:
        return _fractional_power(x, exponent)
    dtype = torch.result_type(x, exponent)
    if dtype.is_floating_point:
        return torch.pow(x.to(dtype), exponent)
    if not isinstance(exponent, int) or exponent < 0:
        return NotImplemented  # torch refuses negative powers of integers
    x, power = x.to(dtype), torch.ones_like(x, dtype=dtype)
    while exponent:
        if exponent & 1:
            power = power * x
        exponent >>= 1
        x = x * x if exponent else x
    return power


@rule(aten.pow.Tensor_Tensor)
def pow_tensor(x: Tensor, exponent: Tensor) -> Any:
    dtype = torch.result_type(x, exponent)
    if dtype.is_complex:
        return NotImplemented
    if dtype.is_floating_point:
        return _power(x.to(torch.float64), exponent.to(torch.float64)).to(dtype)
    # By squaring; integers wrap as they do in eager. A negative power of an integer is the whole part of the fraction.
    base, n = x.to(dtype), exponent.to(torch.int64)
    power = torch.ones_like(base)
    for bit in range(torch.iinfo(exponent.dtype).bits if exponent.dtype is not torch.bool else 1):
        power = torch.where((n >> bit) & 1 != 0, power * base, power)
        base = base * base
    one = torch.ones_like(power)
    minus = torch.where((n & 1) != 0, -one, one)
    fraction = torch.where(x == 1, one, torch.where(x == -1, minus, torch.zeros_like(one)))
    return torch.where(n < 0, fraction, power)


def _power(x: Tensor, y: Tensor) -> Tensor:
    """By logarithms, in float64: the lowering loses digits of large powers, and knows no powers of negative numbers."""
    whole, size = torch.trunc(y) == y, x.abs()
    odd = y - 2 * torch.floor(y / 2) == 1
    one = (y == 0) | (x == 1) | ((size == 1) & (y.abs() == math.inf))
    value = torch.where(one, 1.0, torch.exp(y * torch.log(torch.where(one, 1.0, size))))
    value = torch.where(signbit(x) & odd, -value, value)
    return torch.where((x < 0) & (size < math.inf) & ~whole, math.nan, value)


def _fractional_power(x: Tensor, exponent: Number) -> Any:
    """The lowering is right for roots and for powers by multiplication; others lose digits, infinities and the sign of
    what is beyond 0."""
    if not isinstance(exponent, int | float) or exponent in (0.5, -0.5) or exponent != exponent:
        return NotImplemented
    if float(exponent).is_integer():
        return NotImplemented if exponent >= 0 else 1 / torch.pow(x, -exponent)
    y = x.to(torch.float64)
    power = torch.exp(exponent * torch.log(y.abs()))
    return torch.where((y < 0) & (y > -math.inf), math.nan, power).to(x.dtype)


@rule(aten.exp2.default)
def exp2(x: Tensor) -> Any:
    # By a product with the logarithm of 2, which the lowering rounds to float32, with the digits of a large power.
    if x.dtype is torch.float64 or x.dtype.is_complex:
        return NotImplemented
    return torch.exp(x.to(torch.float64) * math.log(2)).to(float_type(x))


@rule(aten.pow.Scalar)
def pow_base(base: Number, exponent: Tensor) -> Any:
    dtype = torch.result_type(base, exponent)
    if dtype.is_complex:
        return NotImplemented
    if base == 1:
        return torch.ones_like(exponent, dtype=dtype)
    if exponent.dtype.is_floating_point and 0 < base < math.inf:
        if base == 2:
            return torch.exp2(exponent)
        if exponent.dtype not in (torch.float16, torch.bfloat16):
            return NotImplemented
        # Eager rounds the base to the type of the exponent, and nothing else but the result.
        base = _rounded(float(base), torch.finfo(exponent.dtype))
        if 0 < base < math.inf:
            return torch.pow(base, wide(exponent)).to(dtype)
    return torch.pow(torch.scalar_tensor(base, dtype=dtype), exponent)


def _rounded(number: float, kind: torch.finfo) -> float:
    """A positive number in fewer bits. torch would leave its own rounding in the graph."""
    unit = math.ldexp(kind.eps, max(math.frexp(number)[1], math.frexp(kind.tiny)[1]) - 1)
    nearest = round(number / unit) * unit  # ties to even, both
    return nearest if nearest <= kind.max else math.inf


def _of_bytes(op: OpOverload) -> None:
    """Register whether any, or all, of bytes are not 0: a byte again, which the lowering has no form for."""

    def of_bytes(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return op(x != 0, *args, **kwargs).to(x.dtype) if x.dtype is torch.uint8 else NotImplemented

    rule(op)(of_bytes)


for _packet in (aten.any, aten.all):
    for _op in (_packet.default, _packet.dim, _packet.dims):
        _of_bytes(_op)


@rule(aten.ldexp.Tensor)
def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    return x.to(torch.result_type(x, 2.0)) * torch.pow(2.0, exponent)


@rule(aten.square.default)
def square(x: Tensor) -> Any:
    if x.dtype.is_floating_point:
        return NotImplemented
    x = x.to(torch.int64) if x.dtype is torch.bool else x
    return x * x


@rule(aten.frexp.Tensor)
def frexp(x: Tensor) -> Any:
    y = wide(x).reshape(-1)  # IREE's torch input crashes on a view without axes as another type
    digits, bias = (23, 126) if y.dtype is torch.float32 else (52, 1022)
    mask = (1 << (31 - digits if digits == 23 else 63 - digits)) - 1
    tiny = y.abs() < torch.finfo(y.dtype).smallest_normal
    scaled = torch.where(tiny, y * 2.0**digits, y)
    shift = (scaled.view(_BITS[y.dtype]) >> digits) & mask
    exponent = shift - bias - torch.where(tiny, digits, 0).to(shift.dtype)
    fraction = scaled.view(_BITS[y.dtype]) - ((shift - bias) << digits)
    special = (y == 0) | ~torch.isfinite(y)
    mantissa = torch.where(special, y, fraction.view(y.dtype))
    exponent = torch.where(special, torch.zeros_like(exponent), exponent).to(torch.int32)
    return mantissa.to(x.dtype).reshape(x.shape), exponent.reshape(x.shape)


@rule(aten.nextafter.default)
def nextafter(a: Tensor, b: Tensor) -> Any:
    """The neighbour's bits are those of a whole number more or less: numbers of one sign are ordered as their bits."""
    dtype = torch.result_type(a, b)
    if dtype not in _BITS:
        return NotImplemented
    a, b = torch.broadcast_tensors(a.to(dtype), b.to(dtype))  # type: ignore[no-untyped-call]  # torch's
    x, y = a.reshape(-1), b.reshape(-1)  # a view without axes as another type crashes IREE's torch input
    bits = x.view(_BITS[dtype])
    away = (y > x) == (x > 0)
    moved = torch.where(away, bits + 1, bits - 1).view(dtype)
    least = torch.ones_like(bits).view(dtype)
    moved = torch.where(x == 0, torch.where(y < 0, -least, least), moved)
    moved = torch.where(x == y, y, moved)
    return torch.where(torch.isnan(x) | torch.isnan(y), math.nan, moved).reshape(a.shape)


@rule(
    aten.linspace.default,
    aten.linspace.Tensor_Tensor,
    aten.linspace.Tensor_Scalar,
    aten.linspace.Scalar_Tensor,
)
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """From both ends to the middle, as in eager, which takes the fractions off the ends where integers are asked for.
    Torch's own decomposition computes halves in their own precision, and integers in float32."""
    if dtype in (None, torch.float32, torch.float64) or dtype.is_complex or dtype is torch.bool or steps < 2:
        return NotImplemented
    return _between(start, end, steps, dtype).to(dtype)


@rule(
    aten.logspace.default,
    aten.logspace.Tensor_Tensor,
    aten.logspace.Tensor_Scalar,
    aten.logspace.Scalar_Tensor,
)
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Any:
    """In integers, which powers that are a last digit too small would be one less of."""
    if dtype is None or dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        return NotImplemented
    power = torch.pow(base, _between(start, end, steps, dtype))
    whole = power.round()
    return torch.where((power - whole).abs() <= _DIGITS * whole.abs(), whole, power).to(dtype)


def _between(start: Any, end: Any, steps: int, dtype: torch.dtype) -> Tensor:
    """Numbers from one to another in equal steps, to become those of a type."""
    precision = torch.float32 if dtype.is_floating_point else torch.float64

    def bound(value: Any) -> Any:
        if isinstance(value, Tensor):
            return (value if dtype.is_floating_point else value.to(dtype)).to(precision)
        return value if dtype.is_floating_point else int(value)

    first, last = bound(start), bound(end)
    if steps < 2:
        return torch.zeros(steps, dtype=precision).add(first)
    step = (last - first) / (steps - 1)
    place = torch.arange(steps).to(precision)
    return torch.where(place < steps // 2, first + step * place, last - step * (steps - 1 - place))


@rule(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange(*bounds: Number, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """Fractions are computed from their places in float64, as in eager; torch-mlir adds steps up. Ranges of 8-bit
    numbers, which end its process, are computed in 32 bits."""
    first, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    dtype = dtype or torch.get_default_dtype()
    if dtype in (torch.int8, torch.uint8):
        return torch.arange(first, end, step, dtype=torch.int32).to(dtype)
    if not dtype.is_floating_point or not any(isinstance(bound, float) for bound in (first, end, step)):
        return NotImplemented
    count = math.ceil((end - first) / step)
    return (torch.arange(count).to(torch.float64) * step + first).to(dtype)


def _with_tensors(op: OpOverload) -> Any:
    """The form with two tensors, for a form with a number."""

    def with_tensors(a: Any, b: Any) -> Any:
        return op(*promoted(a, b))

    return with_tensors


def _number_forms(*packets: OpOverloadPacket) -> None:
    for packet in packets:
        for name in ("Scalar", "Tensor_Scalar", "Scalar_Tensor"):
            if hasattr(packet, name):
                RULES[getattr(packet, name)] = _with_tensors(packet.Tensor)


_number_forms(
    aten.bitwise_or,
    aten.bitwise_xor,
    aten.bitwise_left_shift,
    aten.bitwise_right_shift,
)
RULES[aten.bitwise_and.Scalar_Tensor] = _with_tensors(aten.bitwise_and.Tensor)
RULES[aten.remainder.Scalar_Tensor] = _with_tensors(aten.remainder.Tensor)
for _old, _new in ((aten.__lshift__, aten.bitwise_left_shift), (aten.__rshift__, aten.bitwise_right_shift)):
    RULES[_old.Tensor] = _with_tensors(_new.Tensor)
    RULES[_old.Scalar] = _with_tensors(_new.Tensor)
