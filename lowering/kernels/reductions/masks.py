"""Which positions of the loop a mask leaves out entirely: derived from the chain's expressions, not from its name.

A selection whose other branch is minus infinity masks a position if, with that branch put in its place, everything that
the loop accumulates is neutral: a maximum of minus infinity, a sum of exp(-inf) times something finite. Where the
condition compares positions, it bounds the loop. Values under a mask are taken to be finite, as fused attention does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from covan_mlir.fred.chain import Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Extent, Index, walk
from covan_mlir.fred.forms import Fusion, Local
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles

_CASTS = ("arith.index_cast", "arith.extsi", "arith.trunci")
_NEUTRAL = {"max": -inf, "maxnum": -inf, "add": 0.0}
_NEGATED = {"sle": "sgt", "slt": "sge", "sge": "slt", "sgt": "sle", "eq": "ne", "ne": "eq"}


def _value(expr: Expr, masked: Mapping[Expr, Expr]) -> float | None:
    """What an expression is when masked parts have their other value; None where that depends on more."""
    expr = masked.get(expr, expr)
    if isinstance(expr, Const):
        return float(expr.value)
    if not isinstance(expr, Apply):
        return None
    args = [_value(arg, masked) for arg in expr.args]
    match expr.op, args:
        case ("arith.addf", [a, b]) if -inf in (a, b):
            return -inf
        case ("arith.subf", [a, _]) if a == -inf:
            return -inf
        case ("arith.mulf", [a, b]) if -inf in (a, b):
            other = b if a == -inf else a
            return -inf if other is not None and 0 < other < inf else None
        case ("arith.mulf", [a, b]) if 0.0 in (a, b):
            return 0.0
        case ("arith.divf", [a, b]) if a == 0.0 or (a == -inf and b is not None and 0 < b < inf):
            return a
        case ("math.exp" | "math.exp2", [a]) if a == -inf:
            return 0.0
        case ("arith.extf" | "arith.truncf", [a]):
            return a
    return None


@dataclass(frozen=True)
class Bound:
    """``factors . positions + extents . sizes + constant >= 0`` wherever a position is not masked.

    Attributes:
        extents: factors of sizes that are known at run time only.
    """

    factors: tuple[tuple[str, int], ...]
    constant: int
    extents: tuple[tuple[str, int], ...] = ()


_SIZE = "size of "


def _linear(expr: Expr, sizes: Mapping[str, object]) -> tuple[dict[str, int], int] | None:
    # -> (factors of positions and of sizes, constant)
    match expr:
        case Const(value, _):
            return {}, int(value)
        case Index(axis):
            return {axis: 1}, 0
        case Extent(axis):
            size = sizes[axis]
            return ({}, size) if isinstance(size, int) else ({_SIZE + axis: 1}, 0)
        case Apply(op, (inner,), dtype) if op in _CASTS and dtype != "i1":
            return _linear(inner, sizes)
        case Apply("arith.addi" | "arith.subi" | "arith.muli" as op, (left, right), _):
            a, b = _linear(left, sizes), _linear(right, sizes)
            if a is None or b is None:
                return None
            if op == "arith.muli":
                (a, b) = (a, b) if not b[0] else (b, a)
                return None if b[0] else ({k: v * b[1] for k, v in a[0].items()}, a[1] * b[1])
            sign = 1 if op == "arith.addi" else -1
            factors = {k: a[0].get(k, 0) + sign * b[0].get(k, 0) for k in {**a[0], **b[0]}}
            return factors, a[1] + sign * b[1]
    return None


def conditions(expr: Expr, wanted: bool, sizes: Mapping[str, object]) -> Iterator[Bound]:
    """Bounds that hold wherever a condition has the wanted value."""
    if not isinstance(expr, Apply):
        return
    if expr.op == ("arith.andi" if wanted else "arith.ori"):
        for arg in expr.args:
            yield from conditions(arg, wanted, sizes)
    elif expr.op == "arith.xori" and isinstance(expr.args[1], Const) and expr.args[1].value:
        yield from conditions(expr.args[0], not wanted, sizes)
    elif expr.op.startswith("arith.cmpi:"):
        predicate = expr.op.partition(":")[2]
        if predicate not in _NEGATED:
            return
        predicate = predicate if wanted else _NEGATED[predicate]
        a, b = _linear(expr.args[0], sizes), _linear(expr.args[1], sizes)
        if a is None or b is None:
            return
        factors = {k: a[0].get(k, 0) - b[0].get(k, 0) for k in {**a[0], **b[0]}}
        above = _bound(factors, a[1] - b[1] - (predicate == "sgt"))
        below = _bound({k: -v for k, v in factors.items()}, b[1] - a[1] - (predicate == "slt"))
        if predicate in ("sge", "sgt", "eq"):
            yield above
        if predicate in ("sle", "slt", "eq"):
            yield below


def _bound(factors: Mapping[str, int], constant: int) -> Bound:
    sizes = {k.removeprefix(_SIZE): v for k, v in factors.items() if k.startswith(_SIZE) and v}
    positions = {k: v for k, v in factors.items() if not k.startswith(_SIZE)}
    return Bound(tuple(sorted(positions.items())), constant, tuple(sorted(sizes.items())))


def bounds(fusion: Fusion, loop: LoopRoles, sizes: Mapping[str, object]) -> tuple[Bound, ...]:
    """What holds at every position of a loop that is not masked."""
    extra = {line.name: () for line in loop.rolling.body}
    extra |= {f"{s.name}.{m}": () for s in loop.rolling.state for m in ("old", "new", "safe", "local")}
    scope = Scope(fusion.chain, extra)
    reductions = [line.reduce for line in loop.rolling.body if isinstance(line, Local)]
    return unmasked(scope, reductions, loop.reduction_axis, sizes)


def unmasked(scope: Scope, reductions: Sequence[Reduce], axis: str, sizes: Mapping[str, object]) -> tuple[Bound, ...]:
    """What holds, of positions on an axis, wherever anything counts for some reductions."""
    exprs = [scope.inlined(step.expr) for step in reductions]
    conditioned: list[Bound] = []
    nodes = {node: None for expr in exprs for node in walk(expr)}
    for select in nodes:
        if not (isinstance(select, Apply) and select.op == "arith.select"):
            continue
        condition, yes, no = select.args
        for branch, wanted in ((no, True), (yes, False)):
            if not (isinstance(branch, Const) and branch.value == -inf):
                continue
            values = [_value(expr, {select: branch}) for expr in exprs]
            pairs = zip(values, reductions, strict=True)
            if all(value is not None and value == _NEUTRAL.get(step.combine) for value, step in pairs):
                conditioned += conditions(scope.inlined(condition), wanted, sizes)
    return tuple(bound for bound in dict.fromkeys(conditioned) if abs(dict(bound.factors).get(axis, 0)) == 1)


@dataclass(frozen=True)
class Span:
    """The part of a loop that masks leave to a row.

    Attributes:
        axis: of the loop.
        limits: what holds at every position that is not masked, of positions on this axis and the rows' alone.
    """

    axis: str
    limits: tuple[Bound, ...] = ()

    def share(self, rows: str | None, sizes: Mapping[str, int], step: int = 1) -> float:
        """Part of all positions that are not masked, where only one of the rows' axes matters, or none.

        Args:
            rows: that axis.
            sizes: of all axes, also of those that are known at run time only.
            step: distance of the rows that stand for all.
        """
        size = sizes[self.axis]
        total = count = 0
        for row in range(0, sizes[rows] if rows else 1, step):
            low, high = 0, size
            for bound in self.limits:
                factors = dict(bound.factors)
                rest = factors.get(rows or "", 0) * row + bound.constant
                rest += sum(factor * sizes[axis] for axis, factor in bound.extents)
                if factors[self.axis] < 0:
                    high = min(high, rest + 1)
                else:
                    low = max(low, -rest)
            total += max(0, high - low)
            count += size
        return total / count


def span(fusion: Fusion, loop: LoopRoles, sizes: Mapping[str, object]) -> Span:
    """The part of a loop that masks leave to a row."""
    known = {*loop.rows, loop.reduction_axis}
    limits = (bound for bound in bounds(fusion, loop, sizes) if {axis for axis, n in bound.factors if n} <= known)
    return Span(loop.reduction_axis, tuple(limits))
