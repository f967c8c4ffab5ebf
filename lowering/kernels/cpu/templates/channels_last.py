"""Depthwise convolutions and pooling of images whose channels lie side by side, with what is done to their elements.

::

    for images, rows, channels in parallel:
        for columns of the results, a register tile at a time, lanes along channels:
            for rows, columns of the window:
                tile += vectors of the filter * vectors of the image
            results = the chain's maps of the tile
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product as combinations
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.channels_last import ChannelsLastSchedule, ChannelsLastWriter, column_spans
from covan_mlir.lowering.kernels.cpu.channels_last_roles import channels_last_of
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, check_taps
from covan_mlir.lowering.kernels.cpu.dense import Writer
from covan_mlir.lowering.kernels.cpu.prepared_filter import PreparedFilter
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.window_match import WindowMatch
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.elements import bits

COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
VECTORS = (1, 2, 4)
MOST_WRITTEN = 600
"""Multiply-adds of tiles that are written out."""
WAIT = 8
"""Vectors of a tile at least, for none to wait for the sum before."""
BAND = 4
"""Rows of the results that a workgroup computes at least: a window's rows beyond are read by the next one, too."""
LEAST_UNITS = 8
"""Workgroups for each core, if there is as much to share."""
GRAIN = 2e-6
"""Seconds of work that a workgroup is given at least, where that leaves enough of them."""


@dataclass(frozen=True)
class ChannelsLastMatch(WindowMatch[ChannelsLastSchedule]):
    """A chain that combines a window's elements within one channel.

    Attributes:
        channel: the axis of the channels.
    """

    channel: str = ""

    def legal(self) -> Iterator[ChannelsLastSchedule]:
        """See `DenseMatch`."""
        machine, convolution = self.target.machine, self.task
        lanes = machine.lanes(f"f{max(32, bits(convolution.step.dtype))}")  # halves are computed in single precision
        width, channels = convolution.width, convolution.sizes[self.channel]
        # Tiles of equal widths.
        widths = sorted({-(-width.outside // -(-width.outside // min(n, width.outside))) for n in COLUMNS})
        for columns, vectors in combinations(widths, VECTORS):
            if vectors > 1 and channels < vectors * lanes:
                continue
            factors = min(width.taps, 3) if convolution.scalars is not None else 0
            if vectors * (columns + factors) + 1 > machine.registers and columns * vectors > 1:
                continue
            spans = column_spans(width, columns)
            written = vectors * sum(len(uses) for span in spans for _, uses in span.reads)
            if written > MOST_WRITTEN and columns * vectors > 1:
                continue
            yield self._shared(lanes, columns, vectors)

    def _shared(self, lanes: int, columns: int, vectors: int) -> ChannelsLastSchedule:
        """Enough workgroups for all cores."""
        convolution = self.task
        height = convolution.height.outside if convolution.height is not None else 1
        chunks = -(-convolution.sizes[self.channel] // (lanes * vectors))
        images = convolution.count(convolution.outer) // convolution.sizes[self.channel]
        units = LEAST_UNITS * self.target.machine.cores
        band = min(height, max(BAND, -(-height * images // units)))
        row = self._slots(ChannelsLastSchedule(lanes, columns, vectors, 1, 1)) / self._rate(lanes)
        enough = max(1, int(GRAIN / (row * band)))
        share = -(-units // max(1, images * -(-height // band)))
        together = min(chunks, max(-(-chunks // share), enough))
        return ChannelsLastSchedule(lanes, columns, vectors, together, band)

    def _rate(self, lanes: int) -> float:
        """Vectors per second and core that are multiplied and added."""
        return self.target.machine.flops / (2 * lanes)

    def _slots(self, schedule: ChannelsLastSchedule) -> float:
        """The time of a row of as many channels as a tile has, in that of a vector's multiply-add."""
        convolution, vectors = self.task, schedule.vectors
        factors = convolution.width.taps if convolution.scalars is not None else 0
        rows = convolution.height.taps if convolution.height is not None else 1
        slots = 10.0
        for span in column_spans(convolution.width, schedule.columns):
            tile = span.columns * vectors
            uses = vectors * sum(len(uses) for _, uses in span.reads)
            loads = vectors * (len(span.reads) + factors)
            products = uses * max(1.0, WAIT / tile)
            spent = max(products, loads) + 0.25 * min(products, loads) + 4.0
            slots += (span.stop - span.start) * (rows * spent + (3.0 + convolution.work) * tile + 8.0)
        return slots

    def predict(self, schedule: ChannelsLastSchedule) -> float:
        """Products or loads, whichever take longer, or what memory gives."""
        machine, convolution = self.target.machine, self.task
        height = convolution.height.outside if convolution.height is not None else 1
        channels = convolution.sizes[self.channel]
        chunks = -(-channels // (schedule.lanes * schedule.vectors))
        images = convolution.count(convolution.outer) // channels
        units = images * -(-height // schedule.band) * -(-chunks // schedule.chunks)
        share = -(-units // machine.cores) / units
        computed = images * height * chunks * self._slots(schedule) / self._rate(schedule.lanes) * share
        return max(computed, convolution.traffic / (machine.bandwidth * machine.cores))

    def structure(self, schedule: ChannelsLastSchedule) -> Structure:
        """See `Match`."""
        return self.with_filter_held(Structure("tiles"))

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: ChannelsLastSchedule) -> Writer:
        """See `DenseMatch`."""
        return ChannelsLastWriter(code, self.task, self.channel, sizes, schedule)


def _with_filter(chain: Chain) -> tuple[Convolution, str, PreparedFilter | None]:
    """The roles of a chain's axes, and how a weight's channels are laid side by side ahead of time."""
    convolution, channel = channels_last_of(chain)
    weight = convolution.packable(convolution.scalars)
    if weight is None or channel not in weight.axes:
        return convolution, channel, None
    order = (*convolution.step.over, *convolution.outer)
    axes = tuple(axis for axis in order if axis in weight.axes and axis != channel)
    turned = PreparedFilter(chain, weight, (*axes, channel))
    wide, _ = channels_last_of(turned.chain)
    return replace(wide, scalars=turned.scalars), channel, turned


@register
class ChannelsLastTemplate(Template[CpuTarget, ChannelsLastSchedule]):
    """Windows over one channel at a time, lanes along channels that lie side by side."""

    name: ClassVar[str] = "channels_last"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> ChannelsLastMatch | Refusal:
        """See `Template`."""
        convolution, channel, turned = _with_filter(chain)
        check_taps(convolution.width.taps)  # rows of the window are taken in a loop
        match = ChannelsLastMatch(convolution, target, turned, channel)
        return match if match.ranked else Refusal("its tiles are too long to be written out")
