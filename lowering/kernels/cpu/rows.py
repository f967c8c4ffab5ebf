"""Chains whose reductions run over the same axes: a row is swept several times while it is in cache.

With vector lanes along the reduced axis j, a workgroup runs this nest::

    for i in rows of the workgroup step unroll:
        for sweep in sweeps:                              # a reduction is swept after what it reads
            accumulators[unroll, vectors, lanes] = initial
            for c:                                        # other reduced axes
                for j step vectors * lanes:
                    materialised[i, j:] = exp(x[i, c, j:] - max[i])        # costly, and read by later sweeps
                    accumulators += materialised[i, j:]                    # the sweep's reductions
                    y[i, c, j:] = materialised[i, j:] / sum[i]             # outputs that are known by now
            sum[i] = across(accumulators[i])              # combined over vectors and lanes
            scale[i] = 1 / sum[i]                         # what is the same for the whole row
        result[i] = sum[i]

With vector lanes along a kept axis i, there is nothing to combine in the end; results that have the swept axis last are
transposed in registers, a block of as many positions as there are lanes at a time::

    for i in rows of the workgroup step unroll * lanes:
        for sweep in sweeps:
            accumulators[unroll, lanes] = initial
            for c, j:
                accumulators += exp(x[c, j, i:] - max[i:])
                y[c, j, i:] = ...
            sum[i:] = accumulators
        result[i:] = sum[i:]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from iree.compiler.dialects import arith

from covan_mlir.fred.chain import Chain, Input, Map, Reduce, Step
from covan_mlir.fred.expression import Apply, Expr, Extent, Index, Read, reads, walk
from covan_mlir.lowering.kernels.cpu.accumulators import Accumulators, combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    Uniform,
    VectorEvaluator,
    address,
    inputs,
    load,
    narrow,
    scalar,
)
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule
from covan_mlir.lowering.kernels.cpu.tiles import ScratchTile
from covan_mlir.lowering.kernels.reductions.sweeps import Sweeps, cost

SCRATCH = 1 << 12
"""Elements of the materialised values in the stack frame: with more, recomputing costs less than the cache misses."""


@dataclass(frozen=True)
class Materialised:
    """Where a value is written when it is first computed, and read from by later sweeps."""

    memory: Value
    axes: tuple[str, ...]
    dtype: str


def shared(expr: Expr) -> bool:
    """Whether an expression is worth computing for several rows in one vector; divisions stay exact as scalars."""
    ops = [node.op for node in walk(expr) if isinstance(node, Apply)]
    return cost(expr) >= 20 and "arith.divf" not in ops and not any(isinstance(n, Index | Extent) for n in walk(expr))


@dataclass(frozen=True)
class RowState:
    """A row (or a vector of them) being computed.

    Attributes:
        known: what has been computed of the row; grows.
        following: the position of the row that is computed next, where its elements are asked for beforehand.
    """

    index: Mapping[str, Value]
    valid: Value | None
    evaluator: VectorEvaluator
    known: dict[str, Result] = field(default_factory=dict)
    following: Mapping[str, Value] = field(default_factory=dict)


class RowsWriter:
    """Writes the code of a workgroup."""

    def __init__(self, code: KernelBuilder, chain: Chain, sizes: Mapping[str, Size], schedule: VectorSchedule) -> None:
        self.code, self.chain, self.sizes, self.schedule, self.lane = code, chain, sizes, schedule, schedule.lane
        self.across_lanes = schedule.shape == "rows"
        self.sweeps = Sweeps(chain, picks=self.across_lanes)
        others = [axis.name for axis in chain.axes if axis.name != self.lane]
        self.reduced = tuple(axis for axis in others if axis in self.sweeps.over)
        self.kept = tuple(axis for axis in others if axis not in self.sweeps.over)
        self.evaluator = VectorEvaluator(code, chain, inputs(code, chain, sizes))

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, of sizes that may be others than the writer's own."""
        code, schedule = self.code, self.schedule
        units = code.product(sizes[axis] for axis in self.kept)
        if not self.across_lanes:
            units = code.mul(units, code.ceildiv(sizes[self.lane], schedule.lanes * schedule.unroll))
        return code.ceildiv(units, schedule.parallel[0][1])

    def write(self) -> None:
        """The whole function."""
        code, schedule = self.code, self.schedule
        materialised = self._materialised()
        rows = code.product(self.sizes[a] for a in self.kept)
        (_, per_group) = schedule.parallel[0]
        if self.across_lanes:
            start = code.mul(code.workgroup, per_group)
            stop = code.min(code.add(start, per_group), rows)
            together = schedule.unroll

            def several(n: Value, _: list[Value]) -> list[Value]:
                return self._rows(n, together, materialised)

            if isinstance(rows, int) and rows % together == 0 and per_group % together == 0:
                code.loop(start, stop, together, [], several)
                return
            whole = code.add(start, code.mul(code.divmod(arith.subi(stop, start), together)[0], together))
            code.loop(start, whole, together, [], several)
            code.loop(whole, stop, 1, [], lambda n, _: self._rows(n, 1, materialised))
            return
        width = schedule.lanes * schedule.unroll
        blocks = code.ceildiv(self.sizes[self.lane], width)
        start = code.mul(code.workgroup, per_group)
        stop = code.min(code.add(start, per_group), code.mul(rows, blocks))

        def block(n: Value, _: list[Value]) -> list[Value]:
            row, column = code.divmod(n, blocks)
            return self._columns(row, code.mul(column, width), materialised)

        code.loop(start, stop, 1, [], block)

    def _materialised(self) -> dict[str, list[Materialised]]:
        # A value goes where an output of later sweeps will be written, if there is one of its shape, or else to the
        # stack frame: there each row that is computed at the same time has its own. Where lanes would lie apart in
        # memory, as in a transposed output, it is computed again: that takes less than a scatter and a gather.
        unroll = self.schedule.unroll
        free, room = list(self.sweeps.outputs), SCRATCH
        materialised: dict[str, list[Materialised]] = {}
        for name in self.schedule.keep:
            step = self.chain.values[name]
            assert isinstance(step, Map)
            if step.axes[-1] != self.lane:
                continue
            dtype = computed(step.dtype)
            last = max(s for s in range(self.sweeps.count) if name in self.sweeps.needed(s))
            for output in free:
                other = self.chain.values[output]
                if other.axes == step.axes and other.dtype == dtype and self.sweeps.level[output] >= last:
                    free.remove(output)
                    materialised[name] = [Materialised(self.code.memory[output], other.axes, dtype)] * unroll
                    break
            else:
                axes = tuple(axis for axis in step.axes if axis in self.sweeps.over)
                size = self.code.product(self.sizes[axis] for axis in axes)
                if self.across_lanes and isinstance(size, int) and size * unroll <= room and dtype != "i1":
                    room -= size * unroll
                    scratch = [self.code.scratch(size, dtype) for _ in range(unroll)]
                    materialised[name] = [Materialised(memory, axes, dtype) for memory in scratch]
        return materialised

    # Rows

    def _position(self, row: Value) -> dict[str, Value]:
        index = {}
        for axis in reversed(self.kept):
            row, index[axis] = self.code.divmod(row, self.sizes[axis])
        return index

    def _rows(self, first: Value, count: int, materialised: Mapping[str, list[Materialised]]) -> list[Value]:
        """Rows one after the other, whose elements lie along the lanes."""
        rows = [RowState(self._position(self.code.add(first, r)), None, self.evaluator) for r in range(count)]
        if self.schedule.ahead and self.kept:
            following = [self._position(self.code.add(first, count + r)) for r in range(count)]
            rows = [replace(row, following=index) for row, index in zip(rows, following, strict=True)]
        self._compute(rows, materialised)
        return []

    def _columns(self, row: Value, column: Value, materialised: Mapping[str, list[Materialised]]) -> list[Value]:
        """Vectors of rows that lie next to each other along the lanes."""
        code, lanes = self.code, self.schedule.lanes
        size = self.sizes[self.lane]
        position = self._position(row)
        rows = []
        for u in range(self.schedule.unroll):
            at = code.add(column, u * lanes)
            valid = None
            if not isinstance(size, int) or size % (lanes * self.schedule.unroll):
                left = arith.subi(code.size(size), at)
                valid = code.prefix(code.min(code.max(left, 0), lanes))
            rows.append(RowState({**position, self.lane: at}, valid, self.evaluator))
        self._compute(rows, materialised)
        return []

    def _compute(self, rows: list[RowState], materialised: Mapping[str, list[Materialised]]) -> None:
        for sweep in range(self.sweeps.count):
            rows = self._sweep(sweep, rows, materialised)
            self._together(rows)
            for row in rows:
                self._maps(row)
        for row in rows:
            for name in dict.fromkeys(self.chain.outputs):
                if not self.sweeps.element(name):
                    self._store(name, row, row.known[name], Position(row.index, self.lane, row.valid))

    # What is the same for a whole row

    def _maps(self, row: RowState) -> None:
        # Computed once, as soon as it can be.
        position = Position(row.index, self.lane, row.valid, row.known)
        for step in self.chain.steps:
            if step.name in row.known or self.sweeps.element(step.name) or not self._ready(step, row):
                continue
            if isinstance(step, Map):
                row.known[step.name] = row.evaluator.run(step.expr, position)
            elif step.name in self.sweeps.picked:
                row.known[step.name] = self._pick(step, row, position)

    def _together(self, rows: list[RowState]) -> None:
        # A logarithm of a row's result takes as long as one of a vector: several rows share one.
        if not self.across_lanes or not 1 < len(rows) <= self.code.lanes:
            return
        for step in self.chain.steps:
            if not isinstance(step, Map) or self.sweeps.element(step.name) or step.name in rows[0].known:
                continue
            names = reads(step.expr)
            if not shared(step.expr) or not names <= rows[0].known.keys():
                continue
            given: dict[str, Result] = {}
            for name in names:
                values = [row.known[name] for row in rows]
                given[name] = Lanes(self.code.pack([value.value for value in values if isinstance(value, Uniform)]))
            vector = rows[0].evaluator.vector(step.expr, Position({}, None, given=given))
            for n, row in enumerate(rows):
                row.known[step.name] = Uniform(self.code.lane(vector, n))

    def _ready(self, step: Step, row: RowState) -> bool:
        names = [step.name]
        while names:
            value = self.chain.values[names.pop()]
            if isinstance(value, Input) or value.name in row.known:
                continue
            if value.name != step.name and (isinstance(value, Reduce) or not self.sweeps.element(value.name)):
                return False
            names += reads(value.expr)
        return True

    def _pick(self, step: Reduce, row: RowState, position: Position) -> Result:
        code, pick = self.code, self.sweeps.picked[step.name]
        at = row.evaluator.scalar(pick.at, position)
        size = code.cast("index_cast", code.size(self.sizes[step.over[0]]), "i64")
        inside = arith.cmpi(arith.CmpIPredicate.ult, at, size)
        index = code.cast("index_cast", code.op("select", inside, at, code.constant(0, "i64")), "index")
        picked = Position({**row.index, step.over[0]: index}, None, given=row.known)
        value = row.evaluator.scalar(pick.value, picked)
        value = code.op("select", inside, value, code.like(0, value))
        return Uniform(code.op(combining(step)[0], value, code.like(step.initial.value, value)))

    # Sweeps

    def _sweep(
        self, sweep: int, rows: list[RowState], materialised: Mapping[str, list[Materialised]]
    ) -> list[RowState]:
        """One sweep over some rows -> the rows, which read what it has materialised."""
        code = self.code
        copies = self.schedule.vectors if self.across_lanes else 1
        reductions = [Accumulators(code, step, copies) for step in self.sweeps.reductions(sweep)]
        initial = [value for _ in rows for reduction in reductions for value in reduction.initial()]
        fresh = [name for name in materialised if self._first(name) == sweep]

        def visit(index: dict[str, Value], values: list[Value], length: Size) -> list[Value]:
            vectors = -(-length // code.lanes) if self.across_lanes and isinstance(length, int) else 1
            terms: list[list[Value]] = [[] for _ in rows for _ in reductions]
            for u in range(vectors):
                for r, row in enumerate(rows):
                    position = self._vector(row, index, u, length)
                    for name in fresh:
                        self._materialise(name, materialised[name][r], row, position)
                    if sweep == 0 and row.following:
                        self._prefetch(row.following, position)
                    for k, reduction in enumerate(reductions):
                        value = row.evaluator.vector(reduction.step.expr, position)
                        if self.across_lanes and position.valid is not None:
                            value = code.op("select", position.valid, value, code.like(reduction.neutral, value))
                        terms[r * len(reductions) + k].append(value)
                    outputs = [name for name in self.sweeps.outputs if self.sweeps.level[name] == sweep]
                    # All of them before one is written: what others are computed from may be kept in its place.
                    results = [row.evaluator.run(Read(name, ""), position) for name in outputs]
                    for name, result in zip(outputs, results, strict=True):
                        if name in self._turned:
                            self._turn(name, r, row, result, position)
                        else:
                            self._store(name, row, result, position)
            rest = iter(values)
            accumulators: list[Value] = []
            for n, vectors_here in enumerate(terms):
                reduction = reductions[n % len(reductions)]
                accumulators += reduction.add([next(rest) for _ in reduction.initial()], vectors_here)
            return accumulators

        final = iter(self._nest(self.reduced, {}, initial, visit))
        ends = [[[next(final) for _ in reduction.initial()] for reduction in reductions] for _ in rows]
        for k, reduction in enumerate(reductions):
            results = reduction.finish([end[k] for end in ends], self.across_lanes)
            for row, value in zip(rows, results, strict=True):
                row.known[reduction.step.name] = Uniform(value) if self.across_lanes else Lanes(value)
        return [self._reading(row, {name: materialised[name][r] for name in fresh}) for r, row in enumerate(rows)]

    def _reading(self, row: RowState, materialised: Mapping[str, Materialised]) -> RowState:
        sources = {
            name: load(self.code, kept.memory, kept.dtype, kept.axes, self.sizes) for name, kept in materialised.items()
        }
        return replace(row, evaluator=row.evaluator.reading(sources))

    def _first(self, name: str) -> int:
        """The first sweep that needs a value."""
        return min(s for s in range(self.sweeps.count) if name in self.sweeps.needed(s))

    def _vector(self, row: RowState, index: Mapping[str, Value], u: int, length: Size) -> Position:
        """The vector ``u`` of a step of a sweep."""
        code = self.code
        if not self.across_lanes:
            return Position({**row.index, **index}, self.lane, row.valid, row.known)
        if isinstance(length, int):
            left = length - u * code.lanes
            valid = None if left >= code.lanes else code.prefix(left)
        else:
            valid = code.prefix(code.min(length, code.lanes))
        at = {**row.index, **index, self.lane: code.add(index[self.lane], u * code.lanes)}
        return Position(at, self.lane, valid, row.known)

    def _nest(
        self,
        axes: tuple[str, ...],
        index: dict[str, Value],
        values: list[Value],
        visit: Callable[[dict[str, Value], list[Value], Size], list[Value]],
    ) -> list[Value]:
        """Loops over reduced axes, the lanes' innermost, around steps that are ``visit``ed."""
        code = self.code
        if axes:
            first, rest = axes[0], axes[1:]
            return code.loop(
                0,
                self.sizes[first],
                1,
                values,
                lambda n, carried: self._nest(rest, {**index, first: n}, carried, visit),
            )
        if not self.across_lanes:
            return visit(index, values, 0)
        step, size = code.lanes * self.schedule.vectors, self.sizes[self.lane]

        def span(n: Value, carried: list[Value], length: Size) -> list[Value]:
            return visit({**index, self.lane: n}, carried, length)

        return (
            code.spans(0, size, step, values, span)
            if isinstance(size, int)
            else code.open_spans(size, step, values, span)
        )

    # Memory

    def _materialise(self, name: str, where: Materialised, row: RowState, position: Position) -> None:
        value = row.evaluator.lanes(row.evaluator.run(Read(name, ""), position))
        at, distance = address(self.code, where.axes, self.sizes, position)
        assert distance == 1
        self.code.store(value, where.memory, at, position.valid)

    def _prefetch(self, following: Mapping[str, Value], position: Position) -> None:
        for value in self.chain.inputs:
            if position.lane in value.axes and not following.keys().isdisjoint(value.axes):
                there = Position({**position.index, **following}, position.lane)
                at, _ = address(self.code, value.axes, self.sizes, there)
                self.code.prefetch(self.code.memory[value.name], at)

    @cached_property
    def _turned(self) -> dict[str, list[ScratchTile]]:
        """Outputs whose lanes lie apart in memory, and what is swept side by side: a tile for each row."""
        code, turned = self.code, dict[str, list[ScratchTile]]()
        if self.across_lanes or not self.reduced:
            return turned
        size = self.sizes[self.reduced[-1]]
        for name in self.sweeps.outputs:
            step = self.chain.values[name]
            wide = isinstance(size, int) and size >= code.lanes and computed(step.dtype) == step.dtype
            if wide and step.axes[-1] == self.reduced[-1] and self.lane in step.axes:
                turned[name] = [ScratchTile.make(code, code.lanes, 1, step.dtype) for _ in range(self.schedule.unroll)]
        return turned

    def _turn(self, name: str, r: int, row: RowState, value: Result, position: Position) -> None:
        """Keeps a vector of results; writes a block of them once it is full, or the last one."""
        code, step, along = self.code, self.chain.values[name], self.reduced[-1]
        tile, size, wide = self._turned[name][r], self.sizes[along], self.sizes[self.lane]
        here, column = position.index[along], position.index[self.lane]
        number = code.divmod(here, code.lanes)[1]
        tile.store(row.evaluator.lanes(value), number, 0)
        count = code.add(number, 1)

        def write(results: Value, lane: Value, _: Value, __: Value | None) -> None:
            to = code.add(column, lane)
            at, _distance = address(
                code,
                step.axes,
                self.sizes,
                Position({**position.index, self.lane: to, along: code.op("subi", here, number)}, along),
            )
            valid = None
            if position.valid is not None:
                valid = code.prefix(code.op("select", code.below(to, wide), count, code.index(0)))
            elif not isinstance(size, int) or size % code.lanes:
                valid = code.prefix(count)
            code.store(results, code.memory[name], at, valid)

        more = code.op("andi", code.below(count, code.lanes), code.below(code.add(here, 1), size))
        code.branch(more, lambda: None, lambda: tile.unpack(code.lanes, write))

    def _store(self, name: str, row: RowState, value: Result, position: Position) -> None:
        code, step = self.code, self.chain.values[name]
        memory = code.memory[name]
        at, distance = address(code, step.axes, self.sizes, position)
        if isinstance(distance, int) and distance == 0:
            code.set_scalar(narrow(code, scalar(value), step.dtype), memory, at)
            return
        lanes = narrow(code, row.evaluator.lanes(value), step.dtype)
        if isinstance(distance, int) and distance == 1:
            code.store(lanes, memory, at, position.valid, self.schedule.nontemporal)
        else:
            code.scatter(lanes, memory, at, distance, position.valid)
