"""Any reduction whose reads are affine: tiled loops around a register tile of accumulators.

For ``y[kept] = f(combine over contracted of term)``, a workgroup runs this nest::

    kept axes: a tile of each                             # tiles are numbered, a workgroup each
    for block of the first contracted axis, of depth positions:
        box = what is read of an input, in scratch        # `cache_stage`, of those inputs that the schedule says
        for other kept axes; column step columns; row step rows:
            tile[rows, columns] = neutral                 # registers
            for contracted axes, the last one unrolled:
                tile[i, j] = combine(tile[i, j], term(row + i, column + j))
            sums[tile] = combine(sums[tile], tile)
    y[kept] = f(sums)                                     # of the registers themselves, if there is one block

Lanes run along a kept axis, that of the columns or a third one, or along a contracted one; then all lanes of an
accumulator are combined at last. The last tile along an axis begins where it fits: what it has in common with the one
before it is computed twice, and nothing is masked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from covan_mlir.fred.expression import Read
from covan_mlir.lowering.kernels.cpu.accesses import Access, LoopNest
from covan_mlir.lowering.kernels.cpu.accumulators import across, combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.cache_stage import Box, CacheStage
from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    Source,
    Uniform,
    VectorEvaluator,
    address,
    load,
    narrow,
    widen,
)
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.machine.elements import bits

LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True)
class LoopNestSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        lane: the axis that lanes run along.
        row, column: kept axes of the register tile; empty: there is none. Columns along the lane axis are vectors.
        rows, columns: of the register tile.
        tiles: kept axes of which a workgroup computes more than one position, with their number.
        depth: positions of the first contracted axis in a block.
        unroll: positions of the last contracted axis that are written out; along lanes, vectors.
        staged: reads that go through scratch.
        ahead: steps of the innermost loop by which vectors that are read in place are asked for before; 0: none are.
    """

    lane: str
    row: str
    column: str
    rows: int
    columns: int
    tiles: tuple[tuple[str, int], ...]
    depth: int
    unroll: int
    staged: tuple[str, ...]
    ahead: int = 0


@dataclass(frozen=True)
class Layout:
    """A nest with a schedule: how far its loops go."""

    nest: LoopNest
    schedule: LoopNestSchedule

    @cached_property
    def tile(self) -> dict[str, int]:
        """Positions of the kept axes that a workgroup computes."""
        given = dict(self.schedule.tiles)
        return {axis: given.get(axis, 1) for axis in self.nest.kept}

    @cached_property
    def spans(self) -> dict[str, int]:
        """Positions of all axes between two fills of the boxes."""
        whole = {axis: self.nest.sizes[axis] for axis in self.nest.contracted}
        return {**whole, self.nest.contracted[0]: self.schedule.depth, **self.tile}

    @property
    def blocks(self) -> int:
        """Of the first contracted axis."""
        return self.nest.sizes[self.nest.contracted[0]] // self.schedule.depth

    @property
    def kept_lane(self) -> bool:
        """Whether lanes run along an axis of the results."""
        return self.schedule.lane in self.nest.kept

    @property
    def width(self) -> int:
        """Positions of a register tile along its columns."""
        return self.schedule.columns * self.across

    @property
    def across(self) -> int:
        """Positions of a column."""
        return self.schedule.lanes if self.schedule.column == self.schedule.lane else 1

    @property
    def register(self) -> dict[str, int]:
        """Positions of a register tile, on its axes."""
        pairs = ((self.schedule.row, self.schedule.rows), (self.schedule.column, self.width))
        lane = {self.schedule.lane: self.schedule.lanes} if self.kept_lane else {}
        return {**lane, **{axis: count for axis, count in pairs if axis}}

    @cached_property
    def steps(self) -> tuple[tuple[str, int, int], ...]:
        """Loops over a workgroup's tile: axis, positions of a step, and how many steps; rows innermost."""
        register = self.register
        others = [axis for axis in self.nest.kept if axis not in register and self.tile[axis] > 1]
        inner = [axis for axis in register if axis not in (self.schedule.column, self.schedule.row)]
        order = (*others, *inner, *(axis for axis in (self.schedule.column, self.schedule.row) if axis))
        return tuple((axis, register.get(axis, 1), -(-self.tile[axis] // register.get(axis, 1))) for axis in order)

    @cached_property
    def register_tiles(self) -> int:
        """Of a workgroup's tile."""
        return prod(count for _, _, count in self.steps)

    @property
    def held(self) -> int:
        """Elements of all accumulators, where blocks are summed in scratch."""
        each = self.schedule.rows * self.schedule.columns * self.schedule.lanes
        return self.register_tiles * each if self.blocks > 1 else 0

    @cached_property
    def boxes(self) -> dict[str, Box]:
        """What is staged, by alias."""
        nest, schedule = self.nest, self.schedule
        chosen = [access for access in nest.accesses if access.alias in schedule.staged]
        return {a.alias: Box(a, nest.sizes, self.spans, schedule.lane, schedule.lanes) for a in chosen}

    @cached_property
    def elements(self) -> int:
        """All scratch."""
        return self.held + sum(box.elements for box in self.boxes.values())

    def between(self, access: Access) -> int:
        """Elements of an input from one step of the innermost loop to the next, of what is read in place as a vector
        and lies in another cache line then; 0: it is read in another way."""
        nest, schedule = self.nest, self.schedule
        strides = access.strides(nest.sizes)

        def moved(axis: str) -> int:
            return sum(by * stride for by, stride in zip(access.moves(axis), strides, strict=True))

        inner, step = (nest.contracted[-1], 1) if self.kept_lane else (schedule.lane, schedule.lanes)
        if access.alias in schedule.staged or moved(schedule.lane) != 1:
            return 0
        far = step * moved(inner)
        return far if abs(far) * bits(access.value.dtype) // 8 >= LINE else 0

    @cached_property
    def grid(self) -> tuple[tuple[str, int], ...]:
        """Workgroups along each kept axis."""
        return tuple((axis, -(-self.nest.sizes[axis] // self.tile[axis])) for axis in self.nest.kept)

    @property
    def units(self) -> int:
        """All workgroups."""
        return prod(count for _, count in self.grid)


class LoopNestWriter:
    """Writes the code of a workgroup."""

    def __init__(self, code: KernelBuilder, layout: Layout) -> None:
        self.code, self.layout, self.nest, self.schedule = code, layout, layout.nest, layout.schedule
        chain, sizes = self.nest.chain, self.nest.sizes
        reads: dict[str, Source] = {access.alias: self._source(access) for access in self.nest.accesses}
        plain = {each.name: load(code, code.memory[each.name], each.dtype, each.axes, sizes) for each in chain.inputs}
        self.terms = VectorEvaluator(code, chain, reads)
        self.evaluator = VectorEvaluator(code, chain, plain)
        fixed = frozenset(axis for axis in self.nest.kept if axis != self.schedule.lane)
        self.outputs = RowOutputs(code, chain, self.nest.step, self.evaluator, sizes, fixed)
        self.op, self.neutral = combining(self.nest.step)
        self._loaded: dict[tuple[str, Value], Result] = {}

    @cached_property
    def stages(self) -> dict[str, CacheStage]:
        """What is read from scratch, by alias."""
        return {alias: CacheStage(self.code, box) for alias, box in self.layout.boxes.items()}

    @cached_property
    def sums(self) -> Value:
        """The accumulators of all register tiles."""
        return self.code.scratch(self.layout.held, self.nest.element)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """How many there are; no size is known at run time only."""
        return self.layout.units

    def write(self) -> None:
        """The whole function."""
        code, layout, schedule = self.code, self.layout, self.schedule
        rest, first = code.workgroup, dict[str, Value]()
        for axis, count in reversed(layout.grid):
            rest, number = code.divmod(rest, count) if count > 1 else (rest, code.index(0))
            first[axis] = self._fitting(number, layout.tile[axis], self.nest.sizes[axis])
        zero = code.index(0)
        begin = {**dict.fromkeys(self.nest.contracted, zero), **first}
        if layout.blocks == 1:
            self._stage(begin)
            self._each_tile(first, lambda place, number: self._write(place, self._combined(place, zero)))
            return
        neutral = code.splat(self.neutral, self.nest.element)
        self._each_tile(first, lambda place, number: self._hold(number, [neutral] * self._accumulators))

        def block(start: Value, none: list[Value]) -> list[Value]:
            self._stage({**begin, self.nest.contracted[0]: start})

            def tile(place: Mapping[str, Value], number: Value) -> None:
                new = self._combined(place, start)
                self._hold(number, [code.op(self.op, a, b) for a, b in zip(self._held(number), new, strict=True)])

            self._each_tile(first, tile)
            return none

        code.loop(0, self.nest.sizes[self.nest.contracted[0]], schedule.depth, [], block)
        self._each_tile(first, lambda place, number: self._write(place, self._held(number)))

    @property
    def _accumulators(self) -> int:
        return self.schedule.rows * self.schedule.columns

    def _fitting(self, number: Value, step: int, total: int) -> Value:
        """Where a step of this number begins: the last one ends where all does."""
        at = self.code.mul(number, step)
        return self.code.min(at, max(total - step, 0)) if total % step else at

    def _stage(self, first: Mapping[str, Value]) -> None:
        for stage in self.stages.values():
            stage.fill(first)

    def _each_tile(self, first: Mapping[str, Value], body: Callable[[Mapping[str, Value], Value], None]) -> None:
        """Runs ``body`` on the first position and the number of each register tile."""
        code, layout = self.code, self.layout

        def nest(level: int, place: Mapping[str, Value], number: Value) -> None:
            if level == len(layout.steps):
                body(place, number)
                return
            axis, step, count = layout.steps[level]

            def one(n: Value, none: list[Value]) -> list[Value]:
                at = code.add(place[axis], self._fitting(n, step, layout.tile[axis]))
                nest(level + 1, {**place, axis: at}, code.add(code.mul(number, count), n))
                return none

            code.loop(0, count, 1, [], one)

        nest(0, first, code.index(0))

    # Accumulators

    def _slot(self, number: Value, n: int) -> Value:
        return self.code.add(self.code.mul(number, self._accumulators * self.code.lanes), n * self.code.lanes)

    def _hold(self, number: Value, values: Sequence[Value]) -> None:
        for n, value in enumerate(values):
            self.code.store(value, self.sums, self._slot(number, n))

    def _held(self, number: Value) -> list[Value]:
        return [self.code.load(self.sums, self._slot(number, n)) for n in range(self._accumulators)]

    # What is combined

    def _offsets(self) -> list[dict[str, int]]:
        """Where the accumulators of a register tile are in it, row by row; beyond its end the last one once more."""
        layout, schedule = self.layout, self.schedule
        along = layout.across
        offsets = []
        for i in range(schedule.rows):
            for u in range(schedule.columns):
                place = {}
                if schedule.row:
                    place[schedule.row] = min(i, layout.tile[schedule.row] - 1)
                if schedule.column:
                    place[schedule.column] = min(u * along, max(layout.tile[schedule.column] - along, 0))
                offsets.append(place)
        return offsets

    def _places(self, place: Mapping[str, Value]) -> list[dict[str, Value]]:
        add = self.code.add
        return [{**place, **{axis: add(place[axis], by) for axis, by in at.items()}} for at in self._offsets()]

    @property
    def _valid(self) -> Value | None:
        """A mask of the lanes that exist, where an axis of the results is shorter than a vector."""
        total = self.nest.sizes[self.schedule.lane]
        return self.code.prefix(total) if self.layout.kept_lane and total < self.code.lanes else None

    def _combined(self, place: Mapping[str, Value], start: Value) -> list[Value]:
        """The accumulators of a register tile after a block."""
        code, nest, layout, schedule = self.code, self.nest, self.layout, self.schedule
        places = self._places(place)
        lane = schedule.lane
        last = nest.contracted[-1] if layout.kept_lane else lane
        order = [axis for axis in nest.contracted if axis != last] + [last]
        step = 1 if layout.kept_lane else code.lanes

        def add(there: Mapping[str, Value], held: Sequence[Value], valid: Value | None) -> list[Value]:
            new, short = [], self._valid
            self._loaded = {}
            for at, accumulator in zip(places, held, strict=True):
                value = self.terms.vector(nest.term, Position({**at, **there}, lane, short if valid is None else valid))
                if valid is not None:
                    value = code.op("select", valid, value, code.splat(self.neutral, nest.element))
                new.append(code.op(self.op, accumulator, value))
            return new

        def loops(level: int, there: Mapping[str, Value], held: Sequence[Value]) -> list[Value]:
            axis = order[level]
            begin = start if axis == nest.contracted[0] else code.index(0)
            count = layout.spans[axis]
            if level < len(order) - 1:
                return code.loop(
                    0,
                    count,
                    1,
                    held,
                    lambda n, inner: loops(level + 1, {**there, axis: code.add(begin, n)}, inner),
                )

            def unrolled(n: Value, inner: Sequence[Value], length: int) -> Sequence[Value]:
                for by in range(0, length, step):
                    valid = code.prefix(length - by) if length - by < step else None
                    inner = add({**there, axis: code.add(begin, n, by)}, inner, valid)
                return inner

            return code.spans(0, count, step * schedule.unroll, held, unrolled)

        return loops(0, {}, [code.splat(self.neutral, nest.element)] * len(places))

    def _source(self, access: Access) -> Source:
        """How it is read: each address once for all accumulators of a position."""
        staged = access.alias in self.layout.boxes
        in_place = self._in_place(access)

        def source(position: Position) -> Result:
            at = self._address(access, position)
            if (access.alias, at) not in self._loaded:
                self._loaded[access.alias, at] = (
                    self.stages[access.alias].read(position) if staged else in_place(position)
                )
            return self._loaded[access.alias, at]

        return source

    def _address(self, access: Access, position: Position) -> Value:
        code, strides = self.code, access.strides(self.nest.sizes)
        terms = [
            code.mul(position.index[axis], by * stride)
            for affine, stride in zip(access.at, strides, strict=True)
            for axis, by in affine.terms
        ]
        fixed = sum(affine.offset * stride for affine, stride in zip(access.at, strides, strict=True))
        return code.add(code.index(0), *terms, fixed)

    def _in_place(self, access: Access) -> Source:
        code, dtype = self.code, access.value.dtype
        memory, strides = code.memory[access.value.name], access.strides(self.nest.sizes)
        distance = sum(by * stride for by, stride in zip(access.moves(self.schedule.lane), strides, strict=True))
        ahead = self.schedule.ahead * self.layout.between(access)

        def read(position: Position) -> Result:
            at = self._address(access, position)
            if distance == 0:
                return Uniform(widen(code, code.scalar(memory, at), dtype))
            if distance == 1:
                if ahead:
                    code.prefetch(memory, code.add(at, ahead))
                return Lanes(widen(code, code.load(memory, at, position.valid), dtype))
            return Lanes(widen(code, code.gather(memory, at, code.offsets(distance), position.valid), dtype))

        return read

    # Results

    def _write(self, place: Mapping[str, Value], values: Sequence[Value]) -> None:
        """What the chain makes of a register tile, into its results."""
        code, step, lane = self.code, self.nest.step, self.schedule.lane
        values = list(values)
        if not self.layout.kept_lane:
            values = across(code, lambda a, b: code.op(self.op, a, b), values)
        if step.initial.value != self.neutral:
            values = [code.op(self.op, value, code.like(step.initial.value, value)) for value in values]
        if self.layout.kept_lane:
            valid = self._valid
            for index, value in zip(self._places(place), values, strict=True):
                self.outputs.write(value, index, lane, valid, self.outputs.known(index))
            return
        for index, value in zip(self._places(place), values, strict=True):
            self._write_one(index, value)

    def _write_one(self, index: Mapping[str, Value], value: Value) -> None:
        code, chain = self.code, self.nest.chain
        position = Position(index, None, None, {self.nest.step.name: Uniform(value)})
        for name in chain.outputs:
            result = chain.values[name]
            stored = self.evaluator.scalar(Scope(chain, {}).inlined(Read(name, result.dtype)), position)
            at, _ = address(code, result.axes, self.nest.sizes, position)
            code.set_scalar(narrow(code, stored, result.dtype), code.memory[name], at)
