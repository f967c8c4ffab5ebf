"""Where the last digit of a number decides something.

Kernels may compute what is a float, and stays one, by other operations than the program has: a product with a
reciprocal for a quotient, single precision for half. The result is another one in its last digit. What is rounded to
a whole number, compared, or made an integer of, may then be another one altogether: so all that such a decision is
computed from is computed as the program says. The same holds for a quotient that leaves the kernel, for nobody knows
here who reads it; unless sums of floats, or functions that eager rounds in its own way, are in it already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Input, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Read, reads, walk
from covan_mlir.fred.scalars import is_float

_ROUNDING = frozenset(
    {"arith.fptosi", "arith.fptoui", "arith.remf"}
    | {f"math.{name}" for name in ("floor", "ceil", "round", "roundeven", "trunc")}
)
_CORRECT = frozenset(
    f"math.{name}" for name in ("absf", "sqrt", "fma", "copysign", "isnan", "isinf", "isfinite", "absi")
)
"""Functions that IEEE arithmetic has one result of."""
_WHOLE = frozenset({"arith.sitofp", "arith.uitofp"})
_HALVES = ("f16", "bf16")


@dataclass(frozen=True)
class Exactness:
    """What a kernel of a chain computes as the program says.

    Attributes:
        quotients: all its quotients: one of them reaches a decision.
        leaving: those of `reproducible` numbers: one of them leaves the kernel.
        roundings: all of half precision: one of them reaches a decision.
        arithmetic: something is computed that reaches a decision: nothing is contracted.
    """

    quotients: bool
    leaving: bool
    roundings: bool
    arithmetic: bool


def decides(node: Expr) -> bool:
    """Whether the last digits of an operation's operands decide on its result.

    Signs, zeros, infinities and NaN do not come from last digits.
    """
    if not isinstance(node, Apply):
        return False
    if not node.op.startswith("arith.cmpf:"):
        return node.op in _ROUNDING
    if node.op.endswith((":uno", ":ord")) or node.args[0] == node.args[1]:
        return False
    return not any(isinstance(arg, Const) and (arg.value == 0 or math.isinf(arg.value)) for arg in node.args)


def exactness(chain: Chain) -> Exactness:
    """What has to be exact in a kernel of a chain."""
    decided: set[str] = set()
    leaving = {name for name in chain.outputs if is_float(chain.values[name].dtype)}
    exact: list[Expr] = []
    plain: list[Expr] = []
    for step in reversed(chain.steps):
        before = _upstream(step.expr, step.name in decided)
        exact += before
        for node in before:
            decided |= reads(node)
        if step.name in leaving and not (isinstance(step, Reduce) and _rounds_otherwise(step)):
            unrounded = _unrounded(step.expr)
            plain += unrounded
            leaving |= {node.name for node in unrounded if isinstance(node, Read)}
    arithmetic = [node for node in exact if isinstance(node, Apply) and is_float(node.dtype)]
    return Exactness(
        quotients=any(node.op == "arith.divf" for node in arithmetic),
        leaving=any(_is_quotient(node) and reproducible(node, chain) for node in plain),
        roundings=any(node.op == "arith.truncf" and node.dtype in _HALVES for node in arithmetic)
        or any(node.dtype in _HALVES and node.op.startswith("arith.") for node in arithmetic),
        arithmetic=bool(arithmetic),
    )


def reproducible(expr: Expr, chain: Chain) -> bool:
    """Whether IEEE arithmetic has one result of an expression, in whatever order sums are taken.

    What the chain is given counts as such.
    """
    names: list[str] = []
    pending = [expr]
    while pending:
        for node in walk(pending.pop()):
            if isinstance(node, Apply) and _is_function(node):
                return False
            if not isinstance(node, Read) or node.name in names:
                continue
            names.append(node.name)
            value = chain.values.get(node.name)
            if value is None or (isinstance(value, Reduce) and _rounds_otherwise(value)):
                return False  # also what it was at some moment of a loop
            if not isinstance(value, Input):
                pending.append(value.expr)
    return True


def _rounds_otherwise(step: Reduce) -> bool:
    """Whether a reduction's result depends on its order."""
    whole = isinstance(step.expr, Apply) and step.expr.op in _WHOLE
    return is_float(step.dtype) and step.combine in ("add", "mul") and not whole


def _is_function(node: Apply) -> bool:
    """Whether an operation is a function that libraries round in ways of their own."""
    return node.op.startswith("math.") and node.op not in _CORRECT | _ROUNDING


def _is_quotient(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op == "arith.divf"


def _upstream(expr: Expr, decided: bool) -> list[Expr]:
    """The nodes that decisions are computed from; all, if the expression itself is decided about."""
    if decided:
        return list(walk(expr))
    deciding = [node for node in walk(expr) if isinstance(node, Apply) and decides(node)]
    return list({id(node): node for at in deciding for operand in at.args for node in walk(operand)}.values())


def _unrounded(expr: Expr) -> list[Expr]:
    """The nodes that reach the result without a function that is rounded in a way of its own."""
    kept: dict[int, Expr] = {}
    pending = [expr]
    while pending:
        node = pending.pop()
        if id(node) in kept:
            continue
        kept[id(node)] = node
        if isinstance(node, Apply) and not _is_function(node):
            pending += node.args
    return list(kept.values())
