"""The operator that a chain is.

No name of an operation of the model is looked at, and none of a step: what a chain computes says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Read, Window
from covan_mlir.kir.operators import ACCUMULATOR, Contraction, Factor, Kind, Number, Operator, Requantization

_STEP = "i8"
_WIDENED = {"arith.extsi": True, "arith.extui": False}
"""Casts of steps to what they are summed in, and whether these have a sign."""


def operator_of(chain: Chain) -> Operator:
    """What a chain is: each is an operator, if but a ``kernel``."""
    contraction = _contraction(chain)
    results = tuple(_Requantized(chain).read(name) for name in chain.outputs)
    return Operator("kernel" if contraction is None else _kind(contraction), contraction, results)


def _kind(contraction: Contraction) -> Kind:
    factors = (contraction.first, contraction.second)
    if any(factor.outside is not None or any(at.axis is None for at in factor.at) for factor in factors):
        return "convolution"
    shared = factors[0].axes & factors[1].axes
    return "linear" if shared <= {*contraction.over} else "matmul"


def _contraction(chain: Chain) -> Contraction | None:
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
    if isinstance(steps, Window) and steps.dtype == _STEP:
        return Factor(steps.name, signed, zero, steps.at, _held(int(steps.outside.value), signed))
    value = chain.values[steps.name] if isinstance(steps, Read) and steps.dtype == _STEP else None
    if value is None or isinstance(value, Map | Reduce):
        return None
    return Factor(value.name, signed, zero, tuple(Affine.of([(axis, 1)]) for axis in value.axes))


def _held(step: int, signed: bool) -> int:
    """A step of 8 bits as the number that it is."""
    step %= 256
    return step - 256 if signed and step > 127 else step


def _resolved(chain: Chain, expr: Expr) -> Expr:
    """An expression, or the one that gives the value that it reads."""
    while isinstance(expr, Read) and isinstance(step := chain.values[expr.name], Map):
        expr = step.expr
    return expr


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
    before, factor = _product(expr.args[0], sums), _number(expr.args[1])
    return None if before is None or factor is None else (*before, factor)


def _number(expr: Expr) -> Number | None:
    if isinstance(expr, Const) and isinstance(expr.value, float):
        return expr.value
    return expr.name if isinstance(expr, Read) else None


class _Requantized:
    """Reads how a result is quantised: from the result to what is quantised."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def read(self, name: str) -> Requantization | None:
        """That of one result, None of one that is not quantised."""
        if self._chain.values[name].dtype != _STEP:
            return None
        steps: Expr = Read(name, _STEP)
        for cast in ("arith.trunci", "arith.fptosi"):
            args = self._args(steps, cast)
            if args is None:
                return None
            steps = args[0]
        upper = self._bounded(steps, "gt")
        lower = self._bounded(upper[0], "lt") if upper else None
        if upper is None or lower is None:
            return None
        rounded, zero = self._sum(lower[0])
        scaled = self._args(rounded, "math.roundeven")
        if scaled is None or zero is None:
            return None
        for op, divided in (("arith.mulf", False), ("arith.divf", True)):
            args = self._args(scaled[0], op)
            factor = _number(args[1]) if args else None
            if args is not None and factor is not None:
                return Requantization(args[0], factor, zero, lower[1], upper[1], divided)
        return None

    def _args(self, expr: Expr, op: str) -> tuple[Expr, ...] | None:
        node = _resolved(self._chain, expr)
        return node.args if isinstance(node, Apply) and node.op == op else None

    def _bounded(self, expr: Expr, side: str) -> tuple[Expr, int] | None:
        """What ``select(x o bound, bound, x)`` bounds, and the bound."""
        args = self._args(expr, "arith.select")
        compared = self._args(args[0], f"arith.cmpf:o{side}") if args else None
        if args is None or compared is None:
            return None
        bound = args[1]
        same = _resolved(self._chain, compared[0]) == _resolved(self._chain, args[2])
        if not same or compared[1] != bound or not isinstance(bound, Const) or bound.value != int(bound.value):
            return None
        return args[2], int(bound.value)

    def _sum(self, expr: Expr) -> tuple[Expr, int | str | None]:
        """Rounded steps, and the zero point that is added to them; None of one that is no step."""
        args = self._args(expr, "arith.addf")
        if args is None:
            return expr, 0
        zero = _number(args[1])
        if isinstance(zero, float):
            return args[0], int(zero) if zero.is_integer() else None
        return args[0], zero
