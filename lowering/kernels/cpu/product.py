"""Sums of products: vector lanes run along an axis of one factor, the other one is read as scalars, in place.

For ``y[i, j] = f(sum over k of a[i, k] * b[j, k])``, a workgroup runs this nest::

    j = vectors * lanes columns; i = a group of rows
    sums[i, j] = 0                                        # only where there is more than one block, or f is long
    for block of k, of depth positions:
        panel[k, j] = b[j, k]                             # staged in scratch, transposed in registers where need be
        scalars[i, k] = a[i, k]                           # only where it is not float32 or float64 in memory
        for i in group step rows:
            tile[rows, vectors] = 0                       # registers
            for k in block:
                tile[rows, vectors] += a[i, k] * panel[k, j]
            sums[i, j] += tile
    y[i, j] = f(sums[i, j])                               # of a single block: f(tile), at once

The last columns and rows, if there are fewer, have a narrower tile of their own; columns that would fill a small part
of a vector may be summed in another way (`column_tail`). Panels of a weight that is
packed ahead of time (`packed_panel`) are read in place, and so is a weight that is packed by the rows of a tile
(`packed_weight`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod

from covan_mlir.lowering.kernels.cpu import column_tail, plane_scalars
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.dense import DIRECT
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator, address, inputs, widen
from covan_mlir.lowering.kernels.cpu.packed_panel import PackedPanel
from covan_mlir.lowering.kernels.cpu.panel import Panel
from covan_mlir.lowering.kernels.cpu.plane_scalars import PlaneScalars
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.register_tile import Factors, Place, Tile, outer_products
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.cpu.row_tiles import RowTiles
from covan_mlir.lowering.kernels.cpu.scalar_rows import (
    ScalarRows,
    ask_next,
    asked_weight,
    in_place,
    row_length,
    side_by_side,
)
from covan_mlir.lowering.kernels.cpu.turns import rows_in_turns
from covan_mlir.lowering.kernels.cpu.word_factors import WordFactors
from covan_mlir.lowering.kernels.cpu.words import INTEGER_SUMS

ROWS_AHEAD = 4
"""Of a row whose results are made, the one that what results are made of is asked for."""

VectorAt = Callable[[int, Place, int], Value]
"""A vector of a block of a panel, by number, position and tap."""


@dataclass(frozen=True)
class Unit:
    """What a workgroup computes.

    Attributes:
        outer: position on the outer axes.
        row: the first one of its group.
        column: the first one of its panel.
        vectors: of its panel, where that is known.
        narrow: vectors of the last panel, where that has fewer.
        whole: whether its panel is not that one; None where there is none.
        valid: masks of the columns that exist, by vector.
        counted: how many columns there are is known.
    """

    outer: Mapping[str, Value]
    row: Value
    column: Value
    vectors: int
    narrow: int
    whole: Value | None
    valid: Sequence[Value | None]
    counted: bool

    def results(self, u: int, vectors: int) -> Value | None:
        """The mask of results in a vector, of a panel with so many; None: all exist."""
        if self.counted and (u < vectors - 1 or (self.whole is not None and vectors == self.vectors)):
            return None  # only the last vector of all may have fewer
        return self.valid[u]


class ProductWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, product: Product, sizes: Mapping[str, Size], schedule: ProductSchedule
    ) -> None:
        self.code, self.product, self.sizes, self.schedule = code, product, sizes, schedule
        self.evaluator = VectorEvaluator(code, product.chain, inputs(code, product.chain, sizes))
        self.dtype = computed(product.step.dtype)
        self.width = schedule.vectors * code.lanes
        self.rows = RowTiles(code, product.rows, schedule.rows, schedule.group)
        fixed = frozenset((*product.outer, *((product.lane,) if product.turned else product.rows)))
        self.outputs = RowOutputs(code, product.chain, product.step, self.evaluator, sizes, fixed)
        self.split = product.contracted[0]
        self.held = rows_held(product, schedule)
        self.packed_scalars = schedule.packed_scalars(product)
        self.words = WordFactors.of(product) if schedule.words else None
        self.offsets = schedule.offsets(product)
        self.scales = schedule.packed_scales(product)

    @cached_property
    def panel(self) -> Panel | PackedPanel:
        """What is read as vectors."""
        if (packing := self.schedule.packed_panels(self.product)) is not None:
            narrow = None if self.schedule.words else self.product.narrow
            zeros = self.schedule.packed_zeros(self.product)
            return PackedPanel(self.code, self.product, packing, self.evaluator, narrow, zeros)
        return Panel.make(self.code, self.product, self.evaluator, self.sizes, self.schedule)

    @cached_property
    def scalars(self) -> ScalarRows | PlaneScalars | None:
        """What is read as scalars, where it is staged."""
        product, code = self.product, self.code
        if product.planes is not None:
            return PlaneScalars.make(code, product.planes, self.sizes, self.schedule.depth)
        if self.words is not None or in_place(product.chain, product.scalars):
            return None
        pitch = row_length(product.sizes, product.contracted, self.schedule.depth, code.lanes)
        memory = code.scratch(self.schedule.group * pitch + code.lanes, self.dtype)
        return ScalarRows(
            code, self.evaluator, product.scalars, self.rows, product.contracted, self.sizes, pitch, memory
        )

    @property
    def nibbles(self) -> bool:
        """Whether two elements of a panel are a byte."""
        packing = self.schedule.packed_panels(self.product)
        return packing is not None and packing.nibbles

    @cached_property
    def sums(self) -> Value:
        """Scratch for the sums of the rows that are held."""
        return self.code.scratch(self.held * self.width, self.dtype)

    def _panels(self, sizes: Mapping[str, Size]) -> Size:
        columns = sizes[self.product.lane]
        # A tail is of a number of columns that is known.
        return self.code.ceildiv(columns - self.schedule.tail if isinstance(columns, int) else columns, self.width)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, one per panel of columns and group of rows, of sizes that may be others than the writer's own."""
        code = self.code
        outer = code.product(sizes[axis] for axis in self.product.outer)
        return code.mul(code.mul(outer, self.rows.groups(sizes)), self._panels(sizes))

    def write(self) -> None:
        """The whole function."""
        code, unit, total = self.code, self._unit(), self.sizes[self.split]
        if isinstance(total, int) and total <= self.schedule.depth:
            vector = self._stage(unit, code.index(0), total)
            self._each_tile(unit, lambda row, rows, vectors: self._whole(unit, row, rows, vectors, total, vector))
        else:
            self._in_blocks(unit, total)
        if self.schedule.tail:
            tail = column_tail.ColumnTail(
                code, self.product, self.evaluator, self.sizes, self.rows, self.outputs, self.schedule.tail
            )
            end = code.add(unit.column, self.width + self.schedule.tail)
            last = code.below(code.add(code.size(self.sizes[self.product.lane]), -1), end)
            code.branch(last, lambda: tail.write(unit.outer, unit.row), lambda: None)

    def _in_blocks(self, unit: Unit, total: Size) -> None:
        """All blocks of what is contracted, and what the chain makes of their sums."""
        code = self.code
        self._clear()

        def block(start: Value, none: list[Value]) -> list[Value]:
            count = code.min(code.op("subi", code.size(total), start), self.schedule.depth)
            self._add_block(unit, start, count)
            return none

        code.loop(0, total, self.schedule.depth, [], block)
        self._write_group(unit)

    def _add_block(self, unit: Unit, start: Value, count: Size) -> None:
        """Adds a block's products to the sums of a group."""
        vector = self._stage(unit, start, count)
        self._each_tile(unit, lambda row, rows, vectors: self._add(unit, row, rows, vectors, start, count, vector))

    def _write_group(self, unit: Unit) -> None:
        """What the chain makes of the sums of a group, into its results."""
        code = self.code
        rows = code.min(code.op("subi", code.size(self.rows.count(self.sizes)), unit.row), self.schedule.group)
        self._by_width(unit, lambda vectors: self._write_rows(unit, unit.row, rows, vectors))

    def _unit(self) -> Unit:
        code, product, lanes = self.code, self.product, self.code.lanes
        panels, columns = self._panels(self.sizes), self.sizes[product.lane]
        counted = isinstance(columns, int)
        if counted:
            columns -= self.schedule.tail
        rest, panel = code.divmod(code.workgroup, panels)
        rest, group = code.divmod(rest, self.rows.groups(self.sizes))
        outer: dict[str, Value] = {}
        for axis in reversed(product.outer):
            rest, outer[axis] = code.divmod(rest, self.sizes[axis])
        column, vectors = code.mul(panel, self.width), self.schedule.vectors
        last = columns % self.width if isinstance(columns, int) else 0
        narrow = -(-last // lanes) if last else vectors
        if panels == 1:
            vectors = narrow
        valid: list[Value | None] = [None] * vectors
        if not isinstance(columns, int) or columns % lanes or narrow < vectors:
            left = code.op("subi", code.size(columns), column)
            valid = [code.prefix(code.max(code.min(code.add(left, -u * lanes), lanes), 0)) for u in range(vectors)]
        whole = code.below(panel, code.add(code.size(panels), -1)) if narrow < vectors else None
        return Unit(outer, code.mul(group, self.schedule.group), column, vectors, narrow, whole, valid, counted)

    def _stage(self, unit: Unit, start: Value, count: Size) -> VectorAt:
        vector = self.panel.fill(unit.outer, unit.column, unit.valid, start, count)
        if self.scalars is not None:
            self.scalars.fill(unit.outer, unit.row, start, count)
        return vector

    def _by_width(self, unit: Unit, body: Callable[[int], None]) -> None:
        """Runs ``body`` on the number of vectors of a panel."""
        if unit.whole is None:
            body(unit.vectors)
        else:
            self.code.branch(unit.whole, lambda: body(unit.vectors), lambda: body(unit.narrow))

    def _each_tile(self, unit: Unit, body: Callable[[Value, int, int], None]) -> None:
        """Runs ``body`` on the first row, the number of rows and that of vectors of each tile."""
        self._by_width(
            unit, lambda vectors: self.rows.each(unit.row, self.sizes, lambda row, rows: body(row, rows, vectors))
        )

    # Tiles

    def _whole(self, unit: Unit, row: Value, rows: int, vectors: int, total: int, vector: VectorAt) -> None:
        """All that there is to a tile."""
        code = self.code
        for i in range(rows):
            self._ask(unit, code.add(row, i), vectors)
        tile = self._multiplied(unit, row, rows, vectors, code.index(0), total, vector)
        if not self.held:
            for i, sums in enumerate(tile):
                write = self._writer(unit, code.add(row, i), vectors)
                for u, value in enumerate(sums):
                    write(u, value)
            return
        self._hold(tile, code.index(0))
        self._write_rows(unit, row, rows, vectors)

    def _hold(self, tile: Tile, first: Value) -> None:
        """Puts the sums of a tile into scratch, from a row that is held on."""
        code = self.code
        for i, sums in enumerate(tile):
            for u, value in enumerate(sums):
                code.store(value, self.sums, self._offset(code.add(first, i), u))

    def _add(
        self, unit: Unit, row: Value, rows: int, vectors: int, start: Value, count: Size, vector: VectorAt
    ) -> None:
        """Adds a block's products, summed by themselves first, to the sums of a tile: errors grow with the lengths of
        the blocks and with their number, not with the product of both (Higham 1993, section 3)."""
        code = self.code
        scales = [self._scale(unit, start, u) for u in range(vectors)]
        for i, sums in enumerate(self._multiplied(unit, row, rows, vectors, start, count, vector)):
            for u, value in enumerate(sums):
                if (scale := scales[u]) is not None:
                    value = code.op("mulf", value, scale)
                at = self._offset(code.add(code.op("subi", row, unit.row), i), u)
                code.store(code.op("addf", code.load(self.sums, at), value), self.sums, at)

    def _scale(self, unit: Unit, group: Value, u: int) -> Value | None:
        """What the steps of a group stand for, by column of a vector."""
        code, packing = self.code, self.scales
        if packing is None:
            return None
        at = code.add(packing.begin(code, unit.outer, unit.column, group), u * code.lanes)
        return widen(code, code.load(code.memory[packing.operand.name], at), packing.weight.dtype)

    def _multiplied(
        self, unit: Unit, row: Value, rows: int, vectors: int, start: Value, count: Size, vector: VectorAt
    ) -> Tile:
        code, product = self.code, self.product
        indices = [{**unit.outer, **self.rows.position(code.add(row, i), self.sizes)} for i in range(rows)]
        number = code.op("subi", row, unit.row)
        packing = self.packed_scalars
        begin = packing.begin(code, unit.outer, row, start) if packing is not None else None

        def scalar(i: int, place: Place, tap: int) -> Value:
            if self.nibbles:
                last = product.contracted[-1]
                place = {**place, last: code.add(place[last], tap)}
            if self.scalars is not None:
                return self.scalars.load(code.add(number, i), place, tap)
            if packing is not None:
                return packing.scalar(code, begin, place, i)
            index = {**indices[i], **place, self.split: code.add(start, place[self.split])}
            if self.words is not None:
                return self.words.scalar(code, self.sizes, index)
            return self.evaluator.scalar(product.scalars, Position(index, None))

        tiles = -(-self.schedule.group // self.schedule.rows)
        ask = self.panel.asker(unit.outer, unit.column, start, count, code.divmod(number, self.schedule.rows)[0], tiles)
        in_order = packing is not None  # nothing else is asked for then
        weight = None if in_order else asked_weight(product.chain, product.scalars, product.rows)
        staged = self.scalars is not None
        beside = None if in_order or staged else side_by_side(product.chain, product.scalars, product.rows)
        next_last = {**unit.outer, **self.rows.position(code.add(row, 2 * rows - 1), self.sizes)}
        idle = rows * vectors - rows - vectors  # loads, two of which go with two products

        def asking(u: int, place: Place, tap: int) -> Value:
            if product.planes is not None:
                place = {**place, **{axis: code.index(n) for axis, n in product.planes.written(tap).items()}}
            if not u and idle > 0:
                ask(place)
            if not u and idle > 1 and weight is not None:
                there = {**indices[0], **place, self.split: code.add(start, place[self.split])}
                turn = place[product.contracted[-1]]
                ask_next(code, weight, self.sizes, there, product.rows[0], rows, turn, near=True)
            elif not u and idle > 1 and beside is not None:
                last = {**next_last, **place, self.split: code.add(start, place[self.split])}
                at, _ = address(code, beside.axes, self.sizes, Position(last, None))
                code.prefetch(code.memory[beside.name], at)
            return vector(u, place, tap)

        ranges = [(axis, 0, self.sizes[axis] if n else count) for n, axis in enumerate(product.looped)]
        if product.planes is not None:
            ranges += [(axis, 0, self.sizes[axis]) for axis in product.planes.rolled]
        tile = self._begun(unit, row, rows, vectors)
        factors = Factors(scalar, asking, 1 if product.planes is None else len(product.planes.taps))
        if self.nibbles:
            factors = replace(factors, taps=2, step=2)
        if self.words is not None:
            factors = replace(factors, step=self.words.words.count, multiply_add=partial(self.words.added, code))
        return outer_products(code, ranges, tile, factors)

    def _begun(self, unit: Unit, row: Value, rows: int, vectors: int) -> Tile:
        """What the sums of a tile begin with."""
        code = self.code
        if self.offsets is None:
            return [[code.splat(0 if self.dtype == INTEGER_SUMS else 0.0, self.dtype)] * vectors for _ in range(rows)]
        if self.packed_scalars is None:
            return [[self.offsets.vector(code, unit.outer, unit.column, u) for u in range(vectors)]] * rows
        return [[self.offsets.scalar(code, unit.outer, row, i)] * vectors for i in range(rows)]

    def _offset(self, row: Value, u: int) -> Value:
        return self.code.add(self.code.mul(row, self.width), u * self.code.lanes)

    def _clear(self) -> None:
        code = self.code

        def vector(at: Value, none: list[Value]) -> list[Value]:
            code.store(code.splat(0.0, self.dtype), self.sums, at)
            return none

        code.loop(0, self.held * self.width, code.lanes, [], vector)

    # Results

    def _write_rows(self, unit: Unit, row: Value, rows: Size, vectors: int) -> None:
        """What the chain makes of the first of the sums that are held, into its results."""
        code = self.code

        def one(i: Value) -> Callable[[int], None]:
            if self.held > self.schedule.rows:
                self._ask(unit, code.add(row, i, ROWS_AHEAD), vectors)
            write = self._writer(unit, code.add(row, i), vectors)
            return lambda u: write(u, code.load(self.sums, self._offset(i, u)))

        rows_in_turns(code, rows, vectors, one)

    def _ask(self, unit: Unit, row: Value, vectors: int) -> None:
        """Asks for what the results of a row are made of."""
        code, lane = self.code, self.product.lane
        index = {**unit.outer, **self.rows.position(row, self.sizes)}
        columns, wide = self.sizes[lane], vectors * code.lanes
        aligned = isinstance(columns, int) and columns % code.lanes == 0
        for at in (*range(0, wide, code.lanes), *(() if aligned else (wide - 1,))):
            self.outputs.ask({**index, lane: code.add(unit.column, at)}, lane)

    def _writer(self, unit: Unit, row: Value, vectors: int) -> Callable[[int, Value], None]:
        """Who writes the results of a row of a panel with so many vectors, of a vector's number and its sums."""
        code, lane = self.code, self.product.lane
        index = {**unit.outer, **self.rows.position(row, self.sizes)}
        known = self.outputs.known(index)

        def write(u: int, sums: Value) -> None:
            at = {**index, lane: code.add(unit.column, u * code.lanes)}
            if self.dtype == INTEGER_SUMS:  # maps compute in more bits
                sums = widen(code, sums, self.dtype)
            self.outputs.write(sums, at, lane, unit.results(u, vectors), known)

        return write


def rows_held(product: Product, schedule: ProductSchedule) -> int:
    """Rows whose sums are held in scratch: those of a group where these are sums of blocks, or have another order than
    the results; those of a tile where much is made of them; else none."""
    if product.turned:
        return schedule.group
    if product.sizes[product.contracted[0]] > schedule.depth or product.chain.sizes[product.contracted[0]] is None:
        return schedule.group
    return schedule.rows if product.work > DIRECT else 0


def scratch(product: Product, schedule: ProductSchedule) -> int:
    """Elements of the scratch that a workgroup has."""
    width = schedule.vectors * schedule.lanes
    inner = prod(product.sizes[axis] for axis in product.contracted[1:])
    packed = schedule.packed_panels(product) is not None
    panel = 0 if packed else (schedule.depth * inner + schedule.lanes) * width
    if schedule.words:
        factors = WordFactors.of(product)
        assert factors is not None
        panel = 0 if packed else (schedule.depth * inner // factors.words.count + schedule.lanes) * width
    elif product.planes is not None:
        panel += plane_scalars.scratch(product.planes, schedule.depth, schedule.lanes)
    elif not in_place(product.chain, product.scalars):
        panel += schedule.group * row_length(product.sizes, product.contracted, schedule.depth, schedule.lanes)
    tail = column_tail.scratch(product, schedule.tail, schedule.lanes)
    return panel + rows_held(product, schedule) * width + tail
