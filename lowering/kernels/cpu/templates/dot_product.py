"""Sums of products of few rows, both factors of which lie along what is contracted.

::

    for outer axes, group of rows, span of columns in parallel:
        for as many columns as there are lanes, rows, a register tile at a time:
            tile += vectors of one factor * vectors of the other one, along what is contracted
        results = the chain's maps of what that is across lanes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Expr, reads
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, Writer
from covan_mlir.lowering.kernels.cpu.dot_product import DotProductSchedule, DotProductWriter, scratch
from covan_mlir.lowering.kernels.cpu.product_roles import Product, product_of
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import LONGEST_SUM, SCATTERED
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.reductions.profitability import EXPOSED
from covan_mlir.lowering.kernels.reductions.sweeps import cost
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.elements import bits

TILES = (
    (1, 8),
    (2, 8),
    (3, 8),
    (3, 4),
    (4, 4),
    (5, 4),
    (6, 4),
    (7, 2),
    (8, 2),
    (10, 2),
    (1, 16),
    (2, 4),
    (1, 4),
)
"""Rows and columns of register tiles."""
MOST_ROWS = 16
"""Of more, what is read of one factor is worth staging, or packing, for all of them."""
GRAIN = 4e-6
"""Seconds of work that a workgroup is given at least, where that leaves enough of them."""
LEAST_UNITS = 8
"""Workgroups for each core, if there is as much to share."""
ACROSS = 80.0
"""Instructions that sum as many vectors as there are lanes across them, and begin with a tile."""


@dataclass(frozen=True)
class DotProductMatch(DenseMatch[DotProductSchedule]):
    """A chain that is a sum of products, of few rows."""

    task: Product
    target: CpuTarget

    @property
    def _lanes(self) -> int:
        return self.target.machine.lanes(f"f{max(32, bits(self.task.step.dtype))}")  # halves are computed in single

    def legal(self) -> Iterator[DotProductSchedule]:
        """See `DenseMatch`."""
        machine, product, lanes = self.target.machine, self.task, self._lanes
        rows = product.count(product.rows)
        blocks = -(-product.sizes[product.lane] // lanes)
        most = max(1, product.count(product.outer) * blocks // (LEAST_UNITS * machine.cores))
        for height, columns in TILES:
            held = height * columns + min(height, columns) + 1
            if held > machine.registers or lanes % columns or height >= 2 * rows:
                continue
            group = -(-rows // height) * height
            one = self._block(DotProductSchedule(lanes, height, columns, group, 1))
            schedule = DotProductSchedule(lanes, height, columns, group, max(1, min(int(GRAIN / one), most, blocks)))
            if scratch(schedule) * max(32, bits(product.step.dtype)) // 8 <= machine.stack:
                yield schedule

    def _block(self, schedule: DotProductSchedule) -> float:
        """Seconds for a block of columns, but for what memory takes."""
        machine, product = self.target.machine, self.task
        along = product.sizes[product.contracted[-1]]
        steps = -(-along // schedule.lanes) * product.count(product.contracted[:-1])
        # Rows that do not begin where cache lines do are read at half the rate, and what the first cache does not hold
        # of a block comes from the second for each tile.
        load = 1.0 if along % schedule.lanes == 0 else 1.9
        again = 3.0 if steps * schedule.lanes**2 * 4 > 0.5 * machine.l1 else load
        # Floats are made of integers for each tile: of two such instructions one is done beside a product.
        narrow = any(product.chain.values[name].dtype[0] == "i" for name in reads(product.vectors))
        made = cost(product.vectors) / 2 if narrow else 0.0
        whole, rest = divmod(product.count(product.rows), schedule.rows)
        spent = 0.0
        for height, times in ((schedule.rows, whole), (rest, 1 if rest else 0)):
            if not times:
                continue
            held = height * schedule.columns
            loads = load * height + again * schedule.columns
            slots = (
                steps * schedule.lanes * (height * max(1.0, loads / held, 8 / held) + made)
                + (ACROSS + product.work) * height
            )
            spent += slots * times
        return spent * 2 * schedule.lanes / machine.flops

    def predict(self, schedule: DotProductSchedule) -> float:
        """Products, or loads, at their rate, or what memory gives."""
        machine, product = self.target.machine, self.task
        outer = product.count(product.outer)
        blocks = -(-product.sizes[product.lane] // schedule.lanes)
        units = outer * -(-blocks // schedule.span)
        share = -(-units // machine.cores) / units
        computed = outer * blocks * self._block(schedule) * share
        moved = SCATTERED[schedule.columns] * product.traffic / (machine.bandwidth * machine.cores)
        return max(computed, moved) + EXPOSED * min(computed, moved)

    def structure(self, schedule: DotProductSchedule) -> Structure:
        """See `Match`."""
        return Structure("tiles", factored="lanes")

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: DotProductSchedule) -> Writer:
        """See `DenseMatch`."""
        return DotProductWriter(code, self.task, sizes, schedule)


@register
class DotProductTemplate(Template[CpuTarget, DotProductSchedule]):
    """A sum of products of few rows, lanes along what is contracted."""

    name: ClassVar[str] = "dot_product"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("rows", "products")

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> DotProductMatch | Refusal:
        """See `Template`."""
        try:
            product = product_of(chain)
        except UnsupportedError as error:
            return Refusal(str(error), suits=chain.product)
        if any(chain.sizes[axis] is None for axis in (*product.contracted, *product.rows)):
            return Refusal("how many rows there are, or how long its sums are, is only known at run time")
        if product.count(product.rows) > MOST_ROWS:
            return Refusal(f"it has more than {MOST_ROWS} rows")
        along = product.contracted[-1]
        if not all(_lies_along(chain, factor, along) for factor in (product.scalars, product.vectors)):
            return Refusal(f"a factor is not contiguous along {along}, which is contracted")
        match = DotProductMatch(product, target)
        if product.count(product.contracted) > LONGEST_SUM * match._lanes:
            return Refusal("its sums are so long that they have to be sums of blocks")
        return match if match.ranked else Refusal("registers hold no tile of it")


def _lies_along(chain: Chain, expr: Expr, along: str) -> bool:
    """Whether the tensors that an expression reads have an axis last, if they have it."""
    axes = [chain.values[name].axes for name in reads(expr)]
    return all(along not in own or own[-1] == along for own in axes)
