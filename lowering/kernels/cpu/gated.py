"""Products of the same axes, of whose sums elements are computed together, as gates have it.

For ``y[i, j] = f(sum over k of a[i, k] * b[j, k], sum over k of c[i, k] * d[j, k])``, a workgroup runs this nest, with
tiles and blocks as `covan_mlir.lowering.kernels.cpu.product` has them::

    for block of k:
        for product:
            for tile:
                sums[product, tile] += the tile's products      # of a single block: held for that tile only
    y[i, j] = f(sums[:, i, j])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, VectorEvaluator, inputs
from covan_mlir.lowering.kernels.cpu.product import ProductWriter, Unit, rows_held
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.cpu.turns import rows_in_turns


class GatedWriter(ProductWriter):
    """Writes the code of a workgroup: as the writer of the first product, and by those of the others."""

    def __init__(
        self,
        code: KernelBuilder,
        chain: Chain,
        products: Sequence[Product],
        sizes: Mapping[str, Size],
        schedule: ProductSchedule,
    ) -> None:
        first, *others = products
        super().__init__(code, first, sizes, schedule)
        self.parts: list[ProductWriter] = [self, *(ProductWriter(code, one, sizes, schedule) for one in others)]
        for part in self.parts:
            part.held = sums_held(part.product, schedule)
        evaluator = VectorEvaluator(code, chain, inputs(code, chain, sizes))
        fixed = frozenset((*first.outer, *first.rows))
        self.outputs = RowOutputs(code, chain, first.step, evaluator, sizes, fixed)

    def write(self) -> None:
        """See `Writer`."""
        code, unit, total = self.code, self._unit(), self.sizes[self.split]
        if isinstance(total, int) and total <= self.schedule.depth:
            panels = [part._stage(unit, code.index(0), total) for part in self.parts]

            def tile(row: Value, rows: int, vectors: int) -> None:
                for part, vector in zip(self.parts, panels, strict=True):
                    sums = part._multiplied(unit, row, rows, vectors, code.index(0), total, vector)
                    part._hold(sums, code.index(0))
                self._write_rows(unit, row, rows, vectors)

            self._each_tile(unit, tile)
            return
        for part in self.parts:
            part._clear()

        def block(start: Value, none: list[Value]) -> list[Value]:
            count = code.min(code.op("subi", code.size(total), start), self.schedule.depth)
            for part in self.parts:
                part._add_block(unit, start, count)
            return none

        code.loop(0, total, self.schedule.depth, [], block)
        self._write_group(unit)

    def _write_rows(self, unit: Unit, row: Value, rows: Size, vectors: int) -> None:
        code, lane = self.code, self.product.lane

        def one(i: Value) -> Callable[[int], None]:
            index = {**unit.outer, **self.rows.position(code.add(row, i), self.sizes)}
            known = self.outputs.known(index)

            def write(u: int) -> None:
                at = {**index, lane: code.add(unit.column, u * code.lanes)}
                sums = [code.load(part.sums, part._offset(i, u)) for part in self.parts]
                given = {part.product.step.name: Lanes(value) for part, value in zip(self.parts, sums, strict=True)}
                self.outputs.write(sums[0], at, lane, unit.results(u, vectors), {**known, **given})

            return write

        rows_in_turns(code, rows, vectors, one)


def sums_held(product: Product, schedule: ProductSchedule) -> int:
    """Rows whose sums are held in scratch, of each product."""
    return max(rows_held(product, schedule), schedule.rows)
