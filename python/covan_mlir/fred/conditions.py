"""Conditions that a whole row has in common: whether all of it is masked, above all.

Attention that gives zeros for rows without a key (torch's ``scaled_dot_product_attention``) asks ``all(s == -inf)`` and
selects. That is ``max(s) == -inf``, a statistic that the softmax computes anyway, and the selection is the same for all
positions of a row: it is made once, after the sum.
"""

from __future__ import annotations

import math
from dataclasses import replace

from covan_mlir.fred.algebra import compare, f, select, varies
from covan_mlir.fred.chain import Chain, Combine, Map, Reduce, Step
from covan_mlir.fred.expression import Apply, Const, Expr, Read
from covan_mlir.fred.forms import Rewrite
from covan_mlir.fred.formulas import text_of
from covan_mlir.fred.names import fresh
from covan_mlir.fred.obligation import Obligation
from covan_mlir.fred.products import Fraction, build, factors
from covan_mlir.fred.proving import certify
from covan_mlir.fred.scalars import is_float

_ASKED = {"and": ("arith.cmpf:oeq", True), "or": ("arith.cmpf:une", False)}
"""By the combination: the comparison with an infinity that an extremum answers, and where it starts. With a NaN in the
row ``all(x == -inf)`` is false, and so is ``max(x) == -inf``; ``any(x != -inf)`` is true, as ``max(x) != -inf``."""


def condition_of_extremum(step: Reduce, names: set[str], rewrites: list[Rewrite]) -> tuple[Step, ...] | None:
    """``all(x == -inf)`` is ``max(x) == -inf``; with ``any(x != -inf)`` and the other infinity alike."""
    expr = step.expr
    if step.combine not in _ASKED or not isinstance(expr, Apply):
        return None
    op, start = _ASKED[step.combine]
    if expr.op != op or bool(step.initial.value) is not start:
        return None
    value, bound = expr.args if isinstance(expr.args[1], Const) else expr.args[::-1]
    if not isinstance(bound, Const) or not is_float(bound.dtype) or not math.isinf(bound.value):
        return None
    combine: Combine = "max" if bound.value < 0 else "min"
    a, b = Read("a", bound.dtype), Read("b", bound.dtype)
    together = f("maximumf" if combine == "max" else "minimumf", a, b)
    given = tuple(compare("ole", *((bound, x) if combine == "max" else (x, bound))) for x in (a, b))

    def asked(x: Expr) -> Expr:
        return Apply(op, (x, bound), "i1")

    both = Apply("arith.andi" if start else "arith.ori", (asked(a), asked(b)), "i1")
    laws = [
        Obligation("two parts", both, asked(together), given=given),
        Obligation("no positions", Const(start, "i1"), asked(bound)),
    ]
    extremum = replace(
        step,
        name=fresh(names, f"{step.name}_{combine}"),
        combine=combine,
        expr=value,
        initial=Const(float(bound.value), bound.dtype),
        dtype=bound.dtype,
    )
    answer = Map(step.name, step.axes, asked(Read(extremum.name, bound.dtype)), step.dtype, step.trace)
    certificate = certify(f"{step.name} asks for a {combine}imum", laws)
    rewrites.append(Rewrite(step.name, "extremum", f"{text_of(extremum)}; {text_of(answer)}", certificate))
    return extremum, answer


def hoist_condition(chain: Chain, step: Reduce, names: set[str], rewrites: list[Rewrite]) -> tuple[Step, ...] | None:
    """A sum of what one condition for all positions makes zero is zero under that condition."""
    if not is_float(step.dtype) or step.combine != "add" or step.initial.value != 0:
        return None
    product = factors(step.expr)
    for at, factor in enumerate(product.top):
        zero = _zero_branch(factor)
        if zero is None or not isinstance(factor, Apply) or varies(factor.args[0], chain, step.over):
            continue
        condition, value = factor.args[0], factor.args[2 if zero == 1 else 1]
        rest = build(Fraction([*product.top[:at], value, *product.top[at + 1 :]], product.bottom), step.dtype)
        inner = replace(step, name=fresh(names, f"{step.name}_sum"), expr=rest)

        def chosen(x: Expr, condition: Expr = condition, zero: int = zero) -> Expr:
            nothing = Const(0.0, x.dtype)
            return select(condition, nothing, x) if zero == 1 else select(condition, x, nothing)

        a, b = Read("a", step.dtype), Read("b", step.dtype)
        laws = [
            Obligation("one element", step.expr, chosen(rest)),
            Obligation("two parts", f("addf", chosen(a), chosen(b)), chosen(f("addf", a, b))),
        ]
        outer = Map(step.name, step.axes, chosen(Read(inner.name, step.dtype)), step.dtype, step.trace)
        certificate = certify(f"the condition of {step.name} is taken out", laws)
        rewrites.append(Rewrite(step.name, "condition", f"{text_of(inner)}; {text_of(outer)}", certificate))
        return inner, outer
    return None


def _zero_branch(expr: Expr) -> int | None:
    """Which operand of a selection is zero."""
    if not isinstance(expr, Apply) or expr.op != "arith.select":
        return None
    for index, branch in enumerate(expr.args):
        if index and isinstance(branch, Const) and branch.value == 0:
            return index
    return None
