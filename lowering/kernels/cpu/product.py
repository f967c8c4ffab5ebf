"""Sums of products: vector lanes run along an axis of one factor, the other one is read as scalars, in place.

For ``y[i, j] = f(sum over k of a[i, k] * b[j, k])``, a workgroup runs this nest::

    j = vectors * lanes columns; i = a group of rows
    sums[i, j] = 0                                        # only where there is more than one block
    for block of k, of depth positions:
        panel[k, j] = b[j, k]                             # staged in scratch, transposed in registers where need be
        scalars[i, k] = a[i, k]                           # only where it is not float32 or float64 in memory
        for i in group step rows:
            tile[rows, vectors] = 0                       # registers
            for k in block:
                tile[rows, vectors] += a[i, k] * panel[k, j]
            sums[i, j] += tile
    y[i, j] = f(sums[i, j])                               # of a single block: f(tile), at once

The last columns and rows, if there are fewer, have a narrower tile of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from math import prod

from covan_mlir.fred.expression import Read
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    VectorEvaluator,
    address,
    inputs,
    narrow,
)
from covan_mlir.lowering.kernels.cpu.panel import Panel
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.register_tile import Factors, Place, Tile, outer_products
from covan_mlir.lowering.kernels.cpu.row_tiles import RowTiles
from covan_mlir.lowering.kernels.cpu.scalar_rows import ScalarRows, in_place, row_length


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
        self.split, self.whole = product.contracted[0], product.contracted[1:]

    @cached_property
    def panel(self) -> Panel:
        """What is read as vectors."""
        return Panel.make(self.code, self.product, self.evaluator, self.sizes, self.schedule)

    @cached_property
    def scalars(self) -> ScalarRows | None:
        """What is read as scalars, where it is staged."""
        product, code = self.product, self.code
        if in_place(product.chain, product.scalars):
            return None
        pitch = row_length(product.sizes, product.contracted, self.schedule.depth, code.lanes)
        memory = code.scratch(self.schedule.group * pitch + code.lanes, self.dtype)
        return ScalarRows(
            code, self.evaluator, product.scalars, self.rows, product.contracted, self.sizes, pitch, memory
        )

    @cached_property
    def sums(self) -> Value | None:
        """Scratch for the sums of a group, where there is more than one block."""
        size = self.sizes[self.split]
        if isinstance(size, int) and size <= self.schedule.depth:
            return None
        return self.code.scratch(self.schedule.group * self.width, self.dtype)

    def _panels(self, sizes: Mapping[str, Size]) -> Size:
        return self.code.ceildiv(sizes[self.product.lane], self.width)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, one per panel of columns and group of rows, of sizes that may be others than the writer's own."""
        code = self.code
        groups = self.rows.groups(sizes)
        outer = code.product(sizes[axis] for axis in self.product.outer)
        return code.mul(code.mul(outer, groups), self._panels(sizes))

    def write(self) -> None:
        """The whole function."""
        code, product = self.code, self.product
        panels = self._panels(self.sizes)
        rest, panel = code.divmod(code.workgroup, panels)
        outer: dict[str, Value] = {}
        rest, group = code.divmod(rest, self.rows.groups(self.sizes))
        for axis in reversed(product.outer):
            rest, outer[axis] = code.divmod(rest, self.sizes[axis])
        first = code.mul(panel, self.width)
        unit = partial(self._unit, outer, code.mul(group, self.schedule.group), first)
        columns = self.sizes[product.lane]
        last = columns % self.width if isinstance(columns, int) else None
        if last == 0:
            unit(self.schedule.vectors, None)
        elif last is None or panels == 1:
            unit(self.schedule.vectors if last is None else -(-last // code.lanes), columns)
        else:
            narrow_vectors = -(-last // code.lanes)
            code.branch(
                code.below(panel, code.add(panels, -1)),
                lambda: unit(self.schedule.vectors, None),
                lambda: unit(narrow_vectors, columns),
            )

    def _unit(
        self, outer: Mapping[str, Value], first_row: Value, first: Value, vectors: int, columns: Size | None
    ) -> None:
        """A group of rows of a panel.

        Args:
            columns: how many there are in all, where the panel may reach beyond them.
        """
        code = self.code
        valid: list[Value | None] = [None] * vectors
        if columns is not None:
            left = code.op("subi", code.size(columns), first)
            valid = [
                None
                if isinstance(columns, int) and columns % code.lanes == 0
                else code.prefix(code.max(code.min(code.add(left, -u * code.lanes), code.lanes), 0))
                for u in range(vectors)
            ]

        def positions(row: Value) -> list[Position]:
            index = {**outer, **self.rows.position(row, self.sizes)}
            return [
                Position({**index, self.product.lane: code.add(first, u * code.lanes)}, self.product.lane, valid[u])
                for u in range(vectors)
            ]

        def stage(start: Value, count: Size) -> None:
            self.panel.fill(outer, first, valid, start, count)
            if self.scalars is not None:
                self.scalars.fill(outer, first_row, start, count)

        def block(start: Value, count: Size) -> None:
            stage(start, count)
            self.rows.each(
                first_row, self.sizes, lambda row, rows: self._tile(outer, first_row, row, rows, vectors, start, count)
            )

        depth = self.schedule.depth
        if self.sums is None:
            whole = self.sizes[self.split]
            stage(code.index(0), whole)
            self.rows.each(
                first_row,
                self.sizes,
                lambda row, rows: self._write(
                    row,
                    positions,
                    self._multiplied(outer, first_row, row, self._zero(rows, vectors), code.index(0), whole),
                ),
            )
            return
        self._clear(vectors)

        def step(start: Value, _: list[Value]) -> list[Value]:
            left = code.op("subi", code.size(self.sizes[self.split]), start)
            block(start, code.min(left, depth))
            return []

        code.loop(0, self.sizes[self.split], depth, [], step)
        self.rows.each(
            first_row,
            self.sizes,
            lambda row, rows: self._write(row, positions, self._load(code.op("subi", row, first_row), rows, vectors)),
        )

    # Tiles

    def _zero(self, rows: int, vectors: int) -> Tile:
        return [[self.code.splat(0.0, self.dtype)] * vectors for _ in range(rows)]

    def _tile(
        self,
        outer: Mapping[str, Value],
        first_row: Value,
        row: Value,
        rows: int,
        vectors: int,
        start: Value,
        count: Size,
    ) -> None:
        """Adds a block's products, summed by themselves first, to the sums of a tile: errors grow with the lengths of
        the blocks and with their number, not with the product of both (Higham 1993, section 3)."""
        code, at = self.code, self.code.op("subi", row, first_row)
        tile = self._multiplied(outer, first_row, row, self._zero(rows, vectors), start, count)
        for i, sums in enumerate(self._load(at, rows, vectors)):
            for u in range(vectors):
                code.store(code.op("addf", sums[u], tile[i][u]), self.sums, self._offset(at, i, u))

    def _multiplied(
        self, outer: Mapping[str, Value], first_row: Value, row: Value, tile: Tile, start: Value, count: Size
    ) -> Tile:
        code, product = self.code, self.product
        indices = [{**outer, **self.rows.position(code.add(row, i), self.sizes)} for i in range(len(tile))]

        held = code.op("subi", row, first_row)

        def scalar(i: int, place: Place, tap: int) -> Value:
            if self.scalars is not None:
                return self.scalars.load(code.add(held, i), place)
            index = {**indices[i], **place, self.split: code.add(start, place[self.split])}
            return self.evaluator.scalar(product.scalars, Position(index, None))

        ranges = [(self.split, 0, count), *((axis, 0, self.sizes[axis]) for axis in self.whole)]
        return outer_products(code, ranges, tile, Factors(scalar, self.panel.load))

    def _offset(self, row: Value, i: int, u: int) -> Value:
        return self.code.add(self.code.mul(row, self.width), i * self.width + u * self.code.lanes)

    def _load(self, row: Value, rows: int, vectors: int) -> Tile:
        """A tile of the sums."""
        return [[self.code.load(self.sums, self._offset(row, i, u)) for u in range(vectors)] for i in range(rows)]

    def _clear(self, vectors: int) -> None:
        zero = self.code.splat(0.0, self.dtype)

        def row(at: Value, _: list[Value]) -> list[Value]:
            for u in range(vectors):
                self.code.store(zero, self.sums, self._offset(at, 0, u))
            return []

        self.code.loop(0, self.schedule.group, 1, [], row)

    def _write(self, row: Value, positions: Callable[[Value], list[Position]], tile: Tile) -> None:
        """What the chain makes of a tile's sums, into its results."""
        code, chain = self.code, self.product.chain
        for i, sums in enumerate(tile):
            for plain, value in zip(positions(code.add(row, i)), sums, strict=True):
                given: dict[str, Result] = {self.product.step.name: Lanes(value)}
                position = Position(plain.index, plain.lane, plain.valid, given)
                for name in chain.outputs:
                    step = chain.values[name]
                    at, distance = address(code, step.axes, self.sizes, position)
                    result = self.evaluator.vector(Read(name, step.dtype), position)
                    code.scatter(narrow(code, result, step.dtype), code.memory[name], at, distance, position.valid)


def scratch(product: Product, schedule: ProductSchedule) -> int:
    """Elements of the scratch that a workgroup has."""
    width = schedule.vectors * schedule.lanes
    inner = prod(product.sizes[axis] for axis in product.contracted[1:])
    blocks = -(-product.sizes[product.contracted[0]] // schedule.depth)
    panel = (schedule.depth * inner + schedule.lanes) * width
    if not in_place(product.chain, product.scalars):
        panel += schedule.group * row_length(product.sizes, product.contracted, schedule.depth, schedule.lanes)
    return panel + (schedule.group * width if blocks > 1 else 0)
