"""The second dispatch of a loop that runs in parts: merges the states of the parts and finishes what the loop began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from covan_mlir.fred.chain import Map
from covan_mlir.fred.expression import Read, reads
from covan_mlir.fred.forms import Fusion, SplitK, State, Update
from covan_mlir.lowering.kernels.cpu.accumulators import accumulated
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    Uniform,
    VectorEvaluator,
    address,
    load,
    narrow,
)
from covan_mlir.lowering.kernels.cpu.schedule import Schedule
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


def part_operands(found: LoopRoles, sizes: Mapping[str, int | None], parts: int) -> tuple[Operand, ...]:
    """What the loop's dispatch leaves for this one: each state, once per part."""

    def made(state: State) -> Operand:
        shape = (-1 if (size := sizes[axis]) is None else size for axis in state.axes)
        unknown = tuple(axis for axis in state.axes if sizes[axis] is None)
        return Operand(part_name(state.name), (parts, *shape), part_dtype(state), unknown)

    return tuple(map(made, found.rolling.state))


def read_after(fusion: Fusion, found: LoopRoles) -> tuple[str, ...]:
    """Inputs of the chain that are read after the loop, or by the merge."""
    split = found.stage.split
    lines = [
        *found.rolling.finish,
        *(split.merge if split else ()),
        *(s for stage in fusion.stages for s in stage.rows),
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


def _scalar(value: Result) -> Value:
    assert isinstance(value, Uniform)
    return value.value


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
        schedule: Schedule,
        found: LoopRoles,
        split: SplitK,
    ) -> None:
        self.code, self.fusion, self.schedule, self.roles, self.split = code, fusion, schedule, found, split
        self.sizes = {**sizes, PART: schedule.split}
        self.wide = found.feature_axis
        self.evaluator = VectorEvaluator(
            code,
            fusion.chain,
            {
                value.name: load(code, code.memory[value.name], value.dtype, value.axes, sizes)
                for value in fusion.chain.inputs
                if value.name in code.memory
            },
        )
        self.parts = {
            state.name: load(
                code, code.memory[part_name(state.name)], part_dtype(state), (PART, *state.axes), self.sizes
            )
            for state in found.rolling.state
        }

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, one per row, of sizes that may be others than the writer's own."""
        return self.code.product(sizes[axis] for axis in self.roles.rows)

    def write(self) -> None:
        """The whole function."""
        code = self.code
        rest = code.workgroup
        self.position: dict[str, Value] = {}
        for axis in reversed(self.roles.rows):
            rest, self.position[axis] = code.divmod(rest, self.sizes[axis])
        values = self.fusion.chain.values
        rows = [name for name in self.fusion.chain.outputs if not self._is_wide(values[name].axes)]
        features = [name for name in self.fusion.chain.outputs if self._is_wide(values[name].axes)]
        if rows:
            (known,) = self._merged([Position(self.position, None)])
            for name in rows:
                value = self.evaluator.scalar(Read(name, ""), Position(self.position, None, given=known))
                at, _ = address(code, values[name].axes, self.sizes, Position(self.position, None))
                code.set_scalar(narrow(code, value, values[name].dtype), code.memory[name], at)
        if features and self.wide is not None:
            code.spans(
                0,
                self.sizes[self.wide],
                _GROUP * code.lanes,
                [],
                lambda e, none, length: self._features(features, e, length),
            )

    def _is_wide(self, axes: tuple[str, ...]) -> bool:
        return self.wide is not None and self.wide in axes

    def _features(self, names: Sequence[str], first: Value, length: int) -> list[Value]:
        code = self.code
        places = []
        for n in range(0, length, code.lanes):
            valid = code.prefix(length - n) if length - n < code.lanes else None
            places.append(Position({**self.position, self.wide or "": code.add(first, n)}, self.wide, valid))
        for place, known in zip(places, self._merged(places), strict=True):
            here = Position(place.index, place.lane, place.valid, known)
            for name in names:
                step = self.fusion.chain.values[name]
                lanes = narrow(code, self.evaluator.vector(Read(name, ""), here), step.dtype)
                at, distance = address(code, step.axes, self.sizes, here)
                if distance == 1:
                    code.store(lanes, code.memory[name], at, place.valid)
                else:
                    code.scatter(lanes, code.memory[name], at, distance, place.valid)
        return []

    def _merged(self, places: Sequence[Position]) -> list[dict[str, Result]]:
        # What is known of the row after all parts, at each place: vectors of features, or none.
        code = self.code
        wide = [state for state in self.roles.rolling.state if self._is_wide(state.axes) and places[0].lane]
        row = [state for state in self.roles.rolling.state if not self._is_wide(state.axes)]

        def read(part: Value) -> list[Value]:
            index = {**self.position, PART: part}
            values = [_scalar(self.parts[state.name](Position(index, None))) for state in row]
            for place in places:
                here = Position({**place.index, PART: part}, place.lane, place.valid)
                values += [self.evaluator.lanes(self.parts[state.name](here)) for state in wide]
            return values

        def named(values: Sequence[Value], moment: str) -> list[dict[str, Result]]:
            shared: dict[str, Result] = {
                f"{state.name}.{moment}": Uniform(v) for state, v in zip(row, values, strict=False)
            }
            found = []
            for n in range(len(places)):
                mine = values[len(row) + n * len(wide) :]
                lanes: dict[str, Result] = {
                    f"{state.name}.{moment}": Lanes(v) for state, v in zip(wide, mine, strict=False)
                }
                found.append({**shared, **lanes})
            return found

        def body(part: Value, values: list[Value]) -> list[Value]:
            known = [{**a, **b} for a, b in zip(named(values, "a"), named(read(part), "b"), strict=True)]
            self._run(self.split.merge, places, known)
            last = [_scalar(known[0][f"{state.name}.new"]) for state in row]
            for values_here in known:
                last += [self.evaluator.lanes(values_here[f"{state.name}.new"]) for state in wide]
            return last

        final = code.loop(1, self.schedule.split, 1, read(code.index(0)), body)
        known = named(final, "new")
        steps = [step for stage in self.fusion.stages for step in stage.rows if isinstance(step, Map)]
        self._run([*self.roles.rolling.finish, *steps], places, known)
        return known

    def _run(
        self, lines: Sequence[Update | Map], places: Sequence[Position], known: Sequence[dict[str, Result]]
    ) -> None:
        for line in lines:
            if not self._is_wide(line.axes):
                value = self.evaluator.run(line.expr, Position(self.position, None, given=dict(known[0])))
                for row in known:
                    row[line.name] = value
            elif places[0].lane:
                for place, row in zip(places, known, strict=True):
                    here = Position(place.index, place.lane, place.valid, dict(row))
                    row[line.name] = self.evaluator.run(line.expr, here)
