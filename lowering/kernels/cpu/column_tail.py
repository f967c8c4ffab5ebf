"""The last columns of a product, where they would fill a small part of a vector: sums along what is contracted.

::

    last[u, k] = b[k, u]                                  # staged, where b does not lie along k
    for i in a group of rows step lanes / columns:
        tile[i, u] = 0                                    # as many vectors of partial sums as there are lanes
        for k step lanes:
            tile[i, u] += a[i, k] * last[u, k]
        y[i, u] = f(tile[i, u] summed across lanes)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.expression import Read
from covan_mlir.lowering.kernels.cpu.accumulators import sums
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.dot_tile import dot_products
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator
from covan_mlir.lowering.kernels.cpu.panel import transposed_axis
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.register_tile import Place
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.cpu.row_tiles import RowTiles
from covan_mlir.lowering.kernels.cpu.scalar_rows import in_place
from covan_mlir.lowering.kernels.cpu.tiles import padded

MOST = 0.4
"""Of a vector's lanes, the most columns that are summed this way."""


def tail_of(product: Product, lanes: int) -> int:
    """How many of the last columns may be summed this way."""
    sizes, (along, *more) = product.chain.sizes, product.contracted
    columns = sizes[product.lane]
    if more or columns is None or columns < lanes or columns % lanes > MOST * lanes or sizes[along] is None:
        return 0
    scalars = product.scalars
    if not isinstance(scalars, Read) or product.chain.values[scalars.name].axes[-1] != along:
        return 0
    return columns % lanes if in_place(product.chain, scalars) else 0


@dataclass(frozen=True)
class ColumnTail:
    """Writes the last columns of a group of rows.

    Attributes:
        columns: how many.
    """

    code: KernelBuilder
    product: Product
    evaluator: VectorEvaluator
    sizes: Mapping[str, Size]
    rows: RowTiles
    outputs: RowOutputs
    columns: int

    @property
    def _first(self) -> Value:
        return self.code.index(self.product.sizes[self.product.lane] - self.columns)

    @cached_property
    def _length(self) -> int:
        return padded(self.product.sizes[self.product.contracted[0]], self.code.lanes)

    @cached_property
    def _staged(self) -> bool:
        product = self.product
        return transposed_axis(product.chain, product.vectors, product.lane, product.contracted) is None

    @cached_property
    def _dtype(self) -> str:
        return computed(self.product.step.dtype)

    @cached_property
    def _memory(self) -> Value:
        return self.code.scratch(self.columns * self._length, self._dtype)

    @cached_property
    def _sums(self) -> Value:
        return self.code.scratch(2 * self.code.lanes, self._dtype)

    def write(self, outer: Mapping[str, Value], first: Value) -> None:
        """All rows of a group.

        Args:
            first: row of the group.
        """
        code, height = self.code, self.code.lanes // self.columns
        total = code.size(self.rows.count(self.sizes))
        end = code.min(code.add(first, self.rows.group), total)
        if self._staged:
            self._stage(outer)

        def tile(row: Value, none: list[Value]) -> list[Value]:
            # Beyond the last row, that one once more: nobody reads it.
            numbers = [code.min(code.add(row, i), code.add(total, -1)) for i in range(height)]
            self._multiply(outer, [{**outer, **self.rows.position(number, self.sizes)} for number in numbers])
            count = code.min(code.op("subi", end, row), height)
            code.loop(0, count, 1, [], lambda i, none: self._write(outer, code.add(row, i), i, none))
            return none

        code.loop(first, end, height, [], tile)

    def _read(self, outer: Mapping[str, Value], u: int, place: Place, mask: Value | None) -> Value:
        product = self.product
        index = {**outer, **place, product.lane: self.code.add(self._first, u)}
        return self.evaluator.vector(product.vectors, Position(index, product.contracted[0], mask))

    def _stage(self, outer: Mapping[str, Value]) -> None:
        code, (along,) = self.code, self.product.contracted
        total = self.product.sizes[along]

        def chunk(at: Value, none: list[Value], length: int) -> list[Value]:
            mask = None if length == code.lanes else code.prefix(length)
            for u in range(self.columns):
                code.store(self._read(outer, u, {along: at}, mask), self._memory, code.add(at, u * self._length))
            return none

        code.spans(0, total, code.lanes, [], chunk)

    def _multiply(self, outer: Mapping[str, Value], indices: list[dict[str, Value]]) -> None:
        """The sums of some rows, one after the other."""
        code, product, (along,) = self.code, self.product, self.product.contracted

        def left(i: int, place: Place, mask: Value | None) -> Value:
            return self.evaluator.vector(product.scalars, Position({**indices[i], **place}, along, mask))

        def right(u: int, place: Place, mask: Value | None) -> Value:
            if self._staged:  # with zeros at the end
                return code.load(self._memory, code.add(place[along], u * self._length))
            return self._read(outer, u, place, mask)

        zero = code.splat(0.0, self._dtype)
        tile = dot_products(code, [], along, self.sizes[along], [[zero] * self.columns for _ in indices], left, right)
        flat = [value for vectors in tile for value in vectors]
        code.store(sums(code, "addf", [*flat, *[zero] * (code.lanes - len(flat))]), self._sums, code.index(0))

    def _write(self, outer: Mapping[str, Value], row: Value, i: Value, none: list[Value]) -> list[Value]:
        """What the chain makes of a row's sums."""
        code, lane = self.code, self.product.lane
        index = {**outer, **self.rows.position(row, self.sizes)}
        value = code.load(self._sums, code.mul(i, self.columns))
        at, valid = {**index, lane: self._first}, code.prefix(self.columns)
        self.outputs.write(value, at, lane, valid, self.outputs.known(index))
        return none


def scratch(product: Product, columns: int, lanes: int) -> int:
    """Elements of the scratch that a workgroup has for so many of the last columns."""
    return columns * padded(product.sizes[product.contracted[0]], lanes) + 2 * lanes if columns else 0
