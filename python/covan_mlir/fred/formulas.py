"""Chains as formulas: for people who read records, certificates and IR."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.fred.chain import Chain, Map, Step
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Read, Window

CASTS = frozenset({"arith.extf", "arith.truncf"})
"""Changes of precision: the identity on the reals."""

_INFIX = {"addf": "+", "subf": "-", "mulf": "*", "divf": "/", "andi": "and", "ori": "or"}
_LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2}
_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def text(expr: Expr, level: int = 0) -> str:
    """An expression as a formula, casts left out."""
    if isinstance(expr, Const):
        return f"{expr.value:g}" if isinstance(expr.value, float) else str(expr.value)
    if isinstance(expr, Read):
        return expr.name
    if isinstance(expr, Window):
        return f"{expr.name}[{', '.join(map(position, expr.at))} else {text(expr.outside)}]"
    if not isinstance(expr, Apply):
        return f"{type(expr).__name__.lower()}({expr.axis})"
    name = expr.op.partition(".")[2]
    if expr.op in CASTS:
        return text(expr.args[0], level)
    if name == "negf":
        return f"-{text(expr.args[0], 3)}"
    symbol = _INFIX.get(name)
    if name.startswith("cmp"):
        predicate = name.partition(":")[2]
        symbol = _PREDICATES.get(predicate[-2:])
    if symbol is None:
        return f"{name.removesuffix('f')}({', '.join(text(arg) for arg in expr.args)})"
    own = _LEVEL.get(symbol, 0)
    quotient = symbol == "*" and isinstance(expr.args[1], Apply) and expr.args[1].op == "arith.divf"
    left, right = text(expr.args[0], own), text(expr.args[1], own + (symbol in "-/" or quotient))
    return f"({left} {symbol} {right})" if own < level or (level and not own) else f"{left} {symbol} {right}"


def position(at: Affine) -> str:
    """A position as a formula."""
    signed = [(number, f"{'' if abs(number) == 1 else abs(number)}{axis}") for axis, number in at.terms]
    if at.offset or not signed:
        signed.append((at.offset, str(abs(at.offset))))
    (first, lead), *rest = signed
    return ("-" if first < 0 else "") + lead + "".join(f" {'-' if n < 0 else '+'} {term}" for n, term in rest)


def text_of(step: Step) -> str:
    """A step as a definition."""
    if isinstance(step, Map):
        return f"{step.name} = {text(step.expr)}"
    return f"{step.name} = {step.combine}[{', '.join(step.over)}] ({text(step.expr)})"


def line(step: Step) -> str:
    """A step as a definition, with its axes: ``m[i] = max[j] (x)``."""
    name, _, rest = text_of(step).partition(" = ")
    return f"{name}[{', '.join(step.axes)}] = {rest}"


def chain_lines(chain: Chain) -> Iterator[str]:
    """A chain: its axes, its inputs, a line for each step, what it returns."""
    yield ", ".join(f"{axis.name} = {'?' if axis.size is None else axis.size}" for axis in chain.axes)
    for value in chain.inputs:
        yield f"{value.name}[{', '.join(value.axes)}]: {value.dtype}"
    for step in chain.steps:
        yield f"{step.name}[{', '.join(step.axes)}]: {step.dtype} = {text_of(step).partition(' = ')[2]}"
    yield f"return {', '.join(chain.outputs)}"
