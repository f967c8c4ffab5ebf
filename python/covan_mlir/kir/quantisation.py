"""Where a chain reads steps as numbers, and where it makes steps of numbers: read off its expressions."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.fred.chain import Chain, Input, Map
from covan_mlir.fred.expression import Apply, Const, Expr, Read, Window, walk
from covan_mlir.kir.operators import Dequantization, Number, Requantization

STEP = "i8"
"""Element type of steps, with a sign or without."""
_FLOATS_OF = {"arith.sitofp": True, "arith.uitofp": False}
"""Casts of steps to floats, and whether these have a sign."""
_WIDENED = {"arith.extsi": True, "arith.extui": False}
"""Casts of steps to wider integers, from which a zero point is taken before floats are made of them."""


def resolved(chain: Chain, expr: Expr) -> Expr:
    """An expression, or the one that gives the value that it reads."""
    while isinstance(expr, Read) and isinstance(step := chain.values[expr.name], Map):
        expr = step.expr
    return expr


def number_of(expr: Expr) -> Number | None:
    """A number in an expression, or the name of the value that holds it."""
    if isinstance(expr, Const) and isinstance(expr.value, float):
        return expr.value
    return expr.name if isinstance(expr, Read) else None


def operands_of(chain: Chain) -> dict[Expr, Dequantization]:
    """The numbers in a chain that stand for steps of its inputs: each expression that is one, and what it is."""
    reader = _Dequantized(chain)
    return {node: one for node, one in reader.all() if isinstance(chain.values[one.name], Input)}


def requantization_of(chain: Chain, name: str) -> Requantization | None:
    """How one result is quantised, None of one that is not."""
    dtype = chain.values[name].dtype
    if dtype == STEP:
        return _Requantized(chain).read(Read(name, STEP))
    again = _Dequantized(chain).read(Read(name, dtype))
    if again is None or not isinstance(again.steps, Read) or isinstance(chain.values[again.name], Input):
        return None
    return _Requantized(chain).read(again.steps, again)


class _Dequantized:
    """Reads what numbers stand for, from a number to the steps."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def all(self) -> Iterator[tuple[Expr, Dequantization]]:
        for step in self._chain.steps:
            for node in walk(step.expr):
                if isinstance(node, Apply) and (one := self.read(node)) is not None:
                    yield node, one

    def read(self, expr: Expr) -> Dequantization | None:
        """What an expression stands for."""
        args = _args(self._chain, expr, "arith.mulf")
        for whole, factor in () if args is None else (args, args[::-1]):
            scale, steps = self._scale(factor), self._steps(whole)
            if scale is not None and steps is not None:
                return Dequantization(*steps, scale, whole.dtype)
        return None

    def _scale(self, expr: Expr) -> Number | None:
        number = number_of(resolved(self._chain, expr))
        return number if isinstance(number, float) or self._given(number) else None

    def _given(self, name: str | None) -> bool:
        return name is not None and isinstance(self._chain.values[name], Input)

    def _steps(self, expr: Expr) -> tuple[Read | Window, bool, int | str] | None:
        """-> (the steps, whether they have a sign, their zero point) of numbers that were not scaled yet."""
        taken = _args(self._chain, expr, "arith.subf")
        zero = number_of(taken[1]) if taken else 0.0
        if taken:
            expr = taken[0]
        if isinstance(zero, float):
            zero = int(zero) if zero.is_integer() else None
        elif not self._given(zero):
            return None
        for cast, signed in _FLOATS_OF.items():
            args = _args(self._chain, expr, cast)
            if args is None or zero is None:
                continue
            if (steps := self._held(args[0])) is not None:
                return steps, signed, zero
            if signed and zero == 0:
                return self._widened(args[0])
        return None

    def _widened(self, expr: Expr) -> tuple[Read | Window, bool, int] | None:
        """The same of integers: ``extui steps - zero``."""
        zero, taken = 0, _args(self._chain, expr, "arith.subi")
        if taken is not None:
            if not isinstance(taken[1], Const):
                return None
            zero, expr = int(taken[1].value), taken[0]
        for cast, signed in _WIDENED.items():
            args = _args(self._chain, expr, cast)
            if args is not None and (steps := self._held(args[0])) is not None:
                return steps, signed, zero
        return None

    def _held(self, expr: Expr) -> Read | Window | None:
        return expr if isinstance(expr, Read | Window) and expr.dtype == STEP else None


class _Requantized:
    """Reads how a result is quantised: from the result to what is quantised."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def read(self, steps: Expr, again: Dequantization | None = None) -> Requantization | None:
        """How steps are made; None where they are not made by quantising."""
        for cast in ("arith.trunci", "arith.fptosi"):
            args = _args(self._chain, steps, cast)
            if args is None:
                return None
            steps = args[0]
        upper = self._bounded(steps, "gt")
        lower = self._bounded(upper[0], "lt") if upper else None
        if upper is None or lower is None:
            return None
        rounded, zero = self._sum(lower[0])
        scaled = _args(self._chain, rounded, "math.roundeven")
        if scaled is None or zero is None:
            return None
        for op, divided in (("arith.mulf", False), ("arith.divf", True)):
            args = _args(self._chain, scaled[0], op)
            factor = number_of(args[1]) if args else None
            if args is not None and factor is not None:
                return Requantization(args[0], factor, zero, lower[1], upper[1], divided, again)
        return None

    def _bounded(self, expr: Expr, side: str) -> tuple[Expr, int] | None:
        """What ``select(x o bound, bound, x)`` bounds, and the bound."""
        args = _args(self._chain, expr, "arith.select")
        compared = _args(self._chain, args[0], f"arith.cmpf:o{side}") if args else None
        if args is None or compared is None:
            return None
        bound = args[1]
        same = resolved(self._chain, compared[0]) == resolved(self._chain, args[2])
        if not same or compared[1] != bound or not isinstance(bound, Const):
            return None
        if not float(bound.value).is_integer():
            return None
        return args[2], int(bound.value)

    def _sum(self, expr: Expr) -> tuple[Expr, int | str | None]:
        """Rounded steps, and the zero point that is added to them; None of one that is no step."""
        args = _args(self._chain, expr, "arith.addf")
        if args is None:
            return expr, 0
        zero = number_of(args[1])
        if isinstance(zero, float):
            return args[0], int(zero) if zero.is_integer() else None
        return args[0], zero


def _args(chain: Chain, expr: Expr, op: str) -> tuple[Expr, ...] | None:
    """The operands of an operation, if an expression is one."""
    node = resolved(chain, expr)
    return node.args if isinstance(node, Apply) and node.op == op else None
