"""Chains with contractions and few rows: vector lanes run along the contracted axis, then along the loop's.

For attention, with few queries q[i, d] to the same keys k[j, d] and values v[j, e], a workgroup runs this nest::

    i = all rows that share keys; lanes = elements of a vector
    features[i, e] = initial                          # accumulators of the values, in scratch
    statistics[i] = initial                           # scalars
    for start in range(low, high, block):             # low, high: what masks leave to any of the rows, of this part
        for j in block step lanes:                    # the first pass: scores
            for each i:
                for d step lanes:
                    for key in j .. j + lanes:
                        total[key, lanes] += q[i, d:] * k[start + key, d:]
                score[lanes] = sums(total)            # across lanes, by one tree of shuffles for all keys
                elements[i, j:] = element(score[lanes])
                local[i, lanes] = max(local[i, lanes], elements[i, j:])     # the pass's reductions per row
        statistics[i] = update(statistics[i], across(local[i, lanes]))
        for each further pass:
            for j in block step lanes:
                for each i:
                    parts[i, j:] = exp(elements[i, j:] - statistics[i])     # what values are weighted by
                    local[i, lanes] += exp(elements[i, j:] - statistics[i])
            statistics[i] = update(statistics[i], across(local[i, lanes]))
            for i step unroll:                        # where the pass has reductions per feature
                for e step vectors * lanes:
                    for j in block:                   # which asks for a key of the next block
                        local[unroll, e:] += parts[i, j] * v[start + j, e:]
                    features[i, e:] = update(features[i, e:], local[unroll, e:])
    y[i, e:] = finish(features[i, e:], statistics[i])      # of a part: its states, for the merge

Keys and values are streamed once, as they lie in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product

from covan_mlir.fred.chain import Map, Reduce
from covan_mlir.fred.expression import Read
from covan_mlir.fred.forms import Fusion, Update
from covan_mlir.lowering.kernels.cpu.accumulators import across, combining, sums
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import accumulated, computed
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Result,
    Uniform,
    VectorEvaluator,
    address,
    inputs,
    narrow,
    scalar,
)
from covan_mlir.lowering.kernels.cpu.loop_range import loop_range
from covan_mlir.lowering.kernels.cpu.merge import PART, part_dtype, part_name
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule
from covan_mlir.lowering.kernels.cpu.shared_rows import Known, LoopBlock, RowScratch, SharedRows
from covan_mlir.lowering.kernels.cpu.tiles import padded
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.masks import span
from covan_mlir.lowering.kernels.reductions.plan import LoopPass, counted, plan, row_steps
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles
from covan_mlir.machine.elements import bits

LINE = 64
"""Bytes of a cache line, or a divisor of them."""


class FewRowsWriter:
    """Writes the code of a workgroup: all rows that share their keys."""

    def __init__(
        self, code: KernelBuilder, fusion: Fusion, sizes: Mapping[str, Size], schedule: VectorSchedule, roles: LoopRoles
    ) -> None:
        self.code, self.fusion, self.sizes, self.schedule, self.roles = code, fusion, sizes, schedule, roles
        self.reduction_axis, self.feature_axis = roles.reduction_axis, roles.feature_axis
        length = sizes[self.reduction_axis]
        self.block = padded(schedule.block, code.lanes)
        self.block = min(self.block, padded(length, code.lanes)) if isinstance(length, int) else self.block
        self.features = padded(sizes[self.feature_axis], code.lanes) if self.feature_axis else 0
        self.plan = plan(fusion, roles, roles.free)
        self.evaluator = VectorEvaluator(code, fusion.chain, inputs(code, fusion.chain, sizes), self.plan.elements)
        self.batch = tuple(axis for axis in roles.rows if axis not in roles.free)
        self.dtype = computed(roles.rolling.state[0].dtype)
        self.span = span(fusion, roles, sizes)
        positions = product(*(range(sizes[axis]) for axis in roles.free))
        self.free = tuple(dict(zip(roles.free, position, strict=True)) for position in positions)
        self.row_states = [state for state in roles.rolling.state if roles.feature_axis not in state.axes]
        self.feature_states = [state for state in roles.rolling.state if roles.feature_axis in state.axes]

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, one per position of the axes that rows do not share keys along, and part of the loop; of sizes
        that may be others than the writer's own."""
        return self.code.mul(self.code.product(sizes[axis] for axis in self.batch), self.schedule.split)

    def write(self) -> None:
        """The whole function."""
        code, split = self.code, self.schedule.split
        rest, part = code.divmod(code.workgroup, split)
        position: dict[str, Value] = {}
        for axis in reversed(self.batch):
            rest, position[axis] = code.divmod(rest, self.sizes[axis])
        scratch = self._scratch()
        first = {**position, **{axis: code.index(0) for axis in self.roles.free}}
        last = {**position, **{axis: code.index(self.sizes[axis] - 1) for axis in self.roles.free}}
        low, high = loop_range(code, self.span, self.sizes, code.lanes, first, last)
        if counted(self.roles.rolling):
            low, high = 0, self.sizes[self.reduction_axis]
        if split == 1:
            rows = SharedRows(code, position, self.free, part, 0)
            self._finish(rows, scratch, self._loop(rows, scratch, low, high))
            return
        blocks = code.ceildiv(code.ceildiv(self.sizes[self.reduction_axis], split), self.block)
        length = code.mul(blocks, self.block)
        begin = code.mul(part, length)
        low = code.max(begin, low)
        high = code.min(code.min(code.add(begin, length), self.sizes[self.reduction_axis]), high)
        rows = SharedRows(code, position, self.free, part, begin)
        self._leave(rows, scratch, self._loop(rows, scratch, low, high))

    def _scratch(self) -> RowScratch:
        code, rows = self.code, len(self.free)
        names = [*self.plan.elements, *(name for loop_pass in self.plan.passes for name in loop_pass.parts)]
        positions = {name: code.scratch(rows * self.block, self.dtype) for name in names}
        features = {state.name: code.scratch(rows * self.features, self.dtype) for state in self.feature_states}
        for state in self.feature_states:
            value, memory = code.splat(state.initial.value, self.dtype), features[state.name]

            def body(n: Value, _: list[Value], value: Value = value, memory: Value = memory) -> list[Value]:
                code.store(value, memory, n)
                return []

            code.loop(0, rows * self.features, code.lanes, [], body)
        return RowScratch(positions, features)

    def _of_row(self, r: int, offset: Value) -> Value:
        return self.code.add(offset, r * self.block)

    # The loop

    def _loop(self, rows: SharedRows, scratch: RowScratch, low: Value | int, high: Value | int) -> Known:
        code, count_of_rows = self.code, len(self.free)
        initial = [code.constant(s.initial.value, accumulated(s.dtype)) for s in self.row_states for _ in self.free]

        def named(values: list[Value], moment: str) -> Known:
            return [
                {f"{s.name}.{moment}": Uniform(values[n * count_of_rows + r]) for n, s in enumerate(self.row_states)}
                for r in range(count_of_rows)
            ]

        def block(start: Value, values: list[Value], count: Value | int) -> list[Value]:
            known = named(values, "old")
            seen = start if isinstance(rows.begin, int) else code.op("subi", start, rows.begin)
            for moment, number in (("local", count), ("old", seen)):
                whole = code.cast("index_cast", code.add(number), "i64")
                for known_here in known:
                    known_here[f"count.{moment}"] = Uniform(code.cast("sitofp", whole, self.dtype))
            self._block(rows, scratch, LoopBlock(start, count, known))
            return [scalar(known_here[f"{state.name}.new"]) for state in self.row_states for known_here in known]

        if isinstance(low, int) and isinstance(high, int):
            return named(code.spans(low, high, self.block, initial, block), "new")

        def body(start: Value, values: list[Value]) -> list[Value]:
            return block(start, values, code.min(code.op("subi", code.add(high), start), self.block))

        return named(code.loop(low, high, self.block, initial, body), "new")

    def _block(self, rows: SharedRows, scratch: RowScratch, block: LoopBlock) -> None:
        for number, loop_pass in enumerate(self.plan.passes):
            self._row_pass(rows, scratch, block, loop_pass, first=number == 0)
            for update in loop_pass.row_updates:
                for r, known in enumerate(block.known):
                    known[update.name] = self.evaluator.run(update.expr, rows.at(r, None, known))
            if loop_pass.feature_reductions or loop_pass.feature_updates:
                numbers = list(range(len(self.free)))
                for r in range(0, len(numbers), self.schedule.unroll):
                    self._features(rows, scratch, block, loop_pass, numbers[r : r + self.schedule.unroll])

    def _row_pass(
        self, rows: SharedRows, scratch: RowScratch, block: LoopBlock, loop_pass: LoopPass, *, first: bool
    ) -> None:
        code, lanes = self.code, self.code.lanes
        reductions, count = loop_pass.row_reductions, block.count
        kinds = [combining(line.local.reduce) for line in reductions]
        initial = [
            code.splat(neutral, accumulated(line.local.reduce.dtype))
            for line, (_, neutral) in zip(reductions, kinds, strict=True)
            for _ in self.free
        ]
        ragged = not isinstance(count, int) or count % lanes != 0

        def keys(n: Value, values: list[Value]) -> list[Value]:
            totals = list(values)
            valid = code.prefix(code.min(code.op("subi", code.add(count), n), lanes)) if ragged else None
            at = code.add(block.start, n)
            for r, known in enumerate(block.known):
                given = dict(known)
                if first:
                    given |= {inner.name: Lanes(self._scores(rows, inner, at, r)) for inner in self.roles.inner}
                else:
                    given |= {
                        name: Lanes(code.load(scratch.positions[name], self._of_row(r, n)))
                        for name in self.plan.elements
                        if name in loop_pass.read
                    }
                position = rows.at(r, self.reduction_axis, given, valid, **{self.reduction_axis: at})
                for name, expr in (self.plan.elements if first else loop_pass.parts).items():
                    value = self.evaluator.vector(expr, position)
                    given[name] = Lanes(value)
                    code.store(value, scratch.positions[name], self._of_row(r, n))
                for k, (line, (op, neutral)) in enumerate(zip(reductions, kinds, strict=True)):
                    value = self.evaluator.vector(line.expr, position)
                    if valid is not None:
                        value = code.op("select", valid, value, code.like(neutral, value))
                    slot = k * len(self.free) + r
                    totals[slot] = code.op(op, totals[slot], value)
            return totals

        final = code.loop(0, count, lanes, initial, keys)
        for k, (line, (op, _)) in enumerate(zip(reductions, kinds, strict=True)):
            for r, known in enumerate(block.known):
                (total,) = across(code, partial(code.op, op), [final[k * len(self.free) + r]])
                start_value = code.like(line.local.reduce.initial.value, total)
                known[line.local.name] = Uniform(code.op(op, total, start_value))

    def _scores(self, rows: SharedRows, step: Reduce, first: Value, r: int) -> Value:
        """A contraction of a row, at as many positions of the loop as a vector has lanes."""
        code, lanes = self.code, self.code.lanes
        if len(step.over) != 1:
            raise UnsupportedError(f"{step.name} is a contraction over {len(step.over)} axes")
        (axis,) = step.over
        op, neutral = combining(step)
        size, length = self.sizes[axis], self.sizes[self.reduction_axis]
        exact = isinstance(length, int) and length % lanes == 0
        end = length - 1 if isinstance(length, int) else code.add(length, -1)
        keys = [code.add(first, k) if exact else code.min(code.add(first, k), end) for k in range(lanes)]

        def chunk(n: Value, values: list[Value], length: int) -> list[Value]:
            valid = code.prefix(length) if length < lanes else None
            totals = []
            for k, key in enumerate(keys):
                position = rows.at(r, axis, {}, valid, **{self.reduction_axis: key, axis: n})
                value = self.evaluator.vector(step.expr, position)
                if valid is not None:
                    value = code.op("select", valid, value, code.like(neutral, value))
                totals.append(code.op(op, values[k], value))
            return totals

        total = sums(code, op, code.spans(0, size, lanes, [code.splat(neutral, self.dtype)] * lanes, chunk))
        if step.initial.value != neutral:
            total = code.op(op, total, code.like(step.initial.value, total))
        return total

    def _features(
        self, rows: SharedRows, scratch: RowScratch, block: LoopBlock, loop_pass: LoopPass, numbers: list[int]
    ) -> None:
        code, feature_axis, reductions = self.code, self.feature_axis or "", loop_pass.feature_reductions
        width = self.schedule.vectors * code.lanes

        def features(first: Value, none: list[Value], length: int) -> list[Value]:
            chunks = [(code.add(first, c), length - c) for c in range(0, length, code.lanes)]
            masks = [code.prefix(left) if left < code.lanes else None for _, left in chunks]
            initial = [
                code.splat(line.local.reduce.initial.value, self.dtype)
                for line in reductions
                for _ in numbers
                for _ in chunks
            ]

            def keys(n: Value, values: list[Value]) -> list[Value]:
                totals: list[Value] = []
                if self.schedule.ahead and numbers[0] == 0:
                    self._prefetch(rows, code.add(block.start, self.block, n))
                for line in reductions:
                    for r in numbers:
                        given = dict(block.known[r])
                        for name, memory in scratch.positions.items():
                            if name in loop_pass.read:
                                given[name] = Uniform(code.scalar(memory, self._of_row(r, n)))
                        for (e, _), valid in zip(chunks, masks, strict=True):
                            index = {self.reduction_axis: code.add(block.start, n), feature_axis: e}
                            value = self.evaluator.vector(line.expr, rows.at(r, feature_axis, given, valid, **index))
                            totals.append(code.op(combining(line.local.reduce)[0], values[len(totals)], value))
                return totals

            final = code.loop(0, block.count, 1, initial, keys)
            for i, r in enumerate(numbers):
                for c, (e, _) in enumerate(chunks):
                    given = dict(block.known[r])
                    for k, line in enumerate(reductions):
                        given[line.local.name] = Lanes(final[(k * len(numbers) + i) * len(chunks) + c])
                    self._update(rows, scratch, loop_pass.feature_updates, r, e, given)
            return none

        code.spans(0, self.sizes[feature_axis], width, [], features)

    def _prefetch(self, rows: SharedRows, at: Value) -> None:
        """Asks for what scores at a position of the loop are computed of."""
        code = self.code
        for axis in {axis for inner in self.roles.inner for axis in inner.over}:
            for value in self.fusion.chain.inputs:
                if self.reduction_axis in value.axes and value.axes[-1] == axis:
                    for first in range(0, self.sizes[axis], LINE * 8 // bits(value.dtype)):
                        position = rows.at(0, axis, {}, None, **{self.reduction_axis: at, axis: code.index(first)})
                        code.prefetch(code.memory[value.name], address(code, value.axes, self.sizes, position)[0])

    def _feature(self, r: int, e: Value) -> Value:
        return self.code.add(e, r * self.features)

    def _update(
        self, rows: SharedRows, scratch: RowScratch, updates: list[Update], r: int, e: Value, given: dict[str, Result]
    ) -> None:
        code, feature_axis = self.code, self.feature_axis or ""
        for name, memory in scratch.features.items():
            given[f"{name}.old"] = Lanes(code.load(memory, self._feature(r, e)))
        for update in updates:
            position = rows.at(r, feature_axis, dict(given), **{feature_axis: e})
            given[update.name] = self.evaluator.run(update.expr, position)
            state, _, moment = update.name.rpartition(".")
            if moment == "new":
                value = self.evaluator.lanes(given[update.name])
                code.store(value, scratch.features[state], self._feature(r, e))

    # After the loop

    def _leave(self, rows: SharedRows, scratch: RowScratch, known: Known) -> None:
        """The state of this part, for the merge."""
        code, sizes = self.code, {**self.sizes, PART: self.schedule.split}
        for state in self.row_states:
            for r, known_here in enumerate(known):
                at, _ = address(code, (PART, *state.axes), sizes, rows.at(r, None, {}, **{PART: rows.part}))
                value = narrow(code, scalar(known_here[f"{state.name}.new"]), part_dtype(state))
                code.set_scalar(value, code.memory[part_name(state.name)], at)
        if self.feature_axis is None:
            return
        feature_axis = self.feature_axis

        def chunk(e: Value, none: list[Value], length: int) -> list[Value]:
            valid = None if length == code.lanes else code.prefix(length)
            for state in self.feature_states:
                for r in range(len(self.free)):
                    position = rows.at(r, feature_axis, {}, valid, **{feature_axis: e, PART: rows.part})
                    at, distance = address(code, (PART, *state.axes), sizes, position)
                    value = code.load(scratch.features[state.name], self._feature(r, e))
                    code.scatter(value, code.memory[part_name(state.name)], at, distance, valid)
            return none

        code.spans(0, self.sizes[feature_axis], code.lanes, [], chunk)

    def _finish(self, rows: SharedRows, scratch: RowScratch, known: Known) -> None:
        code, chain, feature_axis = self.code, self.fusion.chain, self.feature_axis
        steps: list[Update | Map] = [*self.roles.rolling.finish, *row_steps(self.plan)]
        for r, known_here in enumerate(known):
            for step in steps:
                if not self.plan.per_feature(step.axes):
                    known_here[step.name] = self.evaluator.run(step.expr, rows.at(r, None, known_here))
        for name in chain.outputs:
            value = chain.values[name]
            if not self.plan.per_feature(value.axes):
                for r, known_here in enumerate(known):
                    at, _ = address(code, value.axes, self.sizes, rows.at(r, None, {}))
                    code.set_scalar(narrow(code, scalar(known_here[name]), value.dtype), code.memory[name], at)
        outputs = [name for name in chain.outputs if self.plan.per_feature(chain.values[name].axes)]
        if feature_axis is not None and outputs:

            def chunk(e: Value, none: list[Value], length: int) -> list[Value]:
                for r, known_here in enumerate(known):
                    valid = None if length == code.lanes else code.prefix(length)
                    self._write(rows, scratch, outputs, r, e, dict(known_here), valid)
                return none

            code.spans(0, self.sizes[feature_axis], code.lanes, [], chunk)

    def _write(
        self,
        rows: SharedRows,
        scratch: RowScratch,
        outputs: list[str],
        r: int,
        e: Value,
        given: dict[str, Result],
        valid: Value | None,
    ) -> None:
        code, feature_axis = self.code, self.feature_axis or ""
        feature = {feature_axis: e}
        for name, memory in scratch.features.items():
            given[f"{name}.new"] = Lanes(code.load(memory, self._feature(r, e)))
        for update in self.roles.rolling.finish:
            if self.plan.per_feature(update.axes):
                position = rows.at(r, feature_axis, dict(given), valid, **feature)
                given[update.name] = self.evaluator.run(update.expr, position)
        position = rows.at(r, feature_axis, given, valid, **feature)
        for name in outputs:
            step = self.fusion.chain.values[name]
            lanes = narrow(code, self.evaluator.vector(Read(name, ""), position), step.dtype)
            at, distance = address(code, step.axes, self.sizes, position)
            code.scatter(lanes, code.memory[name], at, distance, valid)
