"""Depthwise convolutions and pooling of narrow images, with what is done to their elements: lanes along channels.

::

    for channels in parallel, as many as there are lanes at a time:
        plane, taps = the image and the filter, transposed in registers
        for rows, taps along them:
            row += vectors of the filter * vectors of the plane
        results = the chain's maps of the sums, transposed in registers
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Read, reads
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.channel_lanes import (
    ChannelLanesSchedule,
    ChannelLanesWriter,
    Footprint,
    columns_read,
)
from covan_mlir.lowering.kernels.cpu.convolution_roles import (
    check_one_channel,
    check_taps,
    rows_are_one,
)
from covan_mlir.lowering.kernels.cpu.dense import Writer
from covan_mlir.lowering.kernels.cpu.prepared_filter import convolution_with_filter
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.window_match import WindowMatch
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.elements import bits

MOST_WRITTEN = 300
"""Multiply-adds of a row of the window that are written out."""
GRAIN = 2e-6
"""Seconds of work that a workgroup is given at least, where that leaves enough of them."""
LEAST_UNITS = 8
"""Workgroups for each core, if there is as much to share."""
TRANSPOSED = 8.0
"""Instructions for each vector of a block that is transposed, with its load and its store."""


@dataclass(frozen=True)
class ChannelLanesMatch(WindowMatch[ChannelLanesSchedule]):
    """A chain that combines a window's elements within one channel."""

    @property
    def _lanes(self) -> int:
        return self.target.machine.lanes(f"f{max(32, bits(self.task.step.dtype))}")  # halves are computed in single

    def legal(self) -> Iterator[ChannelLanesSchedule]:
        """See `DenseMatch`."""
        machine, convolution, lanes = self.target.machine, self.task, self._lanes
        width = convolution.width
        if width.outside + width.taps + 2 > machine.registers:
            return
        if sum(len(uses) for _, uses in columns_read(width)) > MOST_WRITTEN:
            return
        footprint = Footprint(convolution, lanes)
        if footprint.elements * max(32, bits(convolution.step.dtype)) // 8 > machine.stack:
            return
        chunks = -(-convolution.count(convolution.outer) // lanes)
        together = min(int(GRAIN / self._seconds()), chunks // (LEAST_UNITS * machine.cores))
        yield ChannelLanesSchedule(lanes, max(1, together))

    def _seconds(self) -> float:
        """Of a chunk of channels."""
        convolution, lanes = self.task, self._lanes
        footprint, width, height = Footprint(convolution, lanes), convolution.width, convolution.height
        columns = columns_read(width)
        products = sum(len(uses) for _, uses in columns)
        loads = len(columns) + (width.taps if convolution.scalars is not None else 0)
        rows = 1
        if height is not None:
            places = range(height.offset, height.offset + height.stride * height.outside, height.stride)
            rows = sum(0 <= top + height.dilation * r < height.inside for top in places for r in range(height.taps))
        one = max(products, loads, products * 8 / width.outside) + 10.0
        lines = footprint.result // width.outside
        written = lanes * (8.0 + -(-footprint.result // lanes) * (4.0 + convolution.work))
        spent = rows * one + lines * (10.0 + width.outside) + footprint.blocks * lanes * TRANSPOSED + written
        return spent * 2 * lanes / self.target.machine.flops

    def predict(self, schedule: ChannelLanesSchedule) -> float:
        """Products, transpositions and what is done to the results, or what memory gives."""
        machine, convolution = self.target.machine, self.task
        chunks = -(-convolution.count(convolution.outer) // schedule.lanes)
        units = -(-chunks // schedule.chunks)
        share = -(-units // machine.cores) / units
        computed = chunks * self._seconds() * share
        return max(computed, convolution.traffic / (machine.bandwidth * machine.cores))

    def structure(self, schedule: ChannelLanesSchedule) -> Structure:
        """See `Match`."""
        convolution = self.task
        filters = reads(convolution.scalars) if convolution.scalars is not None else frozenset[str]()
        return self.with_filter_held(Structure("tiles", cached=tuple(sorted({convolution.window.name, *filters}))))

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: ChannelLanesSchedule) -> Writer:
        """See `DenseMatch`."""
        return ChannelLanesWriter(code, self.task, sizes, schedule)


@register
class ChannelLanesTemplate(Template[CpuTarget, ChannelLanesSchedule]):
    """Windows over one channel at a time, lanes along channels."""

    name: ClassVar[str] = "channel_lanes"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> ChannelLanesMatch | Refusal:
        """See `Template`."""
        convolution, widened = convolution_with_filter(chain)
        check_one_channel(convolution)
        if not target.machine.masked:
            return Refusal("the machine reads what is at the edges element by element")
        taps = tuple(slides.tap for slides in convolution.slides if slides.tap is not None)
        if isinstance(convolution.scalars, Read):
            axes = convolution.chain.values[convolution.scalars.name].axes
            if axes[len(axes) - len(taps) :] != taps or not {*axes[: len(axes) - len(taps)]} <= {*convolution.outer}:
                return Refusal("its filter does not have the window's positions last")
        if not rows_are_one(convolution):
            return Refusal("what is done to its sums tells rows apart")
        check_taps(convolution.taps)
        match = ChannelLanesMatch(convolution, target, widened)
        return match if match.ranked else Refusal("registers do not hold a row of its results")
