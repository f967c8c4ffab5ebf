"""Sums of products: matrix products of any batch and transposition, with what is done to their elements.

::

    for outer axes, panel of columns, group of rows in parallel:
        for block of the contracted axis:
            panel = vectors of one factor, in scratch
            for rows of the group, a register tile at a time:
                tile += scalars of the other factor * panel
        results = the chain's maps of the sums
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from math import gcd
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import reads
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.column_tail import tail_of
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, Writer
from covan_mlir.lowering.kernels.cpu.packed_weight import PADDING
from covan_mlir.lowering.kernels.cpu.panel import transposed_axis
from covan_mlir.lowering.kernels.cpu.product import ProductWriter, scratch
from covan_mlir.lowering.kernels.cpu.product_roles import Product, product_of
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.register_tile import register_tiles
from covan_mlir.lowering.kernels.cpu.scalar_rows import asked_weight, in_place
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.word_factors import WordFactors
from covan_mlir.lowering.kernels.cpu.words import BF16
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Preparation, Refusal
from covan_mlir.lowering.kernels.reductions.profitability import EXPOSED
from covan_mlir.lowering.kernels.reductions.sweeps import cost
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.description import Machine
from covan_mlir.machine.elements import bits

TILES = (
    (8, 3),
    (6, 4),
    (7, 3),
    (12, 2),
    (4, 4),
    (4, 6),
    (8, 2),
    (8, 1),
    (4, 2),
    (4, 1),
    (2, 4),
    (2, 2),
    (1, 4),
    (1, 1),
)
"""Rows and vectors of register tiles, those that are read least often per product first."""
ROW = (1, 8)
"""A tile of one row, of as many sums as there have to be under way: of a weight of few bits, memory does not wait."""
DEPTHS = (64, 128, 256, 512)
GROUPS = (64, 128, 256)
SCATTERED = {2: 1.3, 4: 1.0, 8: 1.0, 16: 1.15}
"""Of the time that memory takes for one run, that for so many columns side by side: with few, too little is asked for
at once, and of many less is asked for ahead of time."""
FEW_ROWS = 16
"""Of more, the last columns may be summed in another way."""
SUMMED = 4.0
"""Instructions that sum a vector across lanes, of as many as there are lanes."""
IN_FLIGHT = 12
"""Products that are under way at once: a tile of fewer vectors waits for itself."""
BREADTH = 20
"""Vectors of a tile, of which fewer have more loads, addresses and turns of a loop for each product."""
NARROW = 0.02
"""Of the time of a product, what each missing one costs: tiles of 16 take 1.08 times as long on a Zen 5, 1.08 to 1.1
times on a Sapphire Rapids."""
STAYS = 0.8
"""Of the first cache, what stays there while scalars are read beside it."""
FARTHER = 2.4
"""Loads from the first cache that take as long as one from the second."""
BEGUN = 150.0
"""Instructions that it takes to begin with a workgroup, and with each of its loops."""
WRITTEN = 8.0
"""Instructions that write a vector of results, besides those that compute it."""
BESIDE = 0.1
"""Of the time of a load that is done beside products, what is not hidden by them."""
FORESEEN = 0.02
"""The same of packed panels, of which the next one is asked for: of tiles as fast, the one that loads least."""
WAY = 4096
"""Bytes of a way of the first cache: lines that lie so far apart are in one set, which has as many lines as there are
ways."""
CROWDED = 0.5
"""Of the time of a product, what a scalar costs whose line others of the same set push out: rows of a weight that lie a
multiple of so many bytes apart, those of this tile and of the next one, and those that the last columns are summed
of."""
WIDENED, HALVED = 1.0, 1.5
"""Of the time of a product of vectors, what it takes to make a vector of floats of one of bytes, and of halves of
these: two instructions and three, of which machines begin two while they begin one product."""
LESS = 0.5
"""The same of an instruction more, which takes zero points off them."""
LONGEST_SUM = 1024
"""Products that are summed one after the other; longer sums are sums of blocks."""


@dataclass(frozen=True)
class Load:
    """What there is to do.

    Attributes:
        units: seconds of one core that a workgroup takes, and how many take as long.
        moved: bytes, more of them where they do not come in order.
    """

    units: tuple[tuple[float, int], ...]
    moved: float


def makespan(units: Iterable[tuple[float, int]], cores: int) -> float:
    """When the last of some workgroups ends, the longest of which are taken first (Graham 1969): of few, or of unlike
    ones, some cores have less to do than others.

    Args:
        units: seconds, and how many take as long.
    """
    ends = [0.0] * cores
    for each, count in sorted(units, reverse=True):
        rounds, rest = divmod(count, cores)
        ends = [end + rounds * each for end in ends]  # a heap still
        for _ in range(rest):
            heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def seconds(loads: Sequence[Load], machine: Machine) -> float:
    """How long a machine takes for all of it, side by side."""
    computed = makespan([unit for load in loads for unit in load.units], machine.cores)
    moved = sum(load.moved for load in loads) / (machine.bandwidth * machine.cores)
    return max(computed, moved) + EXPOSED * min(computed, moved)


@dataclass(frozen=True)
class ProductMatch(DenseMatch[ProductSchedule]):
    """A chain that is a sum of products."""

    task: Product
    target: CpuTarget

    def legal(self) -> Iterator[ProductSchedule]:
        """See `DenseMatch`."""
        machine, product = self.target.machine, self.task
        element = max(32, bits(product.step.dtype))  # halves are computed, and staged, in single precision
        lanes = machine.lanes(f"f{element}")
        rows, depth = product.count(product.rows), product.sizes[product.contracted[0]]
        most = max(1, LONGEST_SUM // product.count(product.contracted[1:]))
        depths = [(longest, False) for longest in DEPTHS]
        if product.weight is not None:
            depths += [(longest, True) for longest in (*DEPTHS, LONGEST_SUM)]  # no scratch holds these
        tail = tail_of(product, lanes) if rows > FEW_ROWS else 0
        tails = (0, tail) if tail else (0,)
        by_scalars = product.scalar_weight is not None and product.narrow is None
        paired = machine.bf16_pairs and BF16.has_instruction(lanes) and WordFactors.of(product) is not None
        for (height, vectors), (longest, packed), largest, pair in combinations(
            register_tiles(machine.registers, TILES), depths, GROUPS, (False, True) if paired else (False,)
        ):
            # Blocks of equal lengths, and groups of equal numbers of tiles.
            blocks = -(-depth // min(longest, most))
            each = -(-depth // blocks)
            block = lanes * BF16.count if pair else lanes
            even = -(-each // block) * block if blocks > 1 else depth
            count = -(-rows // height)
            group = -(-count // -(-rows // largest)) * height
            tight = by_scalars and count * height <= (1 + PADDING) * rows
            for last in (0,) if packed or pair else tails:
                by_rows = tight and not pair and not last
                schedule = ProductSchedule(lanes, height, vectors, group, even, packed or by_rows, pair, last)
                if (packing := schedule.packed_panels(product)) is not None and packing.padding > PADDING:
                    continue
                if scratch(product, schedule) * element // 8 <= machine.stack:
                    yield schedule
        yield from self._narrow()

    def _narrow(self) -> Iterator[ProductSchedule]:
        """Those that read the steps of a weight of few bits."""
        machine, product = self.target.machine, self.task
        narrow = product.narrow
        if narrow is None:
            return
        lanes, rows = machine.lanes("f32"), product.count(product.rows)
        # Blocks are groups, or of equal, even lengths: a byte of two steps is in one.
        blocks = -(-product.count(product.contracted) // LONGEST_SUM)
        depth = 1 if narrow.grouped else 2 * -(-product.sizes[product.contracted[0]] // (2 * blocks))
        for (height, vectors), largest in combinations(register_tiles(machine.registers, (*TILES, ROW)), GROUPS):
            count = -(-rows // height)
            group = -(-count // -(-rows // largest)) * height
            schedule = ProductSchedule(lanes, height, vectors, group, depth, packed=True)
            if scratch(product, schedule) * 4 <= machine.stack:
                yield schedule

    @cached_property
    def _transposed(self) -> bool:
        """Whether panels are read across their columns, and transposed."""
        product = self.task
        return transposed_axis(product.chain, product.vectors, product.lane, product.contracted) is not None

    def _crowded(self, schedule: ProductSchedule) -> bool:
        """Whether the lines that scalars are read from are more than a set of the first cache holds."""
        product, machine = self.task, self.target.machine
        if schedule.packed_scalars(product) is not None:
            return False
        weight = asked_weight(product.chain, product.scalars, product.rows)
        if weight is None:
            return False
        _, *inner = weight.axes[weight.axes.index(product.rows[0]) :]
        apart = gcd(product.count(inner) * bits(weight.dtype) // 8, WAY)
        rows = max(2 * schedule.rows, schedule.lanes // schedule.tail if schedule.tail else 0)
        return rows * apart >= machine.l1

    def predict(self, schedule: ProductSchedule) -> float:
        """See `Match`."""
        return seconds([self.load(schedule)], self.target.machine)

    def written(self, schedule: ProductSchedule) -> float:
        """Instructions that make results of a vector of sums."""
        return WRITTEN + self.task.work

    def beside(self, schedule: ProductSchedule) -> int:
        """Bytes of the first cache that a tile's scalars take beside a panel, if those of the next tile are in the same
        lines; 0: they are in others."""
        return 0

    @property
    def pushed_out(self) -> float:
        """Instructions for each vector of a panel that pushes scalars out of the first cache while it passes."""
        return 0.0

    def staged(self, schedule: ProductSchedule) -> float:
        """Instructions that stage what is read as scalars, of a workgroup."""
        return 0.0

    def load(self, schedule: ProductSchedule) -> Load:
        """Products at the rate at which a tile is multiplied, panels at that of copies, results at that of their
        operations, or what memory gives."""
        machine, product = self.target.machine, self.task
        rows, columns = product.count(product.rows), product.sizes[product.lane]
        outer, depth = product.count(product.outer), product.count(product.contracted)
        factors = WordFactors.of(product) if schedule.words else None
        each_turn = factors.words.count if factors is not None else 1
        depth //= each_turn
        wide = -(-(columns - schedule.tail) // schedule.lanes)
        # Vector instructions: per position one for each product, and loads beside them, two at a time. What the first
        # cache does not hold of a panel comes from the second for each tile.
        held = schedule.depth * product.count(product.contracted[1:]) * schedule.vectors * machine.vector_bits // 8
        held //= each_turn
        farther = 1.0 if held <= STAYS * machine.l1 else FARTHER
        beside = self.beside(schedule)
        panels_packed = schedule.packed_panels(product)
        crowded = self._crowded(schedule)
        widened = self._widened(schedule)

        def each(vectors: int) -> float:
            """Of a product in a tile of so many vectors."""
            tile = schedule.rows * vectors
            loads = schedule.rows + vectors * farther
            # Tiles of few products have no time to ask for the next panel.
            foreseen = panels_packed is not None and tile > schedule.rows + vectors
            foreseen = foreseen and (not beside or held + beside <= STAYS * machine.l1)
            busy = factors.words.taken(schedule.rows, vectors) if factors is not None else 1.0
            busy += NARROW * max(0, BREADTH - tile) + widened / schedule.rows
            taken = max(busy, loads / tile, IN_FLIGHT / tile)
            taken += (FORESEEN if foreseen else BESIDE) * loads / tile + self.pushed_out / schedule.rows
            return taken + (CROWDED / vectors if crowded else 0.0)

        each_staged = 6.0 + (0.0 if schedule.words else cost(product.vectors))
        blocks = -(-product.sizes[product.contracted[0]] // schedule.depth)
        groups, panels = -(-rows // schedule.group), -(-wide // schedule.vectors)
        each_written, around = self.written(schedule), self.staged(schedule)

        def unit(group: int, vectors: int, tail: int) -> float:
            """Of a workgroup with so many rows, vectors of a panel, and columns of the tail."""
            tall = -(-group // schedule.rows) * schedule.rows
            products = tall * vectors * depth * each(vectors)
            staged = around
            if panels_packed is None:
                staged += (vectors if panels == 1 else schedule.vectors) * depth * each_staged
            sums = 4.0 * tall * vectors * (blocks if blocks > 1 else 0)
            written = group * vectors * each_written
            if tail:
                # Of each product its own vector is loaded, and of each row a vector is summed, and results are made.
                products += group * tail * depth / schedule.lanes * (1 + 1 / tail) * (2 if crowded else 1)
                sums += group * (SUMMED * tail + 12.0 + product.work)
                staged += tail * depth * 2.0
            return (BEGUN + products + staged + sums + written) * 2 * schedule.lanes / machine.flops

        last_rows, last_vectors = rows - (groups - 1) * schedule.group, wide - (panels - 1) * schedule.vectors
        units = [
            (unit(tall, vectors, tail), outer * bands * count)
            for tall, bands in ((schedule.group, groups - 1), (last_rows, 1))
            for vectors, tail, count in ((schedule.vectors, 0, panels - 1), (last_vectors, schedule.tail, 1))
            if bands and count
        ]
        scattered = panels_packed is None and self._transposed
        moved = product.traffic * (SCATTERED[schedule.lanes] if scattered else 1.0)
        if panels_packed is not None:
            moved += (groups - 1) * panels_packed.operand.bytes  # each group reads all of the weight
            moved -= panels_packed.operand.bytes if panels_packed.nibbles else 0  # of what was counted half
        return Load(tuple(units), moved)

    def _widened(self, schedule: ProductSchedule) -> float:
        """Of a product of vectors, what it takes to make floats of a vector of a panel that holds steps."""
        narrow = self.task.narrow
        if narrow is None or schedule.packed_panels(self.task) is None or schedule.words:
            return 0.0
        less = (narrow.zero != 0) + (narrow.zeros is not None)
        return (HALVED if narrow.nibbles else WIDENED) + LESS * less

    def prepared(self, schedule: ProductSchedule) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        product = self.task
        panels = schedule.packed_panels(product) or schedule.packed_scalars(product)
        packings = (panels, schedule.packed_scales(product), schedule.packed_zeros(product))
        return tuple(packing.preparation for packing in packings if packing is not None)

    def structure(self, schedule: ProductSchedule) -> Structure:
        """See `Match`."""
        product = self.task
        cached = set() if schedule.packed_panels(product) is not None else {*reads(product.vectors)}
        cached |= {*reads(product.scalars)} if not in_place(product.chain, product.scalars) else set()
        panels = schedule.packed_panels(product) or schedule.packed_scalars(product)
        packings = (panels, schedule.packed_scales(product), schedule.packed_zeros(product))
        packed = tuple(packing.weight.name for packing in packings if packing is not None)
        held = schedule.depth < product.sizes[product.contracted[0]]
        return Structure("tiles", cached=tuple(sorted(cached)), packed=packed, held=held)

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: ProductSchedule) -> Writer:
        """See `DenseMatch`."""
        return ProductWriter(code, self.task, sizes, schedule)


def in_one_form(products: Iterable[tuple[ProductMatch, ProductSchedule]], raw: Collection[str] = ()) -> bool:
    """Whether what several products of a kernel read is in one form: prepared alike for all of them, or for none.

    Args:
        raw: what else of the kernel reads as it is.
    """
    forms: dict[str, set[Preparation | None]] = {name: {None} for name in raw}
    for one, own in products:
        prepared = {source: item for item in one.prepared(own) for source in item.sources}
        for value in one.task.chain.inputs:
            forms.setdefault(value.name, set()).add(prepared.get(value.name))
    return all(len(each) == 1 for each in forms.values())


def united(structures: Iterable[Structure]) -> Structure:
    """That of products in one kernel."""
    each = list(structures)
    cached = sorted({name for one in each for name in one.cached})
    packed = sorted({name for one in each for name in one.packed})
    return Structure("tiles", cached=tuple(cached), packed=tuple(packed), held=any(one.held for one in each))


@register
class ProductTemplate(Template[CpuTarget, ProductSchedule]):
    """A sum of products, lanes along an axis of one factor."""

    name: ClassVar[str] = "product"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("rows", "products")

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> ProductMatch | Refusal:
        """See `Template`."""
        try:
            product = product_of(chain)
        except UnsupportedError as error:
            return Refusal(str(error), suits=chain.product and len(chain.reductions) == 1)
        if unknown := [axis for axis in product.contracted[1:] if chain.sizes[axis] is None]:
            return Refusal(f"the sizes of {', '.join(unknown)} are only known at run time")
        match = ProductMatch(product, target)
        return match if match.ranked else Refusal("no panel of it fits into a stack frame")
