"""A fused loop, sorted into what runs when: which accumulators are updated in which pass over a block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from covan_mlir.fred.chain import Input, Map
from covan_mlir.fred.expression import Apply, Expr, reads
from covan_mlir.fred.forms import Fusion, Local, Rolling, Update
from covan_mlir.lowering.kernels.reductions.hoist import Parts, Scope
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles


@dataclass(frozen=True)
class BlockReduction:
    """A reduction over a block, its expression with the parts taken out that are kept in scratch."""

    local: Local
    expr: Expr


@dataclass
class LoopPass:
    """One pass over a block of the loop.

    Attributes:
        row_reductions: with one accumulator per row.
        feature_reductions: with one accumulator per row and feature; their expressions read ``parts``.
        parts: expressions per row and position that ``feature_reductions`` read, by the names given to them.
        row_updates: per row, after ``row_reductions``.
        feature_updates: per row and feature, after ``feature_reductions``.
    """

    row_reductions: list[BlockReduction] = field(default_factory=list)
    feature_reductions: list[BlockReduction] = field(default_factory=list)
    parts: dict[str, Expr] = field(default_factory=dict)
    row_updates: list[Update] = field(default_factory=list)
    feature_updates: list[Update] = field(default_factory=list)

    @property
    def read(self) -> frozenset[str]:
        """Names that the pass reads per row and position."""
        exprs = [line.expr for line in (*self.row_reductions, *self.feature_reductions)] + [*self.parts.values()]
        return frozenset(name for expr in exprs for name in reads(expr))


@dataclass(frozen=True)
class LoopPlan:
    """A loop as passes over each of its blocks.

    Attributes:
        elements: what depends on a row and a position and on no statistic, by names: computed in the first pass and
            kept in scratch.
        passes: the first one runs while the elements are computed.
    """

    fusion: Fusion
    roles: LoopRoles
    scope: Scope
    elements: dict[str, Expr]
    passes: tuple[LoopPass, ...]

    def per_feature(self, axes: tuple[str, ...]) -> bool:
        """Whether something has a position on the features."""
        return self.roles.feature_axis is not None and self.roles.feature_axis in axes

    def last_read(self, name: str) -> int:
        """The last pass that reads an element."""
        return max((number for number, step in enumerate(self.passes) if name in step.read), default=0)

    def read_per_feature(self, name: str) -> bool:
        """Whether an accumulator per feature reads an element itself."""
        return any(name in reads(line.expr) for step in self.passes for line in step.feature_reductions)


def plan(fusion: Fusion, loop: LoopRoles, rows: Iterable[str]) -> LoopPlan:
    """The passes of a loop."""
    rolling, features = loop.rolling, loop.feature_axis
    extra = {f"{s.name}.{moment}": s.axes for s in rolling.state for moment in ("old", "new")}
    extra |= {line.name: line.axes if isinstance(line, Update) else line.reduce.axes for line in rolling.body}
    extra |= {f"count.{moment}": () for moment in ("old", "local", "new")}
    scope = Scope(fusion.chain, extra)
    level = {name: 0 for name in extra if name.endswith(".old") or name.startswith("count.")}
    passes = [LoopPass()]
    elements, parts = Parts("element."), Parts("part.")
    position = {*rows, loop.reduction_axis}

    def element(expr: Expr) -> bool:
        axes = scope.axes(expr)
        return position <= axes and features not in axes and extra.keys().isdisjoint(reads(expr))

    def part(expr: Expr) -> bool:
        axes = _axes(expr, scope, elements, position)
        return isinstance(expr, Apply) and position <= axes and features not in axes

    for line in rolling.body:
        expr = line.reduce.expr if isinstance(line, Local) else line.expr
        before = max((level.get(name, 0) for name in reads(expr)), default=0)
        if isinstance(line, Update):
            level[line.name] = before
            target = passes[max(before - 1, 0)]
            (target.feature_updates if features in line.axes else target.row_updates).append(line)
            continue
        per_feature = features in line.reduce.axes
        number = max(before, 1) if per_feature else before
        level[line.name] = number + 1
        passes += [LoopPass() for _ in range(number + 1 - len(passes))]
        taken = elements.take(scope.inlined(expr), element)
        if per_feature:
            taken = parts.take(taken, part)
            passes[number].parts |= {name: expr for expr, name in parts.named.items() if name in reads(taken)}
            passes[number].feature_reductions.append(BlockReduction(line, taken))
        else:
            passes[number].row_reductions.append(BlockReduction(line, taken))
    return LoopPlan(fusion, loop, scope, {name: expr for expr, name in elements.named.items()}, tuple(passes))


def _axes(expr: Expr, scope: Scope, elements: Parts, position: set[str]) -> frozenset[str]:
    known = {name: tuple(position) for name in elements.named.values()}
    return Scope(scope.chain, {**scope.extra, **known}).axes(expr)


def transposed(plan: LoopPlan, lane: str) -> tuple[Input, ...]:
    """Inputs with a value per row and position whose rows are not contiguous in memory."""
    return tuple(
        value
        for value in plan.fusion.chain.inputs
        if {lane, plan.roles.reduction_axis} <= set(value.axes) and value.axes[-1] != lane
    )


def row_steps(plan: LoopPlan) -> tuple[Map, ...]:
    """Element-wise steps after the loop."""
    return tuple(step for stage in plan.fusion.stages for step in stage.rows if isinstance(step, Map))


def counted(rolling: Rolling) -> bool:
    """Whether the loop asks how many positions it has seen."""
    exprs = [line.reduce.expr if isinstance(line, Local) else line.expr for line in rolling.body]
    return any(name.startswith("count.") for expr in exprs for name in reads(expr))
