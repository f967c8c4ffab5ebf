"""The second dispatch of a loop that runs in parts: merges the states of the parts and finishes what the loop began.

A workgroup is one row i and runs this nest; its first half only where there are outputs per row::

    a = states[0, i]                                  # scalars
    for part in 1 .. split:
        a = merge(a, states[part, i])
    result[i] = finish(a)
    for e step 8 * lanes:                             # features
        a, f[8, lanes] = states[0, i], features[0, i, e:]
        for part in 1 .. split:
            a, f[8, lanes] = merge((a, f[8, lanes]), (states[part, i], features[part, i, e:]))
        y[i, e:] = finish(a, f[8, lanes])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from covan_mlir.fred.chain import Map
from covan_mlir.fred.expression import Read, reads
from covan_mlir.fred.forms import Fusion, SplitK, State, Update
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import accumulated
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    Uniform,
    VectorEvaluator,
    address,
    load,
    narrow,
    scalar,
)
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule
from covan_mlir.lowering.kernels.kernel import Operand
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles

PART = "part"
"""The axis of the parts, before all others."""

_GROUP = 8
"""Vectors of features that are merged together: they share what is computed per row."""


def part_name(state: str) -> str:
    """The tensor that holds a state of every part."""
    return f"{state}.{PART}"


def part_dtype(state: State) -> str:
    """The element type that a state is handed over in: that in which the loop carries it."""
    return accumulated(state.dtype)


def part_operands(roles: LoopRoles, sizes: Mapping[str, int | None], parts: int) -> tuple[Operand, ...]:
    """What the loop's dispatch leaves for this one: each state, once per part."""

    def operand(state: State) -> Operand:
        shape = (-1 if (size := sizes[axis]) is None else size for axis in state.axes)
        unknown = tuple(axis for axis in state.axes if sizes[axis] is None)
        return Operand(part_name(state.name), (parts, *shape), part_dtype(state), unknown)

    return tuple(map(operand, roles.rolling.state))


def read_after(fusion: Fusion, roles: LoopRoles) -> tuple[str, ...]:
    """Inputs of the chain that are read after the loop, or by the merge."""
    split = roles.stage.split
    lines = [
        *roles.rolling.finish,
        *(split.merge if split else ()),
        *(step for stage in fusion.stages for step in stage.rows),
    ]
    pending = {name for line in lines for name in reads(line.expr)}
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        value = fusion.chain.values.get(name)
        if isinstance(value, Map) and name not in seen:
            pending |= reads(value.expr)
        seen.add(name)
    return tuple(value.name for value in fusion.chain.inputs if value.name in seen)


@dataclass(frozen=True)
class MergedRow:
    """The row of a workgroup, and where its states are merged together.

    Attributes:
        index: position of the row.
        positions: vectors of features; or the row alone, where the states per feature are not asked for.
        row_states: states per row.
        feature_states: states per row and feature, as far as they are asked for.
    """

    index: Mapping[str, Value]
    positions: tuple[Position, ...]
    row_states: tuple[State, ...]
    feature_states: tuple[State, ...]


Known = list[dict[str, Result]]
"""What is known of a row, per position that its states are merged at."""


class MergeWriter:
    """Writes the code of a workgroup: one row.

    Args:
        split: how two states of the loop merge.
        schedule: its ``split`` is the number of parts.
    """

    def __init__(
        self,
        code: KernelBuilder,
        fusion: Fusion,
        sizes: Mapping[str, Size],
        schedule: VectorSchedule,
        roles: LoopRoles,
        split: SplitK,
    ) -> None:
        self.code, self.fusion, self.schedule, self.roles, self.split = code, fusion, schedule, roles, split
        self.sizes = {**sizes, PART: schedule.split}
        self.feature_axis = roles.feature_axis
        sources = {
            value.name: load(code, code.memory[value.name], value.dtype, value.axes, sizes)
            for value in fusion.chain.inputs
            if value.name in code.memory
        }
        self.evaluator = VectorEvaluator(code, fusion.chain, sources)
        self.parts = {
            state.name: load(
                code, code.memory[part_name(state.name)], part_dtype(state), (PART, *state.axes), self.sizes
            )
            for state in roles.rolling.state
        }

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, one per row, of sizes that may be others than the writer's own."""
        return self.code.product(sizes[axis] for axis in self.roles.rows)

    def write(self) -> None:
        """The whole function."""
        code, chain = self.code, self.fusion.chain
        rest = code.workgroup
        index: dict[str, Value] = {}
        for axis in reversed(self.roles.rows):
            rest, index[axis] = code.divmod(rest, self.sizes[axis])
        row_outputs = [name for name in chain.outputs if not self._per_feature(chain.values[name].axes)]
        feature_outputs = [name for name in chain.outputs if self._per_feature(chain.values[name].axes)]
        if row_outputs:
            (known,) = self._merged(self._row(index, [Position(index, None)]))
            for name in row_outputs:
                output = chain.values[name]
                value = self.evaluator.scalar(Read(name, ""), Position(index, None, given=known))
                at, _ = address(code, output.axes, self.sizes, Position(index, None))
                code.set_scalar(narrow(code, value, output.dtype), code.memory[name], at)
        if feature_outputs and self.feature_axis is not None:
            code.spans(
                0,
                self.sizes[self.feature_axis],
                _GROUP * code.lanes,
                [],
                lambda e, none, length: self._features(feature_outputs, index, e, length),
            )

    def _per_feature(self, axes: tuple[str, ...]) -> bool:
        return self.feature_axis is not None and self.feature_axis in axes

    def _row(self, index: Mapping[str, Value], positions: Sequence[Position]) -> MergedRow:
        per_row = tuple(state for state in self.roles.rolling.state if not self._per_feature(state.axes))
        rest = tuple(state for state in self.roles.rolling.state if self._per_feature(state.axes))
        return MergedRow(index, tuple(positions), per_row, rest if positions[0].lane else ())

    def _features(self, names: Sequence[str], index: Mapping[str, Value], first: Value, length: int) -> list[Value]:
        code = self.code
        positions = []
        for n in range(0, length, code.lanes):
            valid = code.prefix(length - n) if length - n < code.lanes else None
            at_features = {**index, self.feature_axis or "": code.add(first, n)}
            positions.append(Position(at_features, self.feature_axis, valid))
        for position, known in zip(positions, self._merged(self._row(index, positions)), strict=True):
            here = replace(position, given=known, results={})
            for name in names:
                step = self.fusion.chain.values[name]
                lanes = narrow(code, self.evaluator.vector(Read(name, ""), here), step.dtype)
                at, distance = address(code, step.axes, self.sizes, here)
                code.scatter(lanes, code.memory[name], at, distance, position.valid)
        return []

    def _merged(self, row: MergedRow) -> Known:
        """What is known after all parts."""

        def body(part: Value, values: list[Value]) -> list[Value]:
            before, beside = self._named(row, values, "a"), self._named(row, self._states(row, part), "b")
            known = [{**a, **b} for a, b in zip(before, beside, strict=True)]
            self._run(self.split.merge, row, known)
            last = [scalar(known[0][f"{state.name}.new"]) for state in row.row_states]
            for known_here in known:
                last += [self.evaluator.lanes(known_here[f"{state.name}.new"]) for state in row.feature_states]
            return last

        final = self.code.loop(1, self.schedule.split, 1, self._states(row, self.code.index(0)), body)
        known = self._named(row, final, "new")
        steps = [step for stage in self.fusion.stages for step in stage.rows if isinstance(step, Map)]
        self._run([*self.roles.rolling.finish, *steps], row, known)
        return known

    def _states(self, row: MergedRow, part: Value) -> list[Value]:
        """The states of a part: of the row, then of each position."""
        index = {**row.index, PART: part}
        values = [scalar(self.parts[state.name](Position(index, None))) for state in row.row_states]
        for position in row.positions:
            here = Position({**position.index, PART: part}, position.lane, position.valid)
            values += [self.evaluator.lanes(self.parts[state.name](here)) for state in row.feature_states]
        return values

    @staticmethod
    def _named(row: MergedRow, values: Sequence[Value], moment: str) -> Known:
        names = [f"{state.name}.{moment}" for state in row.row_states]
        feature_names = [f"{state.name}.{moment}" for state in row.feature_states]
        shared: dict[str, Result] = {name: Uniform(value) for name, value in zip(names, values, strict=False)}
        known: Known = []
        for n in range(len(row.positions)):
            own = values[len(names) + n * len(feature_names) :]
            known.append(shared | {name: Lanes(value) for name, value in zip(feature_names, own, strict=False)})
        return known

    def _run(self, lines: Sequence[Update | Map], row: MergedRow, known: Known) -> None:
        """Computes lines in order, and makes their values known."""
        for line in lines:
            if not self._per_feature(line.axes):
                value = self.evaluator.run(line.expr, Position(row.index, None, given=dict(known[0])))
                for known_here in known:
                    known_here[line.name] = value
            elif row.positions[0].lane:
                for position, known_here in zip(row.positions, known, strict=True):
                    here = replace(position, given=dict(known_here), results={})
                    known_here[line.name] = self.evaluator.run(line.expr, here)
