"""Affine positions as affine expressions of MLIR, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from covan_mlir.fred.expression import Affine


def affine_of(expr: Any, axes: Sequence[str]) -> Affine | None:
    """An affine expression whose dimension ``i`` is the position on ``axes[i]``; None if it is no such sum."""
    if isinstance(expr, ir.AffineConstantExpr):
        return Affine((), int(expr.value))
    if isinstance(expr, ir.AffineDimExpr):
        return Affine(((axes[expr.position], 1),))
    if not isinstance(expr, ir.AffineAddExpr | ir.AffineMulExpr):
        return None
    one, other = affine_of(expr.lhs, axes), affine_of(expr.rhs, axes)
    if one is None or other is None:
        return None
    if isinstance(expr, ir.AffineAddExpr):
        return Affine.of((*one.terms, *other.terms), one.offset + other.offset)
    if one.terms and other.terms:
        return None
    affine, factor = (one, other.offset) if one.terms else (other, one.offset)
    return Affine.of([(axis, factor * number) for axis, number in affine.terms], factor * affine.offset)


def affine_map(positions: Sequence[Affine], axes: Sequence[str], context: ir.Context) -> ir.AffineMap:
    """The map from positions on ``axes`` to these."""
    results = [_expr(position, axes, context) for position in positions]
    return ir.AffineMap.get(len(axes), 0, results, context)


def _expr(position: Affine, axes: Sequence[str], context: ir.Context) -> ir.AffineExpr:
    total: ir.AffineExpr = ir.AffineConstantExpr.get(position.offset, context)
    for axis, coefficient in position.terms:
        total = total + ir.AffineDimExpr.get(axes.index(axis), context) * coefficient
    return total
