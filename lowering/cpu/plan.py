"""A fused loop, sorted into what runs when: which accumulators are updated in which pass over a block."""

from __future__ import annotations

from dataclasses import dataclass, field

from covan_mlir.fred.chain import Input, Map
from covan_mlir.fred.expression import Apply, Expr, Read, reads
from covan_mlir.fred.forms import Fusion, Local, Update
from covan_mlir.lowering.cpu.hoist import Names, Parts
from covan_mlir.lowering.cpu.roles import Roles, elements

_MOMENTS = ("old", "local", "new", "safe", "a", "b")


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

    narrow: list[Local] = field(default_factory=list)
    wide: list[tuple[Local, Expr]] = field(default_factory=list)
    parts: dict[str, Expr] = field(default_factory=dict)
    rows: list[Update] = field(default_factory=list)
    wide_rows: list[Update] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """A loop as passes over each of its blocks.

    Attributes:
        stored: element values that are kept in scratch from the first pass on.
        passes: the first one runs while the elements are computed.
    """

    fusion: Fusion
    roles: Roles
    names: Names
    stored: tuple[str, ...]
    passes: tuple[Pass, ...]

    def is_wide(self, axes: tuple[str, ...]) -> bool:
        """Whether something has a position on the features."""
        return self.roles.wide is not None and self.roles.wide in axes

    def last_read(self, name: str) -> int:
        """The last pass that reads a stored value."""
        found = 0
        for number, step in enumerate(self.passes):
            exprs = (
                [line.reduce.expr for line in step.narrow] + [expr for _, expr in step.wide] + [*step.parts.values()]
            )
            if any(name in reads(expr) for expr in exprs):
                found = number
        return found

    def read_by_wide(self, name: str) -> bool:
        """Whether an accumulator per feature reads a stored value itself."""
        return any(name in reads(expr) for step in self.passes for _, expr in step.wide)


def plan(fusion: Fusion, found: Roles, lane: str) -> Plan:
    """The passes of a loop."""
    chain, stream = fusion.chain, found.stream
    extra = {f"{s.name}.{moment}": s.axes for s in found.rolling.state for moment in _MOMENTS}
    extra |= {line.name: line.axes if isinstance(line, Update) else line.reduce.axes for line in found.rolling.body}
    extra |= {f"count.{moment}": () for moment in _MOMENTS}
    names = Names(chain, extra)
    stored = tuple(
        name for name in sorted(elements(found)) if {lane, stream} <= names.axes(names.inlined(Read(name, "")))
    )
    level: dict[str, int] = {name: 0 for name in extra if name.endswith(".old") or name.startswith("count.")}
    passes: list[Pass] = [Pass()]
    parts = Parts("part")

    def wide(axes: tuple[str, ...]) -> bool:
        return found.wide is not None and found.wide in axes

    def wanted(expr: Expr) -> bool:
        axes = names.axes(expr)
        return isinstance(expr, Apply) and {lane, stream} <= axes and found.wide not in axes

    for line in found.rolling.body:
        expr = line.reduce.expr if isinstance(line, Local) else line.expr
        before = max((level.get(name, 0) for name in reads(expr)), default=0)
        if isinstance(line, Local):
            number = before if not wide(line.reduce.axes) else max(before, 1)
            level[line.name] = number + 1
            while len(passes) <= number:
                passes.append(Pass())
            if wide(line.reduce.axes):
                known = set(parts.named.values())
                taken = parts.take(names.inlined(expr, frozenset(stored)), wanted)
                passes[number].wide.append((line, taken))
                fresh = {name: part for part, name in parts.named.items() if name not in known}
                passes[number].parts |= fresh
            else:
                passes[number].narrow.append(line)
        else:
            level[line.name] = before
            target = passes[max(before - 1, 0)]
            (target.wide_rows if wide(line.axes) else target.rows).append(line)
    return Plan(fusion, found, names, stored, tuple(passes))


def transposed(plan: Plan, lane: str) -> tuple[Input, ...]:
    """Inputs with a value per row and position whose rows are not contiguous in memory."""
    return tuple(
        value
        for value in plan.fusion.chain.inputs
        if {lane, plan.roles.stream} <= set(value.axes) and value.axes[-1] != lane
    )


def row_steps(plan: Plan) -> tuple[Map, ...]:
    """Element-wise steps after the loop."""
    return tuple(step for stage in plan.fusion.stages for step in stage.rows if isinstance(step, Map))
