"""Products of steps: which integers a chain multiplies, and what their sums are multiplied with."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Read, Window
from covan_mlir.kir.operators import ACCUMULATOR, Contraction, Factor, Number
from covan_mlir.kir.quantisation import STEP, number_of

_WIDENED = {"arith.extsi": True, "arith.extui": False}
"""Casts of steps to what they are summed in, and whether these have a sign."""


def contraction_of(chain: Chain) -> Contraction | None:
    """The product of steps that the chain is about: it has one reduction, and that is it."""
    if len(chain.reductions) != 1:
        return None
    (step,) = chain.reductions
    product = step.expr
    if step.combine != "add" or step.dtype != ACCUMULATOR or not isinstance(product, Apply) or step.initial.value:
        return None
    if product.op != "arith.muli":
        return None
    first, second = (_factor(chain, arg) for arg in product.args)
    if first is None or second is None:
        return None
    return Contraction(step.name, step.axes, step.over, first, second, _scales(chain, step))


def _factor(chain: Chain, expr: Expr) -> Factor | None:
    zero = 0
    if isinstance(expr, Apply) and expr.op == "arith.subi" and isinstance(expr.args[1], Const):
        zero, expr = int(expr.args[1].value), expr.args[0]
    if not isinstance(expr, Apply) or expr.op not in _WIDENED or expr.dtype != ACCUMULATOR:
        return None
    signed, steps = _WIDENED[expr.op], expr.args[0]
    if isinstance(steps, Window) and steps.dtype == STEP:
        return Factor(steps.name, signed, zero, steps.at, _held(int(steps.outside.value), signed))
    value = chain.values[steps.name] if isinstance(steps, Read) and steps.dtype == STEP else None
    if value is None or isinstance(value, Map | Reduce):
        return None
    return Factor(value.name, signed, zero, tuple(Affine.of([(axis, 1)]) for axis in value.axes))


def _held(step: int, signed: bool) -> int:
    """A step of 8 bits as the number that it is."""
    step %= 256
    return step - 256 if signed and step > 127 else step


def _scales(chain: Chain, sums: Reduce) -> tuple[Number, ...]:
    """What the sums are multiplied with, wherever they are read: nothing, if it is not the same everywhere."""
    scales = {known for step in chain.steps for known in _multiplied(chain, step.expr, sums.name)}
    return scales.pop() if len(scales) == 1 else ()


def _multiplied(chain: Chain, expr: Expr, sums: str) -> Iterator[tuple[Number, ...]]:
    """The factors of each largest product of the sums and numbers in an expression."""
    own = _product(expr, sums)
    if own is not None:
        yield own
    elif isinstance(expr, Apply):
        for arg in expr.args:
            yield from _multiplied(chain, arg, sums)


def _product(expr: Expr, sums: str) -> tuple[Number, ...] | None:
    if not isinstance(expr, Apply):
        return None
    if expr.op == "arith.sitofp" and isinstance(expr.args[0], Read) and expr.args[0].name == sums:
        return ()
    if expr.op != "arith.mulf":
        return None
    before, factor = _product(expr.args[0], sums), number_of(expr.args[1])
    return None if before is None or factor is None else (*before, factor)
