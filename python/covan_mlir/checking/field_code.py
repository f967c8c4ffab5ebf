"""Scalar operations of code (the arith and math dialects), in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from covan_mlir.checking.field import (
    PAIR,
    Exact,
    absolute,
    is_function,
    lifted,
    maximum,
    minimum,
    narrowed,
    power,
    rounded,
    uninterpreted,
    where,
)
from covan_mlir.fred.scalars import Array, UnknownOperationError, compute

_OPERATIONS: Mapping[str, Callable[..., Exact]] = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": lambda a, b: a / b,
    "arith.negf": lambda a: -a,
    "arith.maximumf": maximum,
    "arith.minimumf": minimum,
    "arith.maxnumf": partial(maximum, numbers=True),
    "arith.minnumf": partial(minimum, numbers=True),
    "arith.extf": lambda a: a,
    "arith.truncf": narrowed,
    "math.fma": lambda a, b, c: a * b + c,
    "math.absf": absolute,
    "math.rsqrt": lambda a: Exact.of(1) / uninterpreted("sqrt", a),
    "math.expm1": lambda a: uninterpreted("exp", a) - 1,
    "math.log1p": lambda a: uninterpreted("log", a + 1),
    "math.erfc": lambda a: Exact.of(1) - uninterpreted("erf", a),
    "math.powf": power,
    "math.fpowi": power,
    "math.floor": partial(rounded, np.floor),
    "math.ceil": partial(rounded, np.ceil),
    "math.trunc": partial(rounded, np.trunc),
    "math.round": partial(rounded, lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "math.roundeven": partial(rounded, np.round),
}


def computed(op: str, args: Sequence[Array], kind: str) -> Array:
    """The result of one operation on pairs and integers: pairs, if its type is a float.

    Raises:
        UnknownOperationError: it is none of these.
    """
    if kind != "f64":
        return compute(op, tuple(one["value"] if one.dtype == PAIR else one for one in args), kind)
    if op == "arith.select":
        return where(args[0], args[1], args[2]).pairs
    if op in _OPERATIONS:
        return _OPERATIONS[op](*map(Exact.of, args)).pairs
    if op.startswith("math.") and is_function(op.removeprefix("math.")):
        return uninterpreted(op.removeprefix("math."), *args).pairs
    if any(one.dtype == PAIR for one in args):
        raise UnknownOperationError(f"{op} is not an operation that is evaluated in exact arithmetic")
    return lifted(compute(op, tuple(args), kind))
