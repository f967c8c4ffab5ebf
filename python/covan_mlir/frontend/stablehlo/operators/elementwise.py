"""Operations on each element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.registry import Translation, operation, table
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused


def unary(function: Callable[[Tensor], Tensor]) -> Translation:
    """Of one operand."""
    return lambda call: unsigned.computed(function, call.tensor(0))


def binary(function: Callable[[Tensor, Tensor], Tensor]) -> Translation:
    """Of two."""
    return lambda call: unsigned.computed(function, *call.tensors())


def _neutral(translation: Translation, number: float, either: bool = True) -> Translation:
    """An operation of two, which gives back one where the other is a number that changes nothing."""

    def simplified(call: Call) -> Any:
        for index in (1, 0) if either else (1,):
            if call.only(index) == number and same_shape(call):
                return call.value(1 - index)
        return translation(call)

    return simplified


def same_shape(call: Call) -> bool:
    """Whether two operands have one shape; in functions of numbers, a number stands beside tensors."""
    known = [call.value(index).known for index in (0, 1)]
    shapes = [call.tensor(index).shape if each is None else each.shape for index, each in enumerate(known)]
    return shapes[0] == shapes[1]


def _extreme(function: Callable[[Tensor, Tensor], Tensor], which: int) -> Translation:
    """The larger or smaller of two; with the limit of all numbers, it is the other one."""

    def plain(call: Call) -> Tensor:
        return unsigned.ordered(function, *call.tensors())

    def translation(call: Call) -> Any:
        return _neutral(plain, limits(call.value(0).dtype)[which])(call)

    return translation


def limits(dtype: torch.dtype) -> tuple[float, float]:
    """The least and the largest number of a type."""
    if dtype is torch.bool:
        return 0, 1
    if dtype.is_floating_point or dtype.is_complex:
        return -math.inf, math.inf
    info = torch.iinfo(dtype)
    return info.min, info.max


def _logical(bits: Callable[..., Tensor], truth: Callable[..., Tensor]) -> Translation:
    def translation(call: Call) -> Tensor:
        operands = call.tensors()
        return truth(*operands) if operands[0].dtype is torch.bool else unsigned.computed(bits, *operands)

    return translation


def added(first: Tensor, second: Tensor) -> Tensor:
    """The sum; of truths, whether one of them holds."""
    return first | second if first.dtype is torch.bool else first + second


def multiplied(first: Tensor, second: Tensor) -> Tensor:
    """The product; of truths, whether both hold."""
    return first & second if first.dtype is torch.bool else first * second


def _sign(value: Tensor) -> Tensor:
    return torch.where(value != value, value, torch.sign(value)) if value.is_floating_point() else torch.sign(value)


def _away_from_zero(value: Tensor) -> Tensor:
    """Rounded to the nearest whole number, halves away from zero."""
    whole = torch.trunc(value)
    return torch.where((value - whole).abs() >= 0.5, whole + torch.sign(value), whole)


def _cube_root(value: Tensor) -> Tensor:
    """By a power, and a step of Newton's method."""
    size = value.abs().to(torch.float64)
    root = size.pow(1 / 3)
    safe = torch.where((size > 0) & torch.isfinite(size), root, torch.ones_like(root))
    better = torch.where((size > 0) & torch.isfinite(size), safe - (safe - size / (safe * safe)) / 3, size)
    return torch.copysign(better, value.to(torch.float64)).to(value.dtype)


def _power(first: Tensor, second: Tensor) -> Tensor:
    return torch.pow(first, second)


table(
    [
        ("stablehlo.abs", lambda call: call.tensor(0).abs()),
        ("stablehlo.negate", unary(torch.neg)),
        ("stablehlo.sign", unary(_sign)),
        ("stablehlo.ceil", unary(torch.ceil)),
        ("stablehlo.floor", unary(torch.floor)),
        ("stablehlo.round_nearest_even", unary(torch.round)),
        ("stablehlo.round_nearest_afz", unary(_away_from_zero)),
        ("stablehlo.exponential", unary(torch.exp)),
        ("stablehlo.exponential_minus_one", unary(torch.expm1)),
        ("stablehlo.log", unary(torch.log)),
        ("stablehlo.log_plus_one", unary(torch.log1p)),
        ("stablehlo.logistic", unary(torch.sigmoid)),
        ("stablehlo.sqrt", unary(torch.sqrt)),
        ("stablehlo.rsqrt", unary(torch.rsqrt)),
        ("stablehlo.cbrt", unary(_cube_root)),
        ("stablehlo.sine", unary(torch.sin)),
        ("stablehlo.cosine", unary(torch.cos)),
        ("stablehlo.tan", unary(torch.tan)),
        ("stablehlo.tanh", unary(torch.tanh)),
        ("stablehlo.is_finite", unary(torch.isfinite)),
        ("stablehlo.real", lambda call: torch.real(call.tensor(0))),
        ("stablehlo.imag", lambda call: torch.imag(call.tensor(0))),
        ("stablehlo.complex", lambda call: torch.complex(*call.tensors())),
        ("stablehlo.not", _logical(torch.bitwise_not, torch.logical_not)),
        ("stablehlo.and", _logical(torch.bitwise_and, torch.logical_and)),
        ("stablehlo.or", _logical(torch.bitwise_or, torch.logical_or)),
        ("stablehlo.xor", _logical(torch.bitwise_xor, torch.logical_xor)),
        ("stablehlo.add", binary(added)),
        ("stablehlo.subtract", _neutral(binary(torch.sub), 0, either=False)),
        ("stablehlo.multiply", _neutral(binary(multiplied), 1)),
        ("stablehlo.atan2", binary(torch.atan2)),
        ("stablehlo.power", binary(_power)),
        ("stablehlo.maximum", _extreme(torch.maximum, 0)),
        ("stablehlo.minimum", _extreme(torch.minimum, 1)),
        ("stablehlo.shift_left", lambda call: unsigned.shifted_left(*call.tensors())),
        ("stablehlo.shift_right_arithmetic", lambda call: _shifted_with_sign(*call.tensors())),
        ("stablehlo.shift_right_logical", lambda call: _shifted_with_zeros(*call.tensors())),
        ("stablehlo.optimization_barrier", lambda call: tuple(call.items)),
    ]
)


@operation("stablehlo.divide")
def divide(call: Call) -> Any:
    """The quotient; of integers, rounded to zero."""
    if call.only(1) == 1 and same_shape(call):
        return call.value(0)
    first, second = call.tensors()
    if first.is_floating_point() or first.is_complex():
        return first / second
    if _divides(call):
        return unsigned.divided(first, second)
    fits, divisor = _safe(first, second)
    return _where(fits, unsigned.divided(first, divisor), _where(_is_zero(second), _all_ones(first), first))


@operation("stablehlo.remainder")
def remainder(call: Call) -> Tensor:
    """With the sign of the dividend."""
    first, second = call.tensors()
    if first.is_floating_point() or _divides(call):
        return _remainder(first, second)
    fits, divisor = _safe(first, second)
    return _where(fits | ~_is_zero(second), _remainder(first, divisor), first)


def _remainder(first: Tensor, second: Tensor) -> Tensor:
    if first.dtype is torch.uint64:
        quotient = unsigned.divided(first, second)
        return unsigned.computed(lambda a, b, q: a - b * q, first, second, quotient)
    return unsigned.computed(torch.fmod, first, second)


def _divides(call: Call) -> bool:
    """Whether a divisor is known, and one that any integer can be divided by."""
    known = call.value(1).known
    if known is None:
        return False
    with _disable_current_modes():
        numbers = unsigned.signed(known)
        return not bool(((numbers == 0) | (numbers == -1)).any())


def _safe(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """-> (where a quotient is a number of its type, divisors with one in the place of others).

    As XLA has it, a number divided by zero gives all ones and leaves itself, and the least one by -1 is itself.
    """
    zero = _is_zero(second)
    if first.dtype in (*unsigned.WIDER, torch.uint8):
        bad = zero
    else:
        bad = zero | ((second == -1) & (first == torch.iinfo(first.dtype).min))
    return ~bad, unsigned.computed(lambda v: torch.where(bad, torch.ones_like(v), v), second)


def _is_zero(value: Tensor) -> Tensor:
    return unsigned.signed(value) == 0


def _all_ones(value: Tensor) -> Tensor:
    return (
        unsigned.computed(lambda v: torch.full_like(v, -1), value)
        if value.dtype is not torch.uint8
        else (torch.full_like(value, 255))
    )


def _where(condition: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return unsigned.computed(lambda a, b: torch.where(condition, a, b), first, second)


@operation("stablehlo.compare")
def compare(call: Call) -> Tensor:
    """Of complex numbers, only whether they are equal; by the total order of floats if that is asked for."""
    direction = call.attribute("comparison_direction")
    first, second = call.tensors()
    if call.attribute("compare_type") == "TOTALORDER":
        first, second = (_in_total_order(value) for value in (first, second))
    return unsigned.ordered(COMPARISONS[direction], first, second)


COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "EQ": torch.eq,
    "NE": torch.ne,
    "LT": torch.lt,
    "LE": torch.le,
    "GT": torch.gt,
    "GE": torch.ge,
}
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _in_total_order(value: Tensor) -> Tensor:
    """Integers that are ordered as floats are: negative zeros before positive ones, what is no number at the ends."""
    if not value.is_floating_point():
        return value
    integer = _INTEGERS[value.dtype.itemsize]
    bits = unsigned.bits(value, integer)
    return torch.where(bits < 0, bits ^ torch.iinfo(integer).max, bits)


def _shifted_with_zeros(value: Tensor, by: Tensor) -> Tensor:
    """To the right, zeros from the left."""
    if value.dtype in (*unsigned.WIDER, torch.uint8):
        return unsigned.shifted_right(value, by)
    width = torch.iinfo(value.dtype).bits
    inside = (by >= 0) & (by < width)
    n = torch.where(inside, by, torch.zeros_like(by)).to(torch.int64)
    wide = value.to(torch.int64)
    if width < 64:
        shifted = (wide & (2**width - 1)) >> n
    else:
        kept = torch.where(n == 0, torch.full_like(n, -1), (torch.ones_like(n) << (64 - n).clamp(max=63)) - 1)
        shifted = (wide >> n) & kept
    return torch.where(inside, shifted, torch.zeros_like(shifted)).to(value.dtype)


def _shifted_with_sign(value: Tensor, by: Tensor) -> Tensor:
    """To the right, the top bit from the left; by the width or more, as by one less."""
    width = torch.iinfo(value.dtype).bits
    by = unsigned.signed(by).to(torch.int64)
    n = torch.where((by < 0) | (by >= width), torch.full_like(by, width - 1), by)
    if value.dtype in (*unsigned.WIDER, torch.uint8):
        own = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
        return unsigned.bits((unsigned.bits(value, own).to(torch.int64) >> n).to(own), value.dtype)
    return (value.to(torch.int64) >> n).to(value.dtype)


@operation("stablehlo.popcnt")
def set_bits(call: Call) -> Tensor:
    """How many bits are set."""
    value = call.tensor(0)
    width = torch.iinfo(value.dtype).bits
    wide = unsigned.signed(value).to(torch.int64)
    count = sum(((wide >> bit) & 1 for bit in range(width)), torch.zeros_like(wide))
    return unsigned.converted(count, value.dtype)


@operation("stablehlo.count_leading_zeros")
def leading_zeros(call: Call) -> Tensor:
    """How many bits at the top are not set."""
    value = call.tensor(0)
    width = torch.iinfo(value.dtype).bits
    wide = unsigned.signed(value).to(torch.int64)
    above = torch.zeros_like(wide, dtype=torch.bool)
    count = torch.zeros_like(wide)
    for bit in reversed(range(width)):
        above = above | (((wide >> bit) & 1) != 0)
        count = count + (~above).to(torch.int64)
    return unsigned.converted(count, value.dtype)


@operation("stablehlo.select")
def select(call: Call) -> Tensor:
    """Of two, by a condition, which may be one for all."""
    return _where(*call.tensors())


@operation("stablehlo.clamp")
def clamp(call: Call) -> Tensor:
    """Between limits, each of which may be one number for all."""
    low, value, high = call.tensors()
    return unsigned.ordered(torch.minimum, unsigned.ordered(torch.maximum, value, low), high)


@operation("stablehlo.convert")
def convert(call: Call) -> Tensor:
    """To another type; of complex numbers the real part."""
    value, dtype = call.tensor(0), call.dtype()
    if value.is_complex() and not dtype.is_complex:
        value = torch.real(value)
    return unsigned.converted(value, dtype)


@operation("stablehlo.bitcast_convert")
def bits(call: Call) -> Tensor:
    """The same bits as another type; a last axis is split, or joined, where widths differ."""
    value, dtype = call.tensor(0), call.dtype()
    if value.dtype is torch.bool:
        return unsigned.bits(value.to(torch.uint8), dtype)
    if dtype is torch.bool:
        return value != 0
    if value.dtype.itemsize > dtype.itemsize:
        return value.unsqueeze(-1).view(dtype)
    if value.dtype.itemsize < dtype.itemsize:
        return value.contiguous().view(dtype).squeeze(-1)
    return unsigned.bits(value, dtype)


@operation("stablehlo.reduce_precision")
def reduce_precision(call: Call) -> Tensor:
    """Rounded as a narrower type has it, for those that torch has."""
    value = call.tensor(0)
    bits = call.attribute("exponent_bits"), call.attribute("mantissa_bits")
    known = {(5, 10): torch.float16, (8, 7): torch.bfloat16, (8, 23): torch.float32, (11, 52): torch.float64}
    narrow = known.get(bits)
    if narrow is None:
        raise Refused(f"there is no type of {bits[0]} and {bits[1]} bits")
    return (
        value
        if narrow.itemsize >= value.dtype.itemsize and narrow is not value.dtype
        else value.to(narrow).to(value.dtype)
    )
