"""Elementary functions on scalars and vectors, accurate to a unit or two in the last place.

Infinities and NaN come out as in IEEE arithmetic: none is tested for, the clamps are written so that the hardware's
minimum and maximum pass NaN on, and the scale 2^n is exactly 0 below the smallest normal number.
"""

from __future__ import annotations

import math as pymath
from dataclasses import dataclass

import iree.compiler.dialects.math as math
import iree.compiler.ir as ir
from iree.compiler.dialects import arith

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.machine.elements import bits


@dataclass(frozen=True)
class _Exp:
    """How exp is computed in one element type: ``exp(x) = 2^n * p(x - n ln 2)``.

    ``high + low`` is ln 2. ``poly``: coefficients of p, the highest power first; the last one is 1.
    """

    integer: str
    mantissa: int
    bias: int
    high: float
    low: float
    poly: tuple[float, ...]


_EXP = {
    "f32": _Exp(
        "i32",
        23,
        127,
        0.693359375,
        -2.12194440054690583e-4,
        (0.00829028524, 0.0418980718, 0.166676372, 0.499991477, 0.999999702, 1.0),
    ),
    "f64": _Exp(
        "i64",
        52,
        1023,
        6.93147180369123816490e-01,
        1.90821492927058770002e-10,
        tuple(1 / pymath.factorial(n) for n in range(13, -1, -1)),
    ),
}


def fma(code: KernelBuilder, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``, rounded once."""
    return math.fma(a, b, c)


def exp(code: KernelBuilder, x: Value, *, bounded: bool = False) -> Value:
    """e^x. Below the smallest normal number it is 0.

    Args:
        bounded: x is known not to be positive (or NaN): the result cannot overflow.
    """
    if not code.exact:
        return math.exp(x)
    p = _EXP[code.dtype(x)]
    bias = p.bias if bounded else p.bias - 1  # 2^n may overflow where the result does not: 2^(n-1), then twice that
    magic = 1.5 * 2.0**p.mantissa + bias  # a float whose last bits are the integer n + bias once n is added to it
    lowest = code.like(-bias * pymath.log(2), x)  # there n + bias is 0, which as an exponent means 0
    clamped = larger(code, lowest, x)
    if not bounded:
        clamped = smaller(code, code.like((p.bias + 2) * pymath.log(2), x), clamped)
    shifted = fma(code, clamped, code.like(1 / pymath.log(2), x), code.like(magic, x))
    n = code.op("subf", shifted, code.like(magic, x))
    rest = fma(code, n, code.like(-p.high, x), clamped)
    rest = fma(code, n, code.like(-p.low, x), rest)
    value = code.like(p.poly[0], x)
    for coefficient in p.poly[1:]:
        value = fma(code, value, rest, code.like(coefficient, x))
    exponent = code.cast("bitcast", shifted, p.integer)
    exponent = code.op("shli", exponent, code.like(p.mantissa, exponent))
    value = code.op("mulf", value, code.cast("bitcast", exponent, code.dtype(x)))
    return value if bounded else code.op("addf", value, value)


def compare(code: KernelBuilder, predicate: str, a: Value, b: Value) -> Value:
    """A comparison of floats by its name in arith."""
    return arith.cmpf(getattr(arith.CmpFPredicate, predicate.upper()), a, b)


def larger(code: KernelBuilder, a: Value, b: Value) -> Value:
    """The larger of two floats, b if either is NaN: as the hardware's instruction has it."""
    return code.op("select", compare(code, "ogt", a, b), a, b)


def smaller(code: KernelBuilder, a: Value, b: Value) -> Value:
    """The smaller of two floats, b if either is NaN."""
    return code.op("select", compare(code, "olt", a, b), a, b)


def tanh(code: KernelBuilder, x: Value) -> Value:
    """tanh x as a rational function (the coefficients are Eigen's), exact 1 beyond where it rounds to 1."""
    if code.dtype(x) != "f32":
        return math.tanh(x)
    bound = code.like(7.90531110763549805, x)
    least = code.like(-7.90531110763549805, x)
    clamped = smaller(code, bound, larger(code, least, x))
    square = code.op("mulf", clamped, clamped)
    over = code.like(-2.76076847742355e-16, x)
    for c in (
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    ):
        over = fma(code, over, square, code.like(c, x))
    under = code.like(1.19825839466702e-06, x)
    for c in (1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03):
        under = fma(code, under, square, code.like(c, x))
    return code.op("divf", code.op("mulf", clamped, over), under)


# Coefficients of two polynomials, by N. Juffa: each gives erf within one unit in the last place on its part.
_ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_ERF_FAR = (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1)


def erf(code: KernelBuilder, x: Value) -> Value:
    """erf x: x plus a polynomial in x² times x near 0, one less e to the power of a polynomial in abs(x) elsewhere."""
    if code.dtype(x) != "f32" or not code.exact:
        return math.erf(x)
    size, square = math.absf(x), code.op("mulf", x, x)
    high = fma(code, code.like(-1.72853470e-5, x), size, code.like(3.83197126e-4, x))
    low = fma(code, code.like(-3.88396438e-3, x), size, code.like(2.42546219e-2, x))
    power = fma(code, high, square, low)
    for c in _ERF_FAR:
        power = fma(code, power, size, code.like(c, x))
    power = fma(code, power, size, arith.negf(size))
    far = math.copysign(code.op("subf", code.like(1.0, x), exp(code, power, bounded=True)), x)
    near = code.like(_ERF_NEAR[0], x)
    for c in _ERF_NEAR[1:]:
        near = fma(code, near, square, code.like(c, x))
    near = fma(code, near, x, x)
    return code.op("select", compare(code, "ogt", size, code.like(0.927734375, x)), far, near)


# 2 to the power of abs(x) times a polynomial is 1 - erf(abs(x)) within 6e-8, and falls as that does until 2^-127; of it
# -abs(x) is apart, which keeps rounding errors small. The second one is 2^r, without its 1, for abs(r) <= 1/2.
_ERFC = (
    -0.6279118061065674,
    -0.9183608293533325,
    -0.14879010617733002,
    0.029028458520770073,
    -0.00177131372038275,
    -0.0008125989697873592,
    0.00021609074610751122,
    -1.4956536688259803e-05,
)
_ERFC_ENDS = 8.625
_EXP2 = (1.3264723820611835e-3, 9.671512991189957e-3, 5.550733581185341e-2, 2.4022242426872253e-1, 6.931470036506653e-1)


def one_and_erf(code: KernelBuilder, x: Value) -> Value:
    """1 + erf x, as GELU has it, in fewer operations than `erf`, whose digits near 0 it can do without.

    Below 0 it is ``e = 1 - erf(abs(x))``, above ``2 - e``. Its error is two units in the last place of 1, or 0.2 % of
    the result for x from -3 to 0.
    """
    if code.dtype(x) != "f32" or not code.exact:
        return code.op("addf", erf(code, x), code.like(1.0, x))
    size = smaller(code, code.like(_ERFC_ENDS, x), math.absf(x))
    square = code.op("mulf", size, size)
    # Even and odd powers apart: two short chains of operations in place of a long one.
    even, odd = (code.like(coefficient, x) for coefficient in _ERFC[-2:])
    for c, d in zip(_ERFC[-4::-2], _ERFC[-3::-2], strict=True):
        even, odd = fma(code, even, square, code.like(c, x)), fma(code, odd, square, code.like(d, x))
    power = fma(code, fma(code, odd, size, even), size, arith.negf(size))
    p = _EXP["f32"]
    magic = code.like(1.5 * 2.0**p.mantissa + p.bias, x)
    shifted = code.op("addf", power, magic)
    rest = code.op("subf", power, code.op("subf", shifted, magic))
    value = code.like(_EXP2[0], x)
    for coefficient in (*_EXP2[1:], 1.0):
        value = fma(code, value, rest, code.like(coefficient, x))
    exponent = code.cast("bitcast", shifted, p.integer)
    exponent = code.op("shli", exponent, code.like(p.mantissa, exponent))
    scale = math.copysign(code.cast("bitcast", exponent, code.dtype(x)), arith.negf(x))
    return fma(code, value, scale, code.op("addf", code.like(1.0, x), math.copysign(code.like(1.0, x), x)))


def reciprocal(code: KernelBuilder, x: Value) -> tuple[Value, Value]:
    """-> (s, r) with ``y / x = (y * s) * r`` for every scalar x: s keeps r from overflow and from losing bits."""
    limit = 2.0**64
    size = math.absf(x)
    one = code.like(1.0, x)
    scale = code.op("select", compare(code, "olt", size, code.like(1 / limit, x)), code.like(limit, x), one)
    scale = code.op("select", compare(code, "ogt", size, code.like(limit, x)), code.like(1 / limit, x), scale)
    return scale, code.op("divf", one, code.op("mulf", x, scale))


def as_bf16(code: KernelBuilder, x: Value) -> Value:
    """x, in single precision, as the nearest number that bf16 has, of two the even one.

    By its bits: IREE computes all bf16 in single precision, and what rounds to it and back in nothing.
    """
    bits = code.cast("bitcast", x, "i32")
    odd = code.op("andi", code.op("shrui", bits, code.like(16, bits)), code.like(1, bits))
    nearest = code.op("addi", code.op("addi", bits, code.like(0x7FFF, bits)), odd)
    nearest = code.op("andi", nearest, code.like(-0x10000, bits))
    return code.op("select", compare(code, "uno", x, x), x, code.cast("bitcast", nearest, code.dtype(x)))


_AVX = 256
"""Bits of the vectors of machines of which all round floats to whole numbers by an instruction."""


def roundeven(code: KernelBuilder, x: Value) -> Value:
    """The whole number nearest to x, of two the even one.

    IREE writes some thirty operations on bits for the operation of the math dialect, whatever the machine has.
    """
    if not code.exact or code.lanes * bits(code.dtype(x)) < _AVX:
        return math.roundeven(x)
    return ir.Operation.create("llvm.intr.roundeven", [x.type], [x]).result


_PLAIN = (
    "exp2 expm1 log log2 log10 log1p sqrt sin cos tan erf erfc absf powf floor ceil",
    "round roundeven trunc copysign",
)
KNOWN = frozenset(" ".join((*_PLAIN, "exp tanh rsqrt isnan isinf isfinite")).split())
"""Functions of the math dialect that there is code for."""


def call(code: KernelBuilder, name: str, *args: Value) -> Value:
    """A function of the math dialect."""
    x = args[0]
    if name == "exp":
        return exp(code, x)
    if name == "tanh":
        return tanh(code, x)
    if name == "erf":
        return erf(code, x)
    if name == "roundeven":
        return roundeven(code, x)
    if name == "rsqrt":
        return code.op("divf", code.like(1.0, x), math.sqrt(x))
    if name in ("isnan", "isinf", "isfinite"):
        if name == "isnan":
            return compare(code, "uno", x, x)
        infinite = compare(code, "oeq", math.absf(x), code.like(pymath.inf, x))
        return infinite if name == "isinf" else compare(code, "olt", math.absf(x), code.like(pymath.inf, x))
    return getattr(math, name)(*args)
