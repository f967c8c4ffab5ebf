"""Chains whose reductions run over the same axes: a row is swept several times while it is in cache.

Vector lanes run along a reduced axis (partial results per lane, combined at the end of a sweep) or along a kept one (a
vector of rows at a time, nothing to combine). Everything else is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from iree.compiler.dialects import arith

from covan_mlir.fred.chain import Chain, Input, Map, Reduce, Step
from covan_mlir.fred.expression import Apply, Expr, Extent, Index, Read, reads, walk
from covan_mlir.lowering.kernels.cpu.accumulators import Accumulators, combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value, computed
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    Source,
    Uniform,
    VectorEvaluator,
    address,
    inputs,
    load,
    narrow,
)
from covan_mlir.lowering.kernels.cpu.schedule import Schedule
from covan_mlir.lowering.kernels.reductions.sweeps import Sweeps, cost

SCRATCH = 1 << 12
"""Elements of the kept values in the stack frame: with more, recomputing it costs less than the cache misses."""

Kept = tuple[Value, tuple[str, ...], str]
"""Where a value is kept: memory, axes, element type."""


def shared(expr: Expr) -> bool:
    """Whether an expression is worth computing for several rows in one vector; divisions stay exact as scalars."""
    ops = [node.op for node in walk(expr) if isinstance(node, Apply)]
    return cost(expr) >= 20 and "arith.divf" not in ops and not any(isinstance(n, Index | Extent) for n in walk(expr))


@dataclass
class Row:
    """A row (or a vector of them) being computed.

    Attributes:
        following: the position of the row that is computed next, where its elements are asked for beforehand.
    """

    index: Mapping[str, Value]
    valid: Value | None
    evaluator: VectorEvaluator
    known: dict[str, Result] = field(default_factory=dict)
    following: Mapping[str, Value] = field(default_factory=dict)

    def learn(self, name: str, value: Result) -> None:
        """Makes a value known to the expressions of this row."""
        self.known[name] = value
        self.evaluator.sources[name] = lambda _place: value


class RowsWriter:
    """Writes the code of a workgroup."""

    def __init__(self, code: KernelBuilder, chain: Chain, sizes: Mapping[str, Size], schedule: Schedule) -> None:
        self.code = code
        self.chain = chain
        self.sizes = sizes
        self.schedule = schedule
        self.inner = schedule.shape == "rows"
        self.sweeps = Sweeps(chain, picks=self.inner)
        self.outer = tuple(a.name for a in chain.axes if a.name in self.sweeps.over and a.name != schedule.lane)
        self.kept = tuple(a.name for a in chain.axes if a.name not in self.sweeps.over and a.name != schedule.lane)
        self.spare: dict[str, list[Kept]] = {}

    def _places_for_kept(self) -> dict[str, list[Kept]]:
        # A kept value goes where an output of later sweeps will be written, if there is one of its shape, or else to
        # the stack frame: there each row that is computed at the same time has its own.
        free, room = list(self.sweeps.outputs), SCRATCH
        found: dict[str, list[Kept]] = {}
        for name in self.schedule.keep:
            step = self.chain.values[name]
            assert isinstance(step, Map)
            dtype = computed(step.dtype)
            last = max(s for s in range(self.sweeps.count) if name in self.sweeps.needed(s))
            for output in free:
                other = self.chain.values[output]
                if other.axes == step.axes and other.dtype == dtype and self.sweeps.level[output] >= last:
                    free.remove(output)
                    found[name] = [(self.code.memory[output], other.axes, dtype)] * self.schedule.unroll
                    break
            else:
                axes = tuple(axis for axis in step.axes if axis in self.sweeps.over)
                size, rows = self.code.product(self.sizes[axis] for axis in axes), range(self.schedule.unroll)
                if self.inner and isinstance(size, int) and size * len(rows) <= room and dtype != "i1":
                    room -= size * len(rows)
                    found[name] = [(self.code.scratch(size, dtype), axes, dtype) for _ in rows]
        return found

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, of sizes that may be others than the writer's own."""
        code, schedule = self.code, self.schedule
        units = code.product(sizes[axis] for axis in self.kept)
        if not self.inner:
            units = code.mul(units, code.ceildiv(sizes[schedule.lane], schedule.lanes * schedule.unroll))
        return code.ceildiv(units, schedule.parallel[0][1])

    def write(self) -> None:
        """The whole function."""
        code, schedule = self.code, self.schedule
        self.spare = self._places_for_kept()
        rows = code.product(self.sizes[a] for a in self.kept)
        (_, per_group) = schedule.parallel[0]
        if self.inner:
            start = code.mul(code.workgroup, per_group)
            stop = code.min(code.add(start, per_group), rows)
            together = schedule.unroll
            if isinstance(rows, int) and rows % together == 0 and per_group % together == 0:
                code.loop(start, stop, together, [], lambda n, _: self._rows(n, together))
                return
            whole = code.add(start, code.mul(code.divmod(arith.subi(stop, start), together)[0], together))
            code.loop(start, whole, together, [], lambda n, _: self._rows(n, together))
            code.loop(whole, stop, 1, [], lambda n, _: self._rows(n, 1))
            return
        width = schedule.lanes * schedule.unroll
        blocks = code.ceildiv(self.sizes[schedule.lane], width)
        start = code.mul(code.workgroup, per_group)
        stop = code.min(code.add(start, per_group), code.mul(rows, blocks))

        def block(n: Value, _: list[Value]) -> list[Value]:
            row, column = code.divmod(n, blocks)
            return self._columns(row, code.mul(column, width))

        code.loop(start, stop, 1, [], block)

    def _position(self, row: Value) -> dict[str, Value]:
        found = {}
        for axis in reversed(self.kept):
            row, found[axis] = self.code.divmod(row, self.sizes[axis])
        return found

    def _row(self, index: Mapping[str, Value], valid: Value | None) -> Row:
        sources: dict[str, Source] = inputs(self.code, self.chain, self.sizes)
        return Row(index, valid, VectorEvaluator(self.code, self.chain, sources))

    def _rows(self, first: Value, count: int) -> list[Value]:
        rows = [self._row(self._position(self.code.add(first, r)), None) for r in range(count)]
        if self.schedule.ahead and self.kept:
            for r, row in enumerate(rows):
                row.following = self._position(self.code.add(first, count + r))
        self._compute(rows)
        return []

    def _columns(self, row: Value, column: Value) -> list[Value]:
        code, lane, lanes = self.code, self.schedule.lane, self.schedule.lanes
        size = self.sizes[lane]
        position = self._position(row)
        rows = []
        for u in range(self.schedule.unroll):
            at = code.add(column, u * lanes)
            valid = None
            if not isinstance(size, int) or size % (lanes * self.schedule.unroll):
                left = arith.subi(code.size(size), at)
                valid = code.prefix(code.min(code.max(left, 0), lanes))
            rows.append(self._row({**position, lane: at}, valid))
        self._compute(rows)
        return []

    def _compute(self, rows: list[Row]) -> None:
        for sweep in range(self.sweeps.count):
            self._sweep(sweep, rows)
            self._together(rows)
            for row in rows:
                self._maps(row)
        for row in rows:
            for name in dict.fromkeys(self.chain.outputs):
                if not self.sweeps.element(name):
                    self._store(name, row, row.known[name])

    def _maps(self, row: Row) -> None:
        # What is the same for the whole row is computed once, as soon as it can be.
        place = Position(row.index, self.schedule.lane, row.valid)
        for step in self.chain.steps:
            if step.name in row.known or self.sweeps.element(step.name) or not self._ready(step, row):
                continue
            if isinstance(step, Map):
                row.learn(step.name, row.evaluator.run(step.expr, place))
            elif step.name in self.sweeps.picked:
                row.learn(step.name, self._pick(step, row, place))

    def _together(self, rows: list[Row]) -> None:
        # A logarithm of a row's result takes as long as one of a vector: several rows share one.
        if not self.inner or not 1 < len(rows) <= self.code.lanes:
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
                row.learn(step.name, Uniform(self.code.lane(vector, n)))

    def _ready(self, step: Step, row: Row) -> bool:
        names = [step.name]
        while names:
            value = self.chain.values[names.pop()]
            if isinstance(value, Input) or value.name in row.known:
                continue
            if value.name != step.name and (isinstance(value, Reduce) or not self.sweeps.element(value.name)):
                return False
            names += reads(value.expr)
        return True

    def _pick(self, step: Reduce, row: Row, place: Position) -> Result:
        code, pick = self.code, self.sweeps.picked[step.name]
        at = row.evaluator.scalar(pick.at, place)
        size = code.cast("index_cast", code.size(self.sizes[step.over[0]]), "i64")
        inside = arith.cmpi(arith.CmpIPredicate.ult, at, size)
        index = code.cast("index_cast", code.op("select", inside, at, code.constant(0, "i64")), "index")
        value = row.evaluator.scalar(pick.value, Position({**row.index, step.over[0]: index}, None))
        value = code.op("select", inside, value, code.like(0, value))
        return Uniform(code.op(combining(step)[0], value, code.like(step.initial.value, value)))

    def _sweep(self, sweep: int, rows: list[Row]) -> None:
        code = self.code
        copies = self.schedule.vectors if self.inner else 1
        totals = [Accumulators(code, step, copies) for step in self.sweeps.reductions(sweep)]
        initial = [value for _ in rows for total in totals for value in total.initial()]
        fresh = [name for name in self.spare if self._first(name) == sweep]

        def visit(index: dict[str, Value], values: list[Value], length: Size) -> list[Value]:
            vectors = -(-length // code.lanes) if self.inner and isinstance(length, int) else 1
            seen: list[list[Value]] = [[] for _ in rows for _ in totals]
            for u in range(vectors):
                for r, row in enumerate(rows):
                    place = self._place(row, index, u, length)
                    for name in fresh:
                        self._keep(name, r, row, place)
                    if sweep == 0 and row.following:
                        self._prefetch(row.following, place)
                    for k, total in enumerate(totals):
                        value = row.evaluator.vector(total.step.expr, place)
                        if self.inner and place.valid is not None:
                            value = code.op("select", place.valid, value, code.like(total.neutral, value))
                        seen[r * len(totals) + k].append(value)
                    for name in self.sweeps.outputs:
                        if self.sweeps.level[name] == sweep:
                            self._store(name, row, row.evaluator.run(Read(name, ""), place), place)
            rest = iter(values)
            result: list[Value] = []
            for n, vector in enumerate(seen):
                total = totals[n % len(totals)]
                result += total.add([next(rest) for _ in total.initial()], vector)
            return result

        final = iter(self._nest(list(self.outer), {}, initial, visit))
        parts = [[[next(final) for _ in total.initial()] for total in totals] for _ in rows]
        for k, total in enumerate(totals):
            for row, value in zip(rows, total.finish([part[k] for part in parts], self.inner), strict=True):
                row.learn(total.step.name, Uniform(value) if self.inner else Lanes(value))
        for name in fresh:
            for r, row in enumerate(rows):
                memory, axes, dtype = self.spare[name][r]
                row.evaluator.sources[name] = load(code, memory, dtype, axes, self.sizes)

    def _first(self, name: str) -> int:
        return min(s for s in range(self.sweeps.count) if name in self.sweeps.needed(s))

    def _place(self, row: Row, index: Mapping[str, Value], u: int, length: Size) -> Position:
        code, lane = self.code, self.schedule.lane
        if not self.inner:
            return Position({**row.index, **index}, lane, row.valid)
        if isinstance(length, int):
            left = length - u * code.lanes
            valid = None if left >= code.lanes else code.prefix(left)
        else:
            valid = code.prefix(code.min(length, code.lanes))
        return Position({**row.index, **index, lane: code.add(index[lane], u * code.lanes)}, lane, valid)

    def _nest(
        self,
        axes: list[str],
        index: dict[str, Value],
        values: list[Value],
        visit: Callable[[dict[str, Value], list[Value], Size], list[Value]],
    ) -> list[Value]:
        code = self.code
        if axes:
            return code.loop(
                0, self.sizes[axes[0]], 1, values, lambda n, v: self._nest(axes[1:], {**index, axes[0]: n}, v, visit)
            )
        if not self.inner:
            return visit(index, values, 0)
        lane = self.schedule.lane
        step, size = code.lanes * self.schedule.vectors, self.sizes[lane]

        def span(n: Value, carried: list[Value], length: Size) -> list[Value]:
            return visit({**index, lane: n}, carried, length)

        return (
            code.spans(0, size, step, values, span)
            if isinstance(size, int)
            else code.open_spans(size, step, values, span)
        )

    def _keep(self, name: str, r: int, row: Row, place: Position) -> None:
        memory, axes, _ = self.spare[name][r]
        value = row.evaluator.lanes(row.evaluator.run(Read(name, ""), place))
        at, _ = address(self.code, axes, self.sizes, place)
        self.code.store(value, memory, at, place.valid)

    def _prefetch(self, row: Mapping[str, Value], place: Position) -> None:
        for value in self.chain.inputs:
            if place.lane in value.axes and not row.keys().isdisjoint(value.axes):
                at, _ = address(self.code, value.axes, self.sizes, Position({**place.index, **row}, place.lane))
                self.code.prefetch(self.code.memory[value.name], at)

    def _store(self, name: str, row: Row, value: Result, place: Position | None = None) -> None:
        code = self.code
        step = self.chain.values[name]
        memory = code.memory[name]
        where = place or Position(row.index, self.schedule.lane, row.valid)
        at, distance = address(code, step.axes, self.sizes, where)
        if isinstance(distance, int) and distance == 0:
            assert isinstance(value, Uniform)
            code.set_scalar(narrow(code, value.value, step.dtype), memory, at)
        elif isinstance(distance, int) and distance == 1:
            lanes = narrow(code, row.evaluator.lanes(value), step.dtype)
            code.store(lanes, memory, at, where.valid, self.schedule.nontemporal)
        else:
            lanes = narrow(code, row.evaluator.lanes(value), step.dtype)
            code.scatter(lanes, memory, at, distance, where.valid)
