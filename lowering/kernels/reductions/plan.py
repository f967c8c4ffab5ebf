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
class Pass:
    """One pass over a block of the loop.

    Attributes:
        narrow: reductions with one accumulator per row.
        wide: reductions with one accumulator per row and feature; their expressions read ``parts``.
        parts: expressions per row and position that the wide ones read, by the names given to them.
        rows: updates per row, after the narrow reductions.
        wide_rows: updates per row and feature, after the wide ones.
    """

    narrow: list[BlockReduction] = field(default_factory=list)
    wide: list[BlockReduction] = field(default_factory=list)
    parts: dict[str, Expr] = field(default_factory=dict)
    rows: list[Update] = field(default_factory=list)
    wide_rows: list[Update] = field(default_factory=list)

    @property
    def read(self) -> frozenset[str]:
        """Names that the pass reads per row and position."""
        exprs = [line.expr for line in (*self.narrow, *self.wide)] + [*self.parts.values()]
        return frozenset(name for expr in exprs for name in reads(expr))


@dataclass(frozen=True)
class Plan:
    """A loop as passes over each of its blocks.

    Attributes:
        elements: what depends on a row and a position and on no statistic, by names: computed in the first pass and
            kept in scratch.
        passes: the first one runs while the elements are computed.
    """

    fusion: Fusion
    roles: LoopRoles
    names: Scope
    elements: dict[str, Expr]
    passes: tuple[Pass, ...]

    def is_wide(self, axes: tuple[str, ...]) -> bool:
        """Whether something has a position on the features."""
        return self.roles.feature_axis is not None and self.roles.feature_axis in axes

    def last_read(self, name: str) -> int:
        """The last pass that reads an element."""
        return max((number for number, step in enumerate(self.passes) if name in step.read), default=0)

    def read_by_wide(self, name: str) -> bool:
        """Whether an accumulator per feature reads an element itself."""
        return any(name in reads(line.expr) for step in self.passes for line in step.wide)


def plan(fusion: Fusion, found: LoopRoles, rows: Iterable[str]) -> Plan:
    """The passes of a loop."""
    extra = {f"{s.name}.{moment}": s.axes for s in found.rolling.state for moment in ("old", "new")}
    extra |= {line.name: line.axes if isinstance(line, Update) else line.reduce.axes for line in found.rolling.body}
    extra |= {f"count.{moment}": () for moment in ("old", "local", "new")}
    names = Scope(fusion.chain, extra)
    level = {name: 0 for name in extra if name.endswith(".old") or name.startswith("count.")}
    passes = [Pass()]
    elements, parts = Parts("element."), Parts("part.")
    place = {*rows, found.reduction_axis}

    def element(expr: Expr) -> bool:
        axes = names.axes(expr)
        return place <= axes and found.feature_axis not in axes and extra.keys().isdisjoint(reads(expr))

    def part(expr: Expr) -> bool:
        axes = _axes(expr, names, elements, place)
        return isinstance(expr, Apply) and place <= axes and found.feature_axis not in axes

    for line in found.rolling.body:
        expr = line.reduce.expr if isinstance(line, Local) else line.expr
        before = max((level.get(name, 0) for name in reads(expr)), default=0)
        if isinstance(line, Update):
            level[line.name] = before
            target = passes[max(before - 1, 0)]
            (target.wide_rows if found.feature_axis in line.axes else target.rows).append(line)
            continue
        wide = found.feature_axis in line.reduce.axes
        number = max(before, 1) if wide else before
        level[line.name] = number + 1
        passes += [Pass() for _ in range(number + 1 - len(passes))]
        taken = elements.take(names.inlined(expr), element)
        if wide:
            taken = parts.take(taken, part)
            passes[number].parts |= {name: expr for expr, name in parts.named.items() if name in reads(taken)}
            passes[number].wide.append(BlockReduction(line, taken))
        else:
            passes[number].narrow.append(BlockReduction(line, taken))
    return Plan(fusion, found, names, {name: expr for expr, name in elements.named.items()}, tuple(passes))


def _axes(expr: Expr, names: Scope, elements: Parts, place: set[str]) -> frozenset[str]:
    known = {name: tuple(place) for name in elements.named.values()}
    return Scope(names.chain, {**names.extra, **known}).axes(expr)


def transposed(plan: Plan, lane: str) -> tuple[Input, ...]:
    """Inputs with a value per row and position whose rows are not contiguous in memory."""
    return tuple(
        value
        for value in plan.fusion.chain.inputs
        if {lane, plan.roles.reduction_axis} <= set(value.axes) and value.axes[-1] != lane
    )


def row_steps(plan: Plan) -> tuple[Map, ...]:
    """Element-wise steps after the loop."""
    return tuple(step for stage in plan.fusion.stages for step in stage.rows if isinstance(step, Map))


def counted(rolling: Rolling) -> bool:
    """Whether the loop asks how many positions it has seen."""
    exprs = [line.reduce.expr if isinstance(line, Local) else line.expr for line in rolling.body]
    return any(name.startswith("count.") for expr in exprs for name in reads(expr))
