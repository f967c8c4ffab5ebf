"""Products as their factors."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.fred.algebra import f
from covan_mlir.fred.expression import Apply, Const, Expr


@dataclass
class Fraction:
    """A product, flattened: numerators and denominators."""

    top: list[Expr]
    bottom: list[Expr]


def factors(expr: Expr, inverse: bool = False) -> Fraction:
    """The factors of an expression; of its reciprocal if ``inverse``."""
    if isinstance(expr, Apply) and expr.op in ("arith.mulf", "arith.divf"):
        a = factors(expr.args[0], inverse)
        b = factors(expr.args[1], inverse != (expr.op == "arith.divf"))
        return Fraction(a.top + b.top, a.bottom + b.bottom)
    if isinstance(expr, Apply) and expr.op == "arith.negf":
        a = factors(expr.args[0], inverse)
        return Fraction([Const(-1.0, expr.dtype), *a.top], a.bottom)
    if isinstance(expr, Apply) and expr.op == "math.absf":
        a = factors(expr.args[0], inverse)
        if len(a.top) + len(a.bottom) > 1:
            return Fraction([f("absf", e) for e in a.top], [f("absf", e) for e in a.bottom])
    return Fraction([], [expr]) if inverse else Fraction([expr], [])


def build(product: Fraction, dtype: str) -> Expr:
    """The product as an expression."""
    result: Expr | None = None
    for factor in product.top:
        result = factor if result is None else f("mulf", result, factor)
    for factor in product.bottom:
        result = f("divf", result or Const(1.0, dtype), factor)
    return result or Const(1.0, dtype)
