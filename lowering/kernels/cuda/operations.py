"""Operations of the arith and math dialects as Triton's Python, on operands that are text."""

from __future__ import annotations

import math

from covan_mlir.lowering.kernels.errors import UnsupportedError

TYPES = {
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "f32": "tl.float32",
    "f64": "tl.float64",
    "i64": "tl.int64",
    "i32": "tl.int32",
    "i16": "tl.int16",
    "i8": "tl.int8",
    "i1": "tl.int1",
}
"""Element types; in memory an i1 is an int8."""

_INFIX = {
    "addf": "+",
    "subf": "-",
    "mulf": "*",
    "divf": "/",
    "remf": "%",
    "addi": "+",
    "subi": "-",
    "muli": "*",
    "divsi": "//",
    "remsi": "%",
    "andi": "&",
    "ori": "|",
    "xori": "^",
    "shli": "<<",
    "shrsi": ">>",
}
_NAN = "propagate_nan=tl.PropagateNan.ALL"
_CALLS = {
    "maximumf": f"tl.maximum({{0}}, {{1}}, {_NAN})",
    "minimumf": f"tl.minimum({{0}}, {{1}}, {_NAN})",
    "maxnumf": "tl.maximum({0}, {1})",
    "minnumf": "tl.minimum({0}, {1})",
    "maxsi": "tl.maximum({0}, {1})",
    "minsi": "tl.minimum({0}, {1})",
    "negf": "(-{0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "sqrt": "tl.sqrt({0})",
    "sqrt_rn": "tl.sqrt_rn({0})",
    "divf_rn": "tl.div_rn({0}, {1})",
    "rsqrt": "tl.rsqrt({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "erf": "tl.erf({0})",
    "absf": "tl.abs({0})",
    "absi": "tl.abs({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "fma": "tl.fma({0}, {1}, {2})",
    "isnan": "({0} != {0})",
    "isinf": '(tl.abs({0}) == float("inf"))',
    "isfinite": '(tl.abs({0}) < float("inf"))',
}
_HELPED = {"tanh"}
LIBRARY = {
    "log1p": "log1p",
    "expm1": "expm1",
    "tan": "tan",
    "atan": "atan",
    "powf": "pow",
    "erfc": "erfc",
    "roundeven": "rint",
    "tanh_f64": "tanh",
}
"""Functions of NVIDIA's libdevice. ``tanh_f64``: our own tanh is a polynomial of single precision."""

_SIGNED = {"eq": "==", "ne": "!=", "slt": "<", "sle": "<=", "sgt": ">", "sge": ">="}
_ORDERED = {
    "oeq": "({0} == {1})",
    "olt": "({0} < {1})",
    "ole": "({0} <= {1})",
    "ogt": "({0} > {1})",
    "oge": "({0} >= {1})",
    "one": "(({0} < {1}) | ({0} > {1}))",
    "ord": "(({0} == {0}) & ({1} == {1}))",
    "une": "({0} != {1})",
    "ult": "(({0} >= {1}) == 0)",
    "ule": "(({0} > {1}) == 0)",
    "ugt": "(({0} <= {1}) == 0)",
    "uge": "(({0} < {1}) == 0)",
    "ueq": "((({0} < {1}) | ({0} > {1})) == 0)",
    "uno": "(({0} != {0}) | ({1} != {1}))",
}

HELPERS = {
    "tanh": '''@triton.jit
def _tanh(x):
    """Near 0 an odd polynomial, elsewhere by the exponential: a relative error of some units in the last place."""
    y = tl.abs(x)
    z = x * x
    small = (((0.0192728 * z - 0.05371627) * z + 0.13332539) * z - 0.33333329) * z * y + y
    large = 1.0 - 2.0 / (tl.exp(y + y) + 1.0)
    t = tl.where(y < 0.4, small, large)
    return tl.where(x < 0, -t, tl.where(x == x, t, x))
''',
    "max": """@triton.jit
def _max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "min": """@triton.jit
def _min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "mul": """@triton.jit
def _mul(a, b):
    return a * b
""",
}
"""Functions that generated modules define if they use them."""

NEUTRAL: dict[str, float] = {
    "add": 0.0,
    "mul": 1.0,
    "max": -math.inf,
    "maxnum": -math.inf,
    "min": math.inf,
    "minnum": math.inf,
    "and": 1.0,
    "or": 0.0,
}
"""Neutral element of each combination of floats, or of truth values."""


def literal(value: float | int | bool, dtype: str) -> str:
    """A number as Python text."""
    if dtype == "i1":
        return "1" if value else "0"
    if dtype[0] == "i":
        return str(int(value))
    number = float(value)
    if math.isnan(number):
        return 'float("nan")'
    if math.isinf(number):
        return 'float("inf")' if number > 0 else '-float("inf")'
    return repr(number)


def operation(op: str, args: list[str]) -> tuple[str, str | None]:
    """-> (text of an operation, name of the helper that it calls).

    Raises:
        UnsupportedError: there is no code for it.
    """
    dialect, _, name = op.partition(".")
    name, _, predicate = name.partition(":")
    if dialect == "arith" and name == "cmpf" and predicate in _ORDERED:
        return _ORDERED[predicate].format(*args), None
    if dialect == "arith" and name == "cmpi" and predicate in _SIGNED:
        return f"({args[0]} {_SIGNED[predicate]} {args[1]})", None
    if dialect == "arith" and name in _INFIX:
        return f"({args[0]} {_INFIX[name]} {args[1]})", None
    if name in _CALLS:
        return _CALLS[name].format(*args), None
    if dialect == "math" and name in _HELPED:
        return f"_{name}({', '.join(args)})", name
    if dialect == "math" and name in LIBRARY:
        return f"libdevice.{LIBRARY[name]}({', '.join(args)})", "libdevice"
    raise UnsupportedError(f"no code for {op}")


def reduction(combine: str, integer: bool, value: str, axis: int) -> tuple[str, str | None]:
    """-> (text of a reduction of a tile over a dimension, name of the helper that it calls)."""
    match combine:
        case "add":
            return f"tl.sum({value}, {axis})", None
        case "max" | "min" if not integer:
            return f"tl.reduce({value}, {axis}, _{combine})", combine
        case "max" | "maxnum" | "or":
            return f"tl.max({value}, {axis})", None
        case "min" | "minnum" | "and":
            return f"tl.min({value}, {axis})", None
        case "mul":
            return f"tl.reduce({value}, {axis}, _mul)", "mul"
    raise UnsupportedError(f"no code for reductions by {combine}")


def limits(op: str, args: list[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Least and largest value of an operation on integers between limits; None where they are not known."""
    if any(arg is None for arg in args) or len(args) != 2:
        return None
    (a, b), (c, d) = (arg for arg in args if arg is not None)
    match op:
        case "addi":
            return a + c, b + d
        case "subi":
            return a - d, b - c
        case "muli":
            ends = (a * c, a * d, b * c, b * d)
            return min(ends), max(ends)
        case "maxsi":
            return max(a, c), max(b, d)
        case "minsi":
            return min(a, c), min(b, d)
        case "divsi" | "floordivsi" if a >= 0 and c > 0:
            return 0, b // c
        case "remsi" if a >= 0 and c > 0:
            return 0, min(b, d - 1)
    return None


def short_name(op: str) -> str:
    """What to call the result of an operation."""
    return op.partition(".")[2].partition(":")[0].removesuffix("f").removesuffix("i")


def bare(text: str) -> str:
    """Text without the parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for n, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and n < len(text) - 1:
            return text
    return text[1:-1]
