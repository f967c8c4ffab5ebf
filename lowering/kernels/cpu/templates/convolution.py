"""Direct convolutions and pooling, with what is done to their elements: strided, padded, dilated, grouped, depthwise.

::

    for outer axes, group of output channels, band of rows in parallel:
        for block of input channels:
            planes = the rows that are needed, in scratch, with what is outside around them
            for output channels of the group, positions of the band, a register tile at a time:
                tile += scalars of the filter * planes, shifted by each tap
        results = the chain's maps of the sums
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product as combinations
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import reads
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.scalars import is_float
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.convolution import ConvolutionWriter
from covan_mlir.lowering.kernels.cpu.convolution_roles import (
    check_taps,
    rows_are_one,
)
from covan_mlir.lowering.kernels.cpu.convolution_schedule import ConvolutionSchedule, Footprint
from covan_mlir.lowering.kernels.cpu.dense import DIRECT, Writer
from covan_mlir.lowering.kernels.cpu.packed_weight import PADDING
from covan_mlir.lowering.kernels.cpu.planes import PlaneLayout
from covan_mlir.lowering.kernels.cpu.prepared_filter import convolution_with_filter
from covan_mlir.lowering.kernels.cpu.register_tile import register_tiles
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import (
    BEGUN,
    BESIDE,
    BREADTH,
    FARTHER,
    IN_FLIGHT,
    LONGEST_SUM,
    NARROW,
    STAYS,
    WRITTEN,
)
from covan_mlir.lowering.kernels.cpu.window_match import WindowMatch
from covan_mlir.lowering.kernels.kernel import Preparation, Refusal
from covan_mlir.lowering.kernels.reductions.profitability import EXPOSED
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.elements import bits

TILES = (
    (8, 3),
    (6, 4),
    (12, 2),
    (4, 4),
    (4, 6),
    (8, 2),
    (8, 1),
    (4, 2),
    (4, 1),
    (2, 8),
    (2, 4),
    (1, 12),
    (1, 8),
    (1, 4),
)
"""Output channels and vectors of positions of register tiles."""
HEIGHTS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 28)
WIDTHS = (32, 64, 128, 256)
DEPTHS = (8, 16, 32, 64, 128, 256, 512, LONGEST_SUM)
GROUPS = (16, 32, 64, 128)
LARGEST_GROUPS = (256, 512, 1024)
"""Of sums that are whole at once: none wait in scratch, and planes are staged less often."""
MOST_APART = 7
"""Columns of a window that may have planes of their own: as often is an element staged."""
TILE_BEGUN = 250.0
"""Instructions in whose time a tile of a single tap begins: its filters' rows, few and far apart, come from the second
cache."""
MIXED = 1.04
"""Of the time of tiles of one width, that of tiles of two: twice as much is written out."""
LEAST_SAVED = 0.02
"""Of the positions of a row, that are otherwise computed for nothing."""


def staging(layout: PlaneLayout, lanes: int) -> float:
    """Instructions that stage the planes of a channel."""
    width = layout.convolution.width
    # Of a part of a row it is not known beforehand where it leaves the input.
    each_vector = 3.0 * width.stride + (4.0 if layout.width < width.outside else 0.0)
    return len(layout.phases) * layout.rows * (4.0 + each_vector * -(-layout.pitch // lanes))


@dataclass(frozen=True)
class ConvolutionMatch(WindowMatch[ConvolutionSchedule]):
    """A chain that is a convolution.

    Attributes:
        words: its channels are multiplied a word at a time.
    """

    words: bool = False

    def legal(self) -> Iterator[ConvolutionSchedule]:
        """See `DenseMatch`."""
        machine, convolution = self.target.machine, self.task
        element = max(32, bits(convolution.step.dtype))  # halves are computed, and staged, in single precision
        lanes = machine.lanes(f"f{element}")
        rows, height = convolution.filters, convolution.height
        each = self._each
        channels = -(-convolution.sizes[convolution.contracted[0]] // each) * each if convolution.contracted else 1
        most = max(each, LONGEST_SUM // (convolution.taps * convolution.beside))
        if not is_float(convolution.step.dtype):  # sums are exact, however long
            most = channels
        high = height.outside if height is not None else 1
        wide = convolution.width.outside
        tiles = [tile for tile in register_tiles(machine.registers, TILES) if tile[0] < 2 * rows]
        shapes = combinations(
            sorted({-(-high // -(-high // min(h, high))) for h in HEIGHTS}),
            sorted({-(-wide // -(-wide // min(w, wide))) for w in (*WIDTHS, wide)}),
            sorted({-(-channels // -(-channels // min(d, most, channels)) // each) * each for d in (*DEPTHS, most)}),
        )
        # Bands, blocks and groups of equal sizes.
        for (longest, widest, deepest), (tall, vectors) in combinations(shapes, tiles):
            count = -(-rows // tall)
            packed = count * tall <= (1 + PADDING) * rows and (
                self.words or (self.prepared_filter is None and convolution.filter is not None)
            )
            if self.words and not packed:
                continue
            apart = (False, True) if widest == wide and deepest == channels and self._apart else (False,)
            largest_groups = (*GROUPS, *LARGEST_GROUPS) if deepest == channels else GROUPS
            for group in dict.fromkeys(-(-count // -(-rows // largest)) * tall for largest in largest_groups):
                for own in apart:
                    schedule = ConvolutionSchedule(
                        lanes, tall, vectors, group, longest, widest, deepest, own, packed, self.words
                    )
                    if self._footprint(schedule).elements * element // 8 <= machine.stack:
                        yield schedule

    @property
    def _each(self) -> int:
        """Channels that are multiplied at a time."""
        words = self.task.words if self.words else None
        return words.words.count if words is not None else 1

    @cached_property
    def _layout(self) -> Callable[[int, int, bool], PlaneLayout]:
        """Of planes of so many rows and columns, apart or not: many schedules share one."""
        return cache(partial(PlaneLayout, self.task))

    @cached_property
    def _footprint(self) -> Callable[[ConvolutionSchedule], Footprint]:
        """That of a schedule, which is asked for twice: whether it is legal, and how long it takes."""
        return cache(
            lambda schedule: Footprint(
                self.task, schedule, self._layout(schedule.height, schedule.width, schedule.apart)
            )
        )

    @cached_property
    def _apart(self) -> bool:
        """Whether columns of the window may have planes of their own: where that saves positions, and results are
        made of registers."""
        width = self.task.width
        saves = 1 < width.taps <= MOST_APART and width.halo > LEAST_SAVED * width.outside
        saves = saves or width.taps == 1  # of one column, planes are its own in any case
        return saves and self.task.work <= DIRECT and rows_are_one(self.task)

    def predict(self, schedule: ConvolutionSchedule) -> float:
        """Products at the rate at which a tile is multiplied, planes at that of copies, or what memory gives."""
        machine, convolution = self.target.machine, self.task
        footprint = self._footprint(schedule)
        layout, taps, words = footprint.layout, self.task.taps, footprint.words
        each_channel = self._each
        rows, channels = convolution.filters, -(-convolution.channels // each_channel)
        groups = -(-rows // schedule.group)
        tall = -(-min(rows, schedule.group) // schedule.rows) * schedule.rows
        height = convolution.height
        bands = -(-height.outside // schedule.height) if height is not None else 1
        bands *= -(-convolution.width.outside // schedule.width)
        # Loads that cross cache lines take two turns, and what the first cache does not hold comes from the second.
        load = 1.0 if taps == 1 or (schedule.apart and layout.pitch % schedule.lanes == 0) else 1.9
        if footprint.channels * layout.channel * 4 > STAYS * machine.l1:
            load *= FARTHER
        products = 0.0
        for span in footprint.spans:
            held = schedule.rows * span.vectors
            loads = schedule.rows + span.vectors * load
            busy = words.words.taken(schedule.rows, span.vectors) if words is not None else 1.0
            each = max(busy, loads / held, 8 / held)
            if taps == 1:
                each = max(busy + NARROW * max(0, BREADTH - held), loads / held, IN_FLIGHT / held)
                each += BESIDE * loads / held
            products += tall * (span.stop - span.start) * channels * taps * each
        if taps == 1:
            tiles = sum((span.stop - span.start) / span.vectors for span in footprint.spans) * tall / schedule.rows
            products += TILE_BEGUN * tiles * footprint.blocks
        products *= 1.0 if len(footprint.spans) == 1 else MIXED
        vectors = -(-schedule.width // schedule.lanes)
        staged = channels * each_channel * staging(layout, schedule.lanes)
        sums = 0.0 if footprint.direct else 4.0 * tall * footprint.spans[-1].stop * footprint.blocks
        lines = schedule.height * vectors if not footprint.direct else footprint.spans[-1].stop
        written = (WRITTEN + convolution.work) * min(rows, schedule.group) * lines
        units = convolution.batch * groups * bands
        share = -(-units // machine.cores) / units
        rate = machine.flops / (2 * schedule.lanes)
        computed = units * (BEGUN + products + staged + sums + written) / rate * share
        # Of all groups' filters, what the second cache does not hold comes from the last one for each band.
        filters = 4 * min(rows, schedule.group) * channels * taps  # a pair is as long as a number
        again = (bands - 1) * filters if filters > STAYS * machine.l2 else 0
        far = filters * groups if filters * groups > STAYS * machine.l2 * machine.cores else 0
        moved = again / machine.cache_bandwidth * groups * convolution.batch * share
        moved += convolution.traffic / (machine.bandwidth * machine.cores)
        waited = far / (machine.bandwidth * machine.cores)  # nobody asks for rows of filters before they are read
        return max(computed, moved) + (EXPOSED * min(computed, moved) if again else 0.0) + waited

    def structure(self, schedule: ConvolutionSchedule) -> Structure:
        """See `Match`."""
        footprint = self._footprint(schedule)
        cached = {self.task.window.name}
        if footprint.scalars and self.task.scalars is not None:
            cached |= reads(self.task.scalars)
        packed = () if footprint.packing is None else (footprint.packing.weight.name,)
        return self.with_filter_held(
            Structure("tiles", cached=tuple(sorted(cached)), packed=packed, held=footprint.blocks > 1)
        )

    def prepared(self, schedule: ConvolutionSchedule) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        footprint = self._footprint(schedule)
        if footprint.packing is None:
            return super().prepared(schedule)
        offsets = footprint.offsets
        return (footprint.packing.preparation, *(() if offsets is None else (offsets.preparation,)))

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: ConvolutionSchedule) -> Writer:
        """See `DenseMatch`."""
        return ConvolutionWriter(code, self.task, sizes, schedule)


@register
class ConvolutionTemplate(Template[CpuTarget, ConvolutionSchedule]):
    """A direct convolution or pooling, lanes along the positions of its results."""

    name: ClassVar[str] = "convolution"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> ConvolutionMatch | Refusal:
        """See `Template`."""
        convolution, widened = convolution_with_filter(chain)
        check_taps(len(PlaneLayout(convolution, 1, 1).taps))
        match = ConvolutionMatch(convolution, target, widened)
        return match if match.ranked else Refusal("no planes of it fit into a stack frame")
