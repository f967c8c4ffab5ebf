"""Chains with contractions and few rows: vector lanes run along the contracted axis, then along the loop's.

Keys and values are streamed once, as they lie in memory. A score is a dot product of two vectors; those of as many
keys as a vector has lanes are added across by one tree of shuffles, so that scores are vectors of keys from there on.
Statistics are scalars, the accumulators of the values vectors of features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

from covan_mlir.fred.chain import Map, Reduce
from covan_mlir.fred.expression import Read
from covan_mlir.fred.forms import Fusion, Update
from covan_mlir.lowering.kernels.cpu.accumulators import accumulated, across, combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value, computed
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    Uniform,
    VectorEvaluator,
    address,
    inputs,
    narrow,
)
from covan_mlir.lowering.kernels.cpu.merge import PART, part_dtype, part_name
from covan_mlir.lowering.kernels.cpu.schedule import Schedule
from covan_mlir.lowering.kernels.cpu.tiles import padded
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.masks import Span
from covan_mlir.lowering.kernels.reductions.plan import Pass, counted, plan, row_steps
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles
from covan_mlir.machine.elements import bits

LINE = 64
"""Bytes of a cache line, or a divisor of them."""
Known = list[dict[str, Result]]
"""What is known of the rows, per row."""


def sums(code: KernelBuilder, op: str, vectors: Sequence[Value]) -> Value:
    """A vector whose lane n holds all lanes of the n-th vector combined."""
    lanes = code.lanes
    rest, size = list(vectors), 1
    while len(rest) > 1:
        low = [n if not n & size else lanes + n - size for n in range(lanes)]
        high = [n + size if not n & size else lanes + n for n in range(lanes)]
        rest = [
            code.op(op, code.shuffle(a, b, low), code.shuffle(a, b, high))
            for a, b in zip(rest[::2], rest[1::2], strict=True)
        ]
        size *= 2
    return rest[0]


class FewRowsWriter:
    """Writes the code of a workgroup: all rows that share their keys."""

    def __init__(
        self, code: KernelBuilder, fusion: Fusion, sizes: Mapping[str, Size], schedule: Schedule, found: LoopRoles
    ) -> None:
        self.code, self.fusion, self.sizes, self.schedule, self.roles = code, fusion, sizes, schedule, found
        self.stream, self.wide = found.reduction_axis, found.feature_axis
        length = sizes[self.stream]
        self.block = padded(schedule.block, code.lanes)
        self.block = min(self.block, padded(length, code.lanes)) if isinstance(length, int) else self.block
        self.plan = plan(fusion, found, found.free)
        self.evaluator = VectorEvaluator(code, fusion.chain, inputs(code, fusion.chain, sizes))
        self.evaluator.aliases = self.plan.elements
        self.batch = tuple(axis for axis in found.rows if axis not in found.free)
        self.dtype = computed(found.rolling.state[0].dtype)
        self.span = Span(fusion, found, sizes, code.lanes)
        self.rows = list(product(*(range(sizes[axis]) for axis in found.free)))
        self.states = [state for state in found.rolling.state if found.feature_axis not in state.axes]
        self.wide_states = [state for state in found.rolling.state if found.feature_axis in state.axes]

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, one per position of the axes that rows do not share keys along, and part of the loop; of sizes
        that may be others than the writer's own."""
        return self.code.mul(self.code.product(sizes[axis] for axis in self.batch), self.schedule.split)

    def write(self) -> None:
        """The whole function."""
        code = self.code
        rest, self.part = code.divmod(code.workgroup, self.schedule.split)
        self.position: dict[str, Value] = {}
        for axis in reversed(self.batch):
            rest, self.position[axis] = code.divmod(rest, self.sizes[axis])
        self._memory()
        first = {**self.position, **{axis: code.index(0) for axis in self.roles.free}}
        last = {**self.position, **{axis: code.index(self.sizes[axis] - 1) for axis in self.roles.free}}
        low, high = self.span.bounds(code, first, last)
        if counted(self.roles.rolling):
            low, high = 0, self.sizes[self.stream]
        self.begin: Value | int = 0
        if self.schedule.split == 1:
            self._finish(self._loop(low, high))
            return
        blocks = code.ceildiv(code.ceildiv(self.sizes[self.stream], self.schedule.split), self.block)
        length = code.mul(blocks, self.block)
        self.begin = code.mul(self.part, length)
        low = code.max(self.begin, low)
        high = code.min(code.min(code.add(self.begin, length), self.sizes[self.stream]), high)
        self._leave(self._loop(low, high))

    def _memory(self) -> None:
        code, rows = self.code, len(self.rows)
        self.scratch = {name: code.scratch(rows * self.block, self.dtype) for name in self.plan.elements}
        for step in self.plan.passes:
            for name in step.parts:
                self.scratch[name] = code.scratch(rows * self.block, self.dtype)
        self.features = padded(self.sizes[self.wide], code.lanes) if self.wide else 0
        self.accumulators = {state.name: code.scratch(rows * self.features, self.dtype) for state in self.wide_states}
        for state in self.wide_states:
            value, memory = code.splat(state.initial.value, self.dtype), self.accumulators[state.name]

            def body(n: Value, _: list[Value], value: Value = value, memory: Value = memory) -> list[Value]:
                code.store(value, memory, n)
                return []

            code.loop(0, rows * self.features, code.lanes, [], body)

    def _row(self, r: int) -> dict[str, Value]:
        return {axis: self.code.index(n) for axis, n in zip(self.roles.free, self.rows[r], strict=True)}

    def _place(
        self, r: int, lane: str | None, given: Mapping[str, Result], valid: Value | None = None, **index: Value
    ) -> Position:
        return Position({**self.position, **self._row(r), **index}, lane, valid, given)

    def _at(self, r: int, row: Value) -> Value:
        return self.code.add(row, r * self.block)

    # The loop

    def _loop(self, low: Value | int, high: Value | int) -> Known:
        code = self.code
        initial = [code.constant(s.initial.value, accumulated(s.dtype)) for s in self.states for _ in self.rows]

        def named(values: list[Value], moment: str) -> Known:
            count = len(self.rows)
            return [
                {f"{s.name}.{moment}": Uniform(values[n * count + r]) for n, s in enumerate(self.states)}
                for r in range(count)
            ]

        def block(start: Value, values: list[Value], count: Value | int) -> list[Value]:
            known = named(values, "old")
            seen = start if isinstance(self.begin, int) else code.op("subi", start, self.begin)
            for moment, number in (("local", count), ("old", seen)):
                whole = code.cast("index_cast", code.add(number), "i64")
                for row in known:
                    row[f"count.{moment}"] = Uniform(code.cast("sitofp", whole, self.dtype))
            self._block(start, count, known)
            last: list[Value] = []
            for state in self.states:
                for row in known:
                    value = row[f"{state.name}.new"]
                    assert isinstance(value, Uniform)
                    last.append(value.value)
            return last

        if isinstance(low, int) and isinstance(high, int):
            return named(code.spans(low, high, self.block, initial, block), "new")

        def body(start: Value, values: list[Value]) -> list[Value]:
            return block(start, values, code.min(code.op("subi", code.add(high), start), self.block))

        return named(code.loop(low, high, self.block, initial, body), "new")

    def _block(self, start: Value, count: Value | int, known: Known) -> None:
        for number, step in enumerate(self.plan.passes):
            self._sweep(start, count, step, known, first=number == 0)
            for line in step.rows:
                for r, row in enumerate(known):
                    row[line.name] = self.evaluator.run(line.expr, self._place(r, None, row))
            if step.wide or step.wide_rows:
                for r in range(0, len(self.rows), self.schedule.unroll):
                    self._wide(start, count, step, known, list(range(len(self.rows)))[r : r + self.schedule.unroll])

    def _sweep(self, start: Value, count: Value | int, step: Pass, known: Known, first: bool) -> None:
        code, lanes = self.code, self.code.lanes
        kinds = [combining(line.local.reduce) for line in step.narrow]
        initial = [
            code.splat(neutral, accumulated(line.local.reduce.dtype))
            for line, (_, neutral) in zip(step.narrow, kinds, strict=True)
            for _ in self.rows
        ]
        ragged = not isinstance(count, int) or count % lanes != 0

        def keys(n: Value, values: list[Value]) -> list[Value]:
            result = list(values)
            valid = code.prefix(code.min(code.op("subi", code.add(count), n), lanes)) if ragged else None
            at = code.add(start, n)
            for r, row in enumerate(known):
                given: dict[str, Result] = dict(row)
                if first:
                    given |= {inner.name: Lanes(self._scores(inner, at, r)) for inner in self.roles.inner}
                else:
                    given |= {
                        name: Lanes(code.load(self.scratch[name], self._at(r, n)))
                        for name in self.plan.elements
                        if name in step.read
                    }
                place = self._place(r, self.stream, given, valid, **{self.stream: at})
                for name, expr in (self.plan.elements if first else step.parts).items():
                    value = self.evaluator.vector(expr, place)
                    given[name] = Lanes(value)
                    code.store(value, self.scratch[name], self._at(r, n))
                for k, (line, (op, neutral)) in enumerate(zip(step.narrow, kinds, strict=True)):
                    value = self.evaluator.vector(line.expr, place)
                    if valid is not None:
                        value = code.op("select", valid, value, code.like(neutral, value))
                    slot = k * len(self.rows) + r
                    result[slot] = code.op(op, result[slot], value)
            return result

        final = code.loop(0, count, lanes, initial, keys)
        for k, (line, (op, _)) in enumerate(zip(step.narrow, kinds, strict=True)):
            for r, row in enumerate(known):
                (total,) = across(code, partial(code.op, op), [final[k * len(self.rows) + r]])
                start_value = code.like(line.local.reduce.initial.value, total)
                row[line.local.name] = Uniform(code.op(op, total, start_value))

    def _scores(self, step: Reduce, first: Value, r: int) -> Value:
        code, lanes = self.code, self.code.lanes
        if len(step.over) != 1:
            raise UnsupportedError(f"{step.name} is a contraction over {len(step.over)} axes")
        (axis,) = step.over
        op, neutral = combining(step)
        size, length = self.sizes[axis], self.sizes[self.stream]
        exact = isinstance(length, int) and length % lanes == 0
        end = length - 1 if isinstance(length, int) else code.add(length, -1)
        keys = [code.add(first, k) if exact else code.min(code.add(first, k), end) for k in range(lanes)]

        def chunk(n: Value, values: list[Value], length: int) -> list[Value]:
            valid = code.prefix(length) if length < lanes else None
            result = []
            for k, key in enumerate(keys):
                place = self._place(r, axis, {}, valid, **{self.stream: key, axis: n})
                value = self.evaluator.vector(step.expr, place)
                if valid is not None:
                    value = code.op("select", valid, value, code.like(neutral, value))
                result.append(code.op(op, values[k], value))
            return result

        totals = code.spans(0, size, lanes, [code.splat(neutral, self.dtype)] * lanes, chunk)
        total = sums(code, op, totals)
        if step.initial.value != neutral:
            total = code.op(op, total, code.like(step.initial.value, total))
        return total

    def _wide(self, start: Value, count: Value | int, step: Pass, known: Known, rows: list[int]) -> None:
        code, wide = self.code, self.wide or ""
        width = self.schedule.vectors * code.lanes

        def features(first: Value, none: list[Value], length: int) -> list[Value]:
            chunks = [(code.add(first, c), length - c) for c in range(0, length, code.lanes)]
            masks = [code.prefix(left) if left < code.lanes else None for _, left in chunks]
            initial = [
                code.splat(line.local.reduce.initial.value, self.dtype)
                for line in step.wide
                for _ in rows
                for _ in chunks
            ]

            def keys(n: Value, values: list[Value]) -> list[Value]:
                result: list[Value] = []
                if self.schedule.ahead and rows[0] == 0:
                    self._prefetch(code.add(start, self.block, n))
                for line in step.wide:
                    for r in rows:
                        given = dict(known[r])
                        for name, memory in self.scratch.items():
                            if name in step.read:
                                given[name] = Uniform(code.scalar(memory, self._at(r, n)))
                        for (e, _), valid in zip(chunks, masks, strict=True):
                            place = self._place(r, wide, given, valid, **{self.stream: code.add(start, n), wide: e})
                            value = self.evaluator.vector(line.expr, place)
                            result.append(code.op(combining(line.local.reduce)[0], values[len(result)], value))
                return result

            final = code.loop(0, count, 1, initial, keys)
            for i, r in enumerate(rows):
                for c, (e, _) in enumerate(chunks):
                    given = dict(known[r])
                    for k, line in enumerate(step.wide):
                        given[line.local.name] = Lanes(final[(k * len(rows) + i) * len(chunks) + c])
                    self._update(step.wide_rows, r, e, given)
            return none

        code.spans(0, self.sizes[wide], width, [], features)

    def _prefetch(self, at: Value) -> None:
        """Asks for what scores at a position of the loop are computed of."""
        code = self.code
        for axis in {axis for inner in self.roles.inner for axis in inner.over}:
            for value in self.fusion.chain.inputs:
                if self.stream in value.axes and value.axes[-1] == axis:
                    for first in range(0, self.sizes[axis], LINE * 8 // bits(value.dtype)):
                        place = self._place(0, axis, {}, None, **{self.stream: at, axis: code.index(first)})
                        code.prefetch(code.memory[value.name], address(code, value.axes, self.sizes, place)[0])

    def _update(self, updates: list[Update], r: int, e: Value, given: dict[str, Result]) -> None:
        code, wide = self.code, self.wide or ""
        for name, memory in self.accumulators.items():
            given[f"{name}.old"] = Lanes(code.load(memory, code.add(e, r * self.features)))
        for update in updates:
            given[update.name] = self.evaluator.run(update.expr, self._place(r, wide, dict(given), **{wide: e}))
            state, _, moment = update.name.rpartition(".")
            if moment == "new":
                value = self.evaluator.lanes(given[update.name])
                code.store(value, self.accumulators[state], code.add(e, r * self.features))

    # After the loop

    def _leave(self, known: Known) -> None:
        # The state of this part, for the merge.
        code, sizes = self.code, {**self.sizes, PART: self.schedule.split}
        for state in self.states:
            for r, row in enumerate(known):
                at, _ = address(code, (PART, *state.axes), sizes, self._place(r, None, {}, **{PART: self.part}))
                value = row[f"{state.name}.new"]
                assert isinstance(value, Uniform)
                code.set_scalar(narrow(code, value.value, part_dtype(state)), code.memory[part_name(state.name)], at)
        if self.wide is None:
            return
        wide = self.wide

        def chunk(e: Value, none: list[Value], length: int) -> list[Value]:
            valid = None if length == code.lanes else code.prefix(length)
            for state in self.wide_states:
                for r in range(len(self.rows)):
                    place = self._place(r, wide, {}, valid, **{wide: e, PART: self.part})
                    at, distance = address(code, (PART, *state.axes), sizes, place)
                    value = code.load(self.accumulators[state.name], code.add(e, r * self.features))
                    memory = code.memory[part_name(state.name)]
                    if distance == 1:
                        code.store(value, memory, at, valid)
                    else:
                        code.scatter(value, memory, at, distance, valid)
            return none

        code.spans(0, self.sizes[wide], code.lanes, [], chunk)

    def _finish(self, known: Known) -> None:
        code, wide = self.code, self.wide
        finish = self.roles.rolling.finish
        steps: list[Update | Map] = [*finish, *row_steps(self.plan)]
        for r, row in enumerate(known):
            for step in steps:
                if not self.plan.is_wide(step.axes):
                    row[step.name] = self.evaluator.run(step.expr, self._place(r, None, row))
        for name in self.fusion.chain.outputs:
            value = self.fusion.chain.values[name]
            if wide is None or wide not in value.axes:
                for r, row in enumerate(known):
                    at, _ = address(code, value.axes, self.sizes, self._place(r, None, {}))
                    result = row[name]
                    assert isinstance(result, Uniform)
                    code.set_scalar(narrow(code, result.value, value.dtype), code.memory[name], at)
        outputs = [n for n in self.fusion.chain.outputs if self.plan.is_wide(self.fusion.chain.values[n].axes)]
        if wide is not None and outputs:

            def chunk(e: Value, none: list[Value], length: int) -> list[Value]:
                for r, row in enumerate(known):
                    self._write(outputs, r, e, dict(row), None if length == code.lanes else code.prefix(length))
                return none

            code.spans(0, self.sizes[wide], code.lanes, [], chunk)

    def _write(self, outputs: list[str], r: int, e: Value, given: dict[str, Result], valid: Value | None) -> None:
        code, wide = self.code, self.wide or ""
        for name, memory in self.accumulators.items():
            given[f"{name}.new"] = Lanes(code.load(memory, code.add(e, r * self.features)))
        for update in self.roles.rolling.finish:
            if self.plan.is_wide(update.axes):
                place = self._place(r, wide, dict(given), valid, **{wide: e})
                given[update.name] = self.evaluator.run(update.expr, place)
        place = self._place(r, wide, given, valid, **{wide: e})
        for name in outputs:
            step = self.fusion.chain.values[name]
            lanes = narrow(code, self.evaluator.vector(Read(name, ""), place), step.dtype)
            at, distance = address(code, step.axes, self.sizes, place)
            if distance == 1:
                code.store(lanes, code.memory[name], at, valid)
            else:
                code.scatter(lanes, code.memory[name], at, distance, valid)
