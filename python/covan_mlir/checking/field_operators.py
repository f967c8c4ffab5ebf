"""torch's operators in exact arithmetic: those that work element by element, and those along dimensions.

Each is what its documentation says: sums, products, quotients, choices by value, and functions that are not rational.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from covan_mlir.checking.field import (
    PAIR,
    Exact,
    absolute,
    constant,
    extreme,
    lifted,
    maximum,
    minimum,
    power,
    product,
    rounded,
    softmax,
    stacked,
    total,
    uninterpreted,
    where,
)
from covan_mlir.fred.scalars import Array

Given = Mapping[str, Any]
"""Arguments by name: `Exact` for tensors of floats, arrays for others, numbers."""


def _narrow(number: float) -> Exact:
    """A constant of a formula, as programs hold it."""
    return Exact.of(constant(float(np.float32(number))))


def _clamped(value: Exact, low: Any, high: Any) -> Exact:
    if low is not None:
        value = maximum(value, low)
    return value if high is None else minimum(value, high)


def _sigmoid(value: Exact) -> Exact:
    return Exact.of(1) / (uninterpreted("exp", -value) + 1)


def _gelu(value: Exact, approximate: str) -> Exact:
    if approximate == "tanh":
        cube = value * value * value
        argument = (value + cube * _narrow(0.044715)) * _narrow(math.sqrt(2 / math.pi))
        return value * Exact.of(0.5) * (uninterpreted("tanh", argument) + 1)
    return value * Exact.of(0.5) * (uninterpreted("erf", value / _narrow(math.sqrt(2))) + 1)


def _quotient(g: Given) -> Exact:
    one, other = Exact.of(g["self"]), Exact.of(g["other"])
    match g.get("rounding_mode"):
        case "floor":
            return _whole(np.floor, one, other)
        case "trunc":
            return _whole(np.trunc, one, other)
    return one / other


def _whole(function: Callable[[Array], Array], one: Exact, other: Exact) -> Exact:
    with np.errstate(all="ignore"):
        return Exact.of(lifted(function(one.value / other.value)))


def _elu(g: Given) -> Exact:
    x = Exact.of(g["self"])
    scale, negative, inside = (Exact.of(g.get(name, 1)) for name in ("scale", "alpha", "input_scale"))
    below = (uninterpreted("exp", x * inside) - 1) * negative
    return where(x.value > 0, x, below) * scale


_POINTWISE: Mapping[str, Callable[[Given], Exact]] = {
    "add": lambda g: Exact.of(g["self"]) + _scaled(g["other"], g),
    "sub": lambda g: Exact.of(g["self"]) - _scaled(g["other"], g),
    "rsub": lambda g: Exact.of(g["other"]) - _scaled(g["self"], g),
    "mul": lambda g: Exact.of(g["self"]) * g["other"],
    "div": _quotient,
    "pow": lambda g: power(g["self"], g["exponent"]),
    "maximum": lambda g: maximum(g["self"], g["other"]),
    "minimum": lambda g: minimum(g["self"], g["other"]),
    "fmax": lambda g: maximum(g["self"], g["other"], numbers=True),
    "fmin": lambda g: minimum(g["self"], g["other"], numbers=True),
    "where": lambda g: where(g["condition"], g["self"], g["other"]),
    "masked_fill": lambda g: where(g["mask"], g["value"], g["self"]),
    "clamp": lambda g: _clamped(Exact.of(g["self"]), g.get("min"), g.get("max")),
    "clamp_min": lambda g: maximum(g["self"], g["min"]),
    "clamp_max": lambda g: minimum(g["self"], g["max"]),
    "hardtanh": lambda g: _clamped(Exact.of(g["self"]), g.get("min_val", -1.0), g.get("max_val", 1.0)),
    "addcmul": lambda g: Exact.of(g["self"]) + Exact.of(g["tensor1"]) * g["tensor2"] * g.get("value", 1),
    "addcdiv": lambda g: Exact.of(g["self"]) + Exact.of(g["tensor1"]) / g["tensor2"] * g.get("value", 1),
    "lerp": lambda g: Exact.of(g["self"]) + (Exact.of(g["end"]) - g["self"]) * g["weight"],
    "leaky_relu": lambda g: _leaky(Exact.of(g["self"]), g.get("negative_slope", 0.01)),
    "gelu": lambda g: _gelu(Exact.of(g["self"]), g.get("approximate", "none")),
    "elu": _elu,
    "round": lambda g: _rounded_to(Exact.of(g["self"]), g.get("decimals", 0)),
    "atan2": lambda g: uninterpreted("atan2", g["self"], g["other"]),
}
_UNARY: Mapping[str, Callable[[Exact], Exact]] = {
    "neg": lambda x: -x,
    "abs": absolute,
    "square": lambda x: x * x,
    "relu": lambda x: maximum(x, 0),
    "relu6": lambda x: _clamped(x, 0, 6),
    "reciprocal": lambda x: Exact.of(1) / x,
    "rsqrt": lambda x: Exact.of(1) / uninterpreted("sqrt", x),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "hardsigmoid": lambda x: _clamped(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * _clamped(x + 3, 0, 6) / 6,
    "expm1": lambda x: uninterpreted("exp", x) - 1,
    "log1p": lambda x: uninterpreted("log", x + 1),
    "erfc": lambda x: Exact.of(1) - uninterpreted("erf", x),
    "floor": partial(rounded, np.floor),
    "ceil": partial(rounded, np.ceil),
    "trunc": partial(rounded, np.trunc),
    "sign": partial(rounded, np.sign),
    "convert_element_type": lambda x: x,
    "_to_copy": lambda x: x,
    "clone": lambda x: x,
    **{
        name: partial(uninterpreted, name)
        for name in (
            *("exp", "exp2", "log", "sqrt", "sin", "cos", "tan", "tanh", "erf"),
            *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
        )
    },
}


def _scaled(number: Any, g: Given) -> Exact:
    alpha = g.get("alpha", 1)
    return Exact.of(number) if alpha == 1 else Exact.of(number) * alpha


def _rounded_to(x: Exact, decimals: int) -> Exact:
    """To as many places behind the point, or before it."""
    place = Exact.of(10 ** abs(decimals))
    return rounded(np.round, x / place) * place if decimals < 0 else rounded(np.round, x * place) / place


def _leaky(x: Exact, slope: float) -> Exact:
    return where(x.value > 0, x, x * slope)


def pointwise(word: str, given: Given) -> Array | None:
    """The pairs that an operator gives, element by element; None: it is not known here."""
    named = {name: Exact.of(value) if _exact(value) else value for name, value in given.items()}
    if word in _UNARY:
        (number, *_) = (value for value in named.values() if isinstance(value, Exact | np.ndarray))
        return _UNARY[word](Exact.of(number)).pairs
    return _POINTWISE[word](named).pairs if word in _POINTWISE else None


def _exact(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == PAIR


def along(word: str, given: Given, rows: Array, number: int | None) -> Array | None:
    """The pairs that a reduction gives of each row; None: it is not known here.

    Args:
        rows: pairs, ``[row, element]``; the result is of their shape for operators along one dimension that it keeps.
        number: of the result, of several.
    """
    pairs = Exact.of(rows)
    if word in ("_softmax", "softmax", "_log_softmax", "log_softmax"):
        return softmax(pairs, 1, log="log" in word).pairs
    if word in ("amax", "max", "amin", "min") and not number:
        return extreme(pairs, 1, largest="max" in word).pairs
    if word == "cumsum":
        sums = [pairs[:, 0]]
        for k in range(1, rows.shape[1]):
            sums.append(sums[-1] + pairs[:, k])
        return stacked(sums, 1).pairs
    if word == "prod":
        return product(pairs, 1).pairs
    if word == "logsumexp":
        largest = extreme(pairs, 1, largest=True)
        powers = uninterpreted("exp", pairs - largest[:, None])
        return (uninterpreted("log", total(powers, 1)) + largest).pairs
    if word == "linalg_vector_norm" and given.get("ord", 2) == 2:
        return uninterpreted("sqrt", total(pairs * pairs, 1)).pairs
    return _moment(word, given, pairs, number)


def _moment(word: str, given: Given, pairs: Exact, number: int | None) -> Array | None:
    whole, count = total(pairs, 1), int(pairs.value.shape[1])
    mean = whole / count
    if word == "sum":
        return whole.pairs
    if word == "mean" or (word in ("var_mean", "std_mean") and number == 1):
        return mean.pairs
    if word not in ("var", "std", "var_mean", "std_mean"):
        return None
    less = pairs - mean[:, None]
    correction = given.get("correction", int(bool(given.get("unbiased", True))))
    variance = total(less * less, 1) / (count - (1 if correction is None else correction))
    return (uninterpreted("sqrt", variance) if "std" in word else variance).pairs
