"""Depthwise convolutions and pooling, with what is done to their elements, without staging.

::

    for channels, bands of rows in parallel:
        for rows and columns of the band, a register tile at a time:
            tile += scalars of the filter * vectors of the input, read with masks
        results = the chain's maps of the sums
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.convolution_roles import MOST_TAPS, check_one_channel, check_taps
from covan_mlir.lowering.kernels.cpu.dense import Writer
from covan_mlir.lowering.kernels.cpu.depthwise import DepthwiseSchedule, DepthwiseWriter, RowSpan, loops, row_spans
from covan_mlir.lowering.kernels.cpu.prepared_filter import convolution_with_filter
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.window_columns import MOST_SHUFFLED, leader
from covan_mlir.lowering.kernels.cpu.window_match import WindowMatch
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.elements import bits

MOST_WRITTEN = 2000
"""Instructions of tiles that are written out, of all kinds of rows together; of small ones the compiler takes less."""
HEIGHTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
VECTORS = (1, 2, 4)
GRAIN = 2e-6
"""Seconds of work that a workgroup is given at least, where that leaves enough of them."""
LEAST_UNITS = 8
"""Workgroups for each core, if there is as much to share."""


@dataclass(frozen=True)
class DepthwiseMatch(WindowMatch[DepthwiseSchedule]):
    """A chain that combines a window's elements within one channel."""

    def legal(self) -> Iterator[DepthwiseSchedule]:
        """See `DenseMatch`."""
        machine, convolution = self.target.machine, self.task
        lanes = machine.lanes(f"f{max(32, bits(convolution.step.dtype))}")  # halves are computed in single precision
        high = convolution.height.outside if convolution.height is not None else 1
        wide = -(-convolution.width.outside // lanes)
        channels = convolution.count(convolution.outer)
        # Tiles of equal heights.
        heights = sorted({-(-high // -(-high // min(height, high))) for height in HEIGHTS})
        for rows, vectors in combinations(heights, sorted({min(n, wide) for n in VECTORS})):
            if rows * vectors + 2 * vectors + 8 > machine.registers and rows * vectors > 1:
                continue
            if convolution.taps > MOST_TAPS and convolution.height and not loops(convolution.height, rows):
                continue
            spans = row_spans(convolution, rows)
            if self._written(spans, vectors, wide) > MOST_WRITTEN and rows * vectors > 1:
                continue
            tiles = spans[-1].stop
            one = self._slots(DepthwiseSchedule(lanes, rows, vectors, 1, tiles)) / self._rate(lanes)
            units = LEAST_UNITS * machine.cores
            if channels >= units:
                together = max(1, min(int(GRAIN / one), channels // units))
                yield DepthwiseSchedule(lanes, rows, vectors, together, tiles)
            else:
                yield DepthwiseSchedule(lanes, rows, vectors, 1, -(-tiles // min(tiles, -(-units // channels))))

    def _written(self, spans: list[RowSpan], vectors: int, wide: int) -> int:
        """Instructions of all tiles that are written out."""
        width = self.task.width
        reads = sum(span.written[0] for span in spans)
        uses = sum(span.written[1] for span in spans)
        bodies = 1 if wide % vectors == 0 else 2
        shuffles = min(width.stride, MOST_SHUFFLED) - 1
        return bodies * vectors * (width.taps * (uses + reads * shuffles) + reads * self._loads * (shuffles + 1))

    @property
    def _loads(self) -> int:
        """Columns of the window that are loaded for themselves."""
        width = self.task.width
        return len({leader(width, tap) for tap in range(width.taps)})

    def _rate(self, lanes: int) -> float:
        """Vectors per second and core that are multiplied and added."""
        return self.target.machine.flops / (2 * lanes)

    @property
    def _turns(self) -> int:
        """How often something is multiplied for a row of the window."""
        return self.task.width.taps

    @property
    def _read(self) -> float:
        """The time of what is read for one of these turns, in that of a vector's multiply-add."""
        width = self.task.width
        # Most of what is read crosses cache lines, and of what lies a stride apart more is read than is used.
        shared = self._loads / width.taps
        if width.stride == 1:
            return 2.0
        return 2.0 * width.stride * shared + 1.0 if width.stride <= MOST_SHUFFLED else 24.0

    def _taken(self, rows: int, vectors: int) -> float:
        """The time of one of these turns in a register tile, in that of a vector's multiply-add."""
        return 1.0

    def _slots(self, schedule: DepthwiseSchedule) -> float:
        """The time of a channel, in that of a vector's multiply-add."""
        convolution, read = self.task, self._read
        wide = -(-convolution.width.outside // schedule.lanes)
        slots = 20.0
        for span in row_spans(convolution, schedule.rows):
            uses = span.uses * self._turns
            reads = span.rows_read * self._turns
            blocks = -(-wide // schedule.vectors)
            loads = reads * wide * read + uses * blocks
            products = uses * wide * max(self._taken(span.rows, schedule.vectors), 6 / (span.rows * schedule.vectors))
            masks = 2.0 * wide * self._turns
            slots += (span.stop - span.start) * (
                max(products, loads)
                + 0.25 * min(products, loads)
                + masks
                + (3.0 + convolution.work) * span.rows * wide
                + 8.0 * blocks
            )
        # What is written out must be fetched, too.
        return slots * (1.0 + self._written(row_spans(convolution, schedule.rows), schedule.vectors, wide) / 2e4)

    def predict(self, schedule: DepthwiseSchedule) -> float:
        """Products or loads, whichever take longer, or what memory gives."""
        machine, convolution = self.target.machine, self.task
        channels = convolution.count(convolution.outer)
        tiles = row_spans(convolution, schedule.rows)[-1].stop
        units = -(-channels // schedule.channels) * -(-tiles // schedule.band)
        share = -(-units // machine.cores) / units
        computed = channels * self._slots(schedule) / self._rate(schedule.lanes) * share
        return max(computed, convolution.traffic / (machine.bandwidth * machine.cores))

    def structure(self, schedule: DepthwiseSchedule) -> Structure:
        """See `Match`."""
        return self.with_filter_held(Structure("tiles"))

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: DepthwiseSchedule) -> Writer:
        """See `DenseMatch`."""
        return DepthwiseWriter(code, self.task, sizes, schedule)


@register
class DepthwiseTemplate(Template[CpuTarget, DepthwiseSchedule]):
    """Windows over one channel at a time, lanes along the columns of the results."""

    name: ClassVar[str] = "depthwise"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> DepthwiseMatch | Refusal:
        """See `Template`."""
        convolution, widened = convolution_with_filter(chain)
        check_one_channel(convolution)
        if not target.machine.masked:
            return Refusal("the machine reads what is at the edges element by element")
        if convolution.height is None or convolution.width.taps > MOST_TAPS:
            check_taps(convolution.taps)
        match = DepthwiseMatch(convolution, target, widened)
        return match if match.ranked else Refusal("its tiles are too long to be written out")
