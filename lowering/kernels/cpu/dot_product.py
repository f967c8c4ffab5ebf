"""Sums of products along what is contracted: both factors are read as vectors, in place.

For ``y[i, j] = f(sum over k of a[i, k] * b[j, k])``, a workgroup runs this nest::

    for j in a span step lanes:
        for i in a group step rows:
            for c in lanes step columns:
                tile[rows, columns] = 0                   # registers, a vector of partial sums each
                for k step lanes:
                    tile[rows, columns] += a[i, k] * b[j + c, k]
                partial[i, c] = tile
            y[i, j] = f(partial[i, :] summed across lanes)

Nothing is staged and nothing packed: the factor with many columns is read once, in order, as it lies in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.lowering.kernels.cpu.accumulators import sums
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule
from covan_mlir.lowering.kernels.cpu.dot_tile import dot_products
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator, inputs
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.register_tile import Place, Tile
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.cpu.row_tiles import RowTiles


@dataclass(frozen=True)
class DotProductSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        rows, columns: of the register tile; so many columns divide the lanes.
        group: rows that a workgroup computes.
        span: blocks of as many columns as there are lanes that it computes.
    """

    rows: int
    columns: int
    group: int
    span: int


@dataclass(frozen=True)
class Block:
    """As many columns of the results as there are lanes.

    Attributes:
        outer: position on the outer axes.
        row: the first one of the group.
        column: the first one.
        valid: which of them exist; None: all.
    """

    outer: Mapping[str, Value]
    row: Value
    column: Value
    valid: Value | None


class DotProductWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, product: Product, sizes: Mapping[str, Size], schedule: DotProductSchedule
    ) -> None:
        self.code, self.product, self.sizes, self.schedule = code, product, sizes, schedule
        self.evaluator = VectorEvaluator(code, product.chain, inputs(code, product.chain, sizes))
        self.dtype = computed(product.step.dtype)
        self.rows = RowTiles(code, product.rows, schedule.rows, schedule.group)
        fixed = frozenset((*product.outer, *product.rows))
        self.outputs = RowOutputs(code, product.chain, product.step, self.evaluator, sizes, fixed)

    @cached_property
    def partial(self) -> Value:
        """Scratch for the partial sums of a tile of rows."""
        return self.code.scratch(self.schedule.rows * self.code.lanes**2, self.dtype)

    def _blocks(self, sizes: Mapping[str, Size]) -> Size:
        return self.code.ceildiv(sizes[self.product.lane], self.code.lanes)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, one per group of rows and span of blocks, of sizes that may be others than the writer's own."""
        code = self.code
        outer = code.product(sizes[axis] for axis in self.product.outer)
        spans = code.ceildiv(self._blocks(sizes), self.schedule.span)
        return code.mul(code.mul(outer, self.rows.groups(sizes)), spans)

    def write(self) -> None:
        """The whole function."""
        code, product, lanes = self.code, self.product, self.code.lanes
        columns, blocks = self.sizes[product.lane], self._blocks(self.sizes)
        rest, span = code.divmod(code.workgroup, code.ceildiv(blocks, self.schedule.span))
        rest, group = code.divmod(rest, self.rows.groups(self.sizes))
        outer: dict[str, Value] = {}
        for axis in reversed(product.outer):
            rest, outer[axis] = code.divmod(rest, self.sizes[axis])
        row, first = code.mul(group, self.schedule.group), code.mul(span, self.schedule.span)

        def block(number: Value, none: list[Value]) -> list[Value]:
            column, valid = code.mul(number, lanes), None
            if not isinstance(columns, int) or columns % lanes:
                valid = code.prefix(code.min(code.op("subi", code.size(columns), column), lanes))
            unit = Block(outer, row, column, valid)
            self.rows.each(row, self.sizes, lambda first, rows: self._rows(unit, first, rows))
            return none

        code.loop(first, code.min(code.add(first, self.schedule.span), code.size(blocks)), 1, [], block)

    def _rows(self, unit: Block, first: Value, rows: int) -> None:
        """A tile of rows of a block."""
        code, lanes = self.code, self.code.lanes

        def columns(c: Value, none: list[Value]) -> list[Value]:
            for i, vectors in enumerate(self._multiplied(unit, first, rows, c)):
                for u, value in enumerate(vectors):
                    at = code.mul(code.add(c, i * lanes + u), lanes)
                    code.store(value, self.partial, at)
            return none

        code.loop(0, lanes, self.schedule.columns, [], columns)

        def row(i: Value, none: list[Value]) -> list[Value]:
            begin = code.mul(i, lanes * lanes)
            total = sums(code, "addf", [code.load(self.partial, code.add(begin, n * lanes)) for n in range(lanes)])
            index = {**unit.outer, **self.rows.position(code.add(first, i), self.sizes)}
            at = {**index, self.product.lane: unit.column}
            self.outputs.write(total, at, self.product.lane, unit.valid, self.outputs.known(index))
            return none

        code.loop(0, rows, 1, [], row)

    def _multiplied(self, unit: Block, first: Value, rows: int, c: Value) -> Tile:
        """The partial sums of some rows and columns.

        Args:
            c: the first column, counted from the block's.
        """
        code, product = self.code, self.product
        *before, along = product.contracted
        last = code.add(code.size(self.sizes[product.lane]), -1)
        indices = [{**unit.outer, **self.rows.position(code.add(first, i), self.sizes)} for i in range(rows)]
        columns = [code.add(unit.column, c, u) for u in range(self.schedule.columns)]
        if unit.valid is not None:  # beyond the last column, that one once more: nobody reads it
            columns = [code.min(column, last) for column in columns]

        def left(i: int, place: Place, mask: Value | None) -> Value:
            return self.evaluator.vector(product.scalars, Position({**indices[i], **place}, along, mask))

        def right(u: int, place: Place, mask: Value | None) -> Value:
            index = {**unit.outer, product.lane: columns[u], **place}
            return self.evaluator.vector(product.vectors, Position(index, along, mask))

        ranges = [(axis, 0, self.sizes[axis]) for axis in before]
        tile = [[code.splat(0.0, self.dtype)] * len(columns) for _ in range(rows)]
        return dot_products(code, ranges, along, self.sizes[along], tile, left, right)


def scratch(schedule: DotProductSchedule) -> int:
    """Elements of the scratch that a workgroup has."""
    return schedule.rows * schedule.lanes**2
