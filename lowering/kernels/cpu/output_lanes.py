"""Sums of products with lanes along the output channels of a weight, which the results do not have last.

For ``y[k, p] = f(sum over c of x[c, p] * w[k, c])``, a workgroup runs this nest::

    k = vectors * lanes output channels
    sums[p, k] = 0                                        # of all positions
    for block of c, of depth positions:
        for p step rows:
            tile[rows, vectors] = 0                       # registers
            for c in block:
                tile[rows, vectors] += x[c, p] * packed[c, k]
            sums[p, k] += tile
    turned[k, p] = sums[p, k]                             # transposed in registers
    y[k, p] = f(turned[k, p])

What a convolution's window slides over is staged in planes first (`plane_scalars`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.product import ProductWriter, Unit
from covan_mlir.lowering.kernels.cpu.product import scratch as product_scratch
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.tiles import padded, transpose
from covan_mlir.lowering.kernels.cpu.turns import rows_in_turns


class OutputLanesWriter(ProductWriter):
    """Writes the code of a workgroup; its group has all rows."""

    def __init__(
        self, code: KernelBuilder, product: Product, sizes: Mapping[str, Size], schedule: ProductSchedule
    ) -> None:
        super().__init__(code, product, sizes, schedule)
        self.positions = product.count(product.rows)

    @cached_property
    def turned(self) -> Value:
        """Scratch for the sums of a vector of channels, those of a channel side by side."""
        return self.code.scratch(self.code.lanes * padded(self.positions, self.code.lanes), self.dtype)

    def write(self) -> None:
        """The whole function."""
        code, unit, total = self.code, self._unit(), self.sizes[self.split]
        if not isinstance(total, int) or total > self.schedule.depth:
            self._in_blocks(unit, total)
            return
        vector = self._stage(unit, code.index(0), total)

        def tile(row: Value, rows: int, vectors: int) -> None:
            self._hold(self._multiplied(unit, row, rows, vectors, code.index(0), total, vector), row)

        self._each_tile(unit, tile)
        self._write_group(unit)

    def _write_group(self, unit: Unit) -> None:
        """What the chain makes of the sums, into its results."""

        def body(vectors: int) -> None:
            def vector(u: Value, none: list[Value]) -> list[Value]:
                self._turn(u)
                self._write_channels(unit, u)
                return none

            self.code.loop(0, vectors, 1, [], vector)

        self._by_width(unit, body)

    def _turn(self, u: Value) -> None:
        """Writes the sums of each of a vector's channels side by side."""
        code, lanes = self.code, self.code.lanes
        pitch = padded(self.positions, lanes)
        column = code.mul(u, lanes)

        def block(at: Value, none: list[Value], length: int) -> list[Value]:
            # Beyond the last position, that one once more: nobody reads it.
            rows = [code.add(at, min(n, length - 1)) for n in range(lanes)]
            read = [code.load(self.sums, code.add(code.mul(row, self.width), column)) for row in rows]
            for n, value in enumerate(transpose(code, read)):
                code.store(value, self.turned, code.add(at, n * pitch))
            return none

        code.spans(0, self.positions, lanes, [], block)

    def _write_channels(self, unit: Unit, u: Value) -> None:
        code, product, lanes = self.code, self.product, self.code.lanes
        first = code.add(unit.column, code.mul(u, lanes))
        count = code.min(code.op("subi", code.size(self.sizes[product.lane]), first), lanes)
        code.loop(0, count, 1, [], lambda n, none: self._write_channel(unit, code.add(first, n), n, none))

    def _write_channel(self, unit: Unit, channel: Value, n: Value, none: list[Value]) -> list[Value]:
        """All positions of a channel: where they have two axes, rows of the results are one."""
        code, product, lanes, positions = self.code, self.product, self.code.lanes, self.positions
        *above, along = product.rows
        index = {**unit.outer, product.lane: channel, **{axis: code.index(0) for axis in above}}
        known = self.outputs.known(index)
        begin = code.mul(n, padded(positions, lanes))
        mask = code.prefix(positions) if positions < lanes else None

        def block(number: Value) -> Callable[[int], None]:
            # The last vector ends where the results do.
            at = code.min(code.mul(number, lanes), max(positions - lanes, 0))
            value = code.load(self.turned, code.add(begin, at))
            self.outputs.ask({**index, product.lane: code.add(channel, 1), along: at}, along)
            return lambda _: self.outputs.write(value, {**index, along: at}, along, mask, known)

        rows_in_turns(code, -(-positions // lanes), 1, block)
        return none


def scratch(product: Product, schedule: ProductSchedule) -> int:
    """Elements of the scratch that a workgroup has."""
    return product_scratch(product, schedule) + schedule.lanes * padded(product.count(product.rows), schedule.lanes)
