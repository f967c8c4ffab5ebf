"""What the operations of the arith and math dialects compute, on numpy arrays, infinities and NaN included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_BF16 = "bf16"


class _ElementTypes(dict[str, np.dtype[Any]]):
    """By name. ``bf16`` is of another package, which those who only read a lineage need not have."""

    def __missing__(self, name: str) -> np.dtype[Any]:
        if name != _BF16:
            raise KeyError(name)
        import ml_dtypes

        self[name] = np.dtype(ml_dtypes.bfloat16)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name == _BF16 or super().__contains__(name)


DTYPES = _ElementTypes(
    f64=np.dtype(np.float64),
    f32=np.dtype(np.float32),
    f16=np.dtype(np.float16),
    index=np.dtype(np.int64),
    i64=np.dtype(np.int64),
    i32=np.dtype(np.int32),
    i16=np.dtype(np.int16),
    i8=np.dtype(np.int8),
    i1=np.dtype(np.bool_),
)
FLOATS = ("f16", "bf16", "f32", "f64")


def is_float(dtype: str) -> bool:
    """Whether an element type is a floating-point one."""
    return dtype in FLOATS


def _ordered(compare: Callable[[Array, Array], Array], *, unordered: bool) -> Callable[[Array, Array], Array]:
    def run(a: Array, b: Array) -> Array:
        nan = np.isnan(a) | np.isnan(b)
        return compare(a, b) | nan if unordered else compare(a, b) & ~nan

    return run


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _unsigned(x: Array) -> Array:
    return x if x.dtype == np.bool_ else x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _cmpi(predicate: str) -> Callable[[Array, Array], Array]:
    if predicate[0] in "su" and predicate[1:] in _COMPARE:
        compare = _COMPARE[predicate[1:]]
        if predicate[0] == "u":
            return lambda a, b: compare(_unsigned(a), _unsigned(b))
        return compare
    return _COMPARE[predicate]


def _cmpf(predicate: str) -> Callable[[Array, Array], Array]:
    if predicate == "ord":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if predicate == "uno":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    return _ordered(_COMPARE[predicate[1:]], unordered=predicate[0] == "u")


def _truncated_quotient(a: Array, b: Array) -> Array:
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)

_ARITH: dict[str, Callable[..., Any]] = {
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "remf": np.fmod,
    "negf": np.negative,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "divsi": _truncated_quotient,
    "remsi": np.fmod,
    "divui": lambda a, b: _unsigned(a) // _unsigned(b),
    "remui": lambda a, b: _unsigned(a) % _unsigned(b),
    "ceildivui": lambda a, b: _unsigned(a) // _unsigned(b) + (_unsigned(a) % _unsigned(b) != 0),
    "floordivsi": np.floor_divide,
    "ceildivsi": lambda a, b: -((-a) // b),
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "maxui": lambda a, b: np.maximum(_unsigned(a), _unsigned(b)),
    "minui": lambda a, b: np.minimum(_unsigned(a), _unsigned(b)),
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "shli": np.left_shift,
    "shrsi": np.right_shift,
    "select": np.where,
    "uitofp": _unsigned,
    "extui": _unsigned,
    "index_castui": _unsigned,
    "fptosi": np.trunc,
    "fptoui": np.trunc,
}
_CASTS = frozenset(["extf", "truncf", "sitofp", "extsi", "trunci", "index_cast"])

_MATH: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": lambda x: np.asarray(_erf(x), np.float64),
    "erfc": lambda x: np.asarray(_erfc(x), np.float64),
    "absf": np.abs,
    "absi": np.abs,
    "powf": np.power,
    "fpowi": np.power,
    "ipowi": np.power,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "roundeven": np.round,
    "copysign": np.copysign,
    "fma": lambda a, b, c: np.asarray(a, np.float64) * b + c,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}


class UnknownOperationError(ValueError):
    """An expression uses an operation that nothing here knows."""


def _function(op: str) -> Callable[..., Any]:
    dialect, _, name = op.partition(".")
    name, _, predicate = name.partition(":")
    if dialect == "arith" and name == "cmpf":
        return _cmpf(predicate)
    if dialect == "arith" and name == "cmpi":
        return _cmpi(predicate)
    if dialect == "arith" and name in _CASTS:
        return lambda x: x
    table = {"arith": _ARITH, "math": _MATH}.get(dialect, {})
    if name not in table:
        raise UnknownOperationError(f"{op} is not an operation that chains can be evaluated with")
    return table[name]


def is_known(op: str) -> bool:
    """Whether `compute` knows an operation."""
    try:
        _function(op)
    except (UnknownOperationError, KeyError):
        return False
    return True


def compute(op: str, args: tuple[Array, ...], dtype: str) -> Array:
    """The result of one operation, element by element, rounded to the element type ``dtype``.

    Half precisions are computed in f32 and rounded, as the hardware's own half arithmetic rounds.

    Raises:
        UnknownOperationError: no such operation.
    """
    wide = tuple(x.astype(np.float32) if x.dtype.name in ("bfloat16", "float16") else x for x in args)
    with np.errstate(all="ignore"):
        return np.asarray(_function(op)(*wide)).astype(DTYPES[dtype])


_COMBINE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "maxnum": np.fmax,
    "minnum": np.fmin,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def fold(combine: str, values: Array, axes: tuple[int, ...], initial: float, dtype: str) -> Array:
    """``values`` combined over ``axes`` starting from ``initial``, half precisions in f32."""
    target = DTYPES[dtype]
    wide = np.dtype(np.float32) if dtype in ("f16", "bf16") else target
    with np.errstate(all="ignore"):
        ufunc = _COMBINE[combine]
        start = np.asarray(initial).astype(wide)
        if math.prod(values.shape[a] for a in axes) == 0:
            kept = [n for a, n in enumerate(values.shape) if a not in axes]
            return np.full(kept, start).astype(target)
        total = values.astype(wide)
        for axis in sorted(axes, reverse=True):
            total = np.asarray(ufunc.reduce(total, axis=axis, dtype=wide))
        return np.asarray(ufunc(total, start)).astype(target)
