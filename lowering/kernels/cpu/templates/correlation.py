"""Correlations of two images at a few shifts: gradients of convolutions' weights.

::

    for outer axes, group of rows, vectors of channels in parallel:
        for block of images and positions:
            panel = the shifted image, channels side by side, with what is outside around it
            for rows of the group, shifts, a register tile at a time:
                tile += scalars of the still image * panel, shifted
        results = the chain's maps of the sums, transposed in registers

or the other way round: lanes run along rows, and scalars are of the shifted image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from math import prod
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.correlation import CorrelationWriter
from covan_mlir.lowering.kernels.cpu.correlation_roles import Correlation, correlation_of
from covan_mlir.lowering.kernels.cpu.correlation_schedule import CorrelationLayout, CorrelationSchedule
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, Writer
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import (
    BEGUN,
    BESIDE,
    FARTHER,
    IN_FLIGHT,
    LONGEST_SUM,
    STAYS,
    WRITTEN,
    makespan,
)
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.elements import bits

TILES = (
    *((1, 1), (2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (12, 1)),
    *((2, 2), (3, 2), (4, 2), (6, 2), (8, 2), (12, 2)),
    *((1, 4), (2, 4), (3, 4), (4, 4), (6, 4), (8, 3)),
)
"""Scalars and vectors of register tiles, but for their shifts."""
GROUPS = (16, 32, 64, 128)
BLOCKS = (128, 256, 512, LONGEST_SUM)
"""Positions of a block, about."""
UNROLL = 4
MOST_TAPS = 64
"""Whose places are written out where results are turned."""
TRANSPOSED = 8.0
"""Instructions for each vector of a block that is transposed, with its load and its store."""
COPIED = 3.0
"""The same of one that is copied."""
TURNED = 12.0
"""The same of results."""


@dataclass(frozen=True)
class CorrelationMatch(DenseMatch[CorrelationSchedule]):
    """A chain that is a correlation at a few shifts."""

    task: Correlation
    target: CpuTarget

    def legal(self) -> Iterator[CorrelationSchedule]:
        """See `DenseMatch`."""
        machine, task = self.target.machine, self.task
        element = bits(task.step.dtype)
        lanes = machine.lanes(f"f{element}")
        for along, (scalars, vectors), taps in combinations(("channel", "row"), TILES, self._taps):
            across, down = (task.channels, task.rows) if along == "channel" else (task.rows, task.channels)
            high, wide = (scalars, vectors * prod(taps)) if along == "channel" else (scalars * prod(taps), vectors)
            if scalars > down or vectors > -(-across // lanes) or (high + 1) * wide + 1 > machine.registers:
                continue
            count = -(-down // scalars)
            groups = dict.fromkeys(min(-(-count // -(-down // most)) * scalars, down) for most in GROUPS)
            for group, (images, height) in combinations(groups, self._blocks):
                schedule = CorrelationSchedule(lanes, along, scalars, vectors, taps, group, images, height, UNROLL)
                if CorrelationLayout(task, schedule).elements * element // 8 <= machine.stack:
                    yield schedule

    @property
    def _taps(self) -> list[tuple[int, ...]]:
        """Shifts of register tiles: one, all along the last dimension, or all along all."""
        counts = [slides.taps for slides in self.task.slides]
        ones = [1] * len(counts)
        return list(dict.fromkeys([tuple(ones), (*ones[:-1], counts[-1]), tuple(counts)]))

    @property
    def _blocks(self) -> list[tuple[int, int]]:
        """Images and positions along the first dimension of blocks, all of one size."""
        task = self.task
        high, beside = task.slides[0].positions, prod(slides.positions for slides in task.slides[1:])
        blocks: list[tuple[int, int]] = []
        for most in BLOCKS:
            height = max(n for n in range(1, high + 1) if high % n == 0 and (n == 1 or n * beside <= most))
            images = 1
            if height == high:
                each = high * beside
                images = max(
                    n for n in range(1, task.images + 1) if task.images % n == 0 and (n == 1 or n * each <= most)
                )
            blocks.append((images, height))
        return list(dict.fromkeys(blocks))

    def predict(self, schedule: CorrelationSchedule) -> float:
        """Products at the rate at which a tile is multiplied, panels at that of transposed blocks, or what memory
        gives."""
        machine, task, layout = self.target.machine, self.task, CorrelationLayout(self.task, schedule)
        lanes, own = schedule.lanes, len(layout.tile_taps)
        last = schedule.taps[-1]
        if layout.channel_lanes:
            # Where positions follow each other, one shift reads what another one has read.
            again = min(schedule.unroll * last, schedule.unroll + last - 1) / (schedule.unroll * last)
            again = again if task.slides[-1].stride == task.slides[-1].dilation == 1 else 1.0
            high, wide, loaded = schedule.scalars, schedule.vectors * own, schedule.vectors * own * again
        else:
            high, wide = schedule.scalars * own, schedule.vectors
            loaded = float(wide)
        tile = high * wide
        held = (layout.panel + layout.planes) * bits(task.step.dtype) // 8
        loads = high + loaded * (1.0 if held <= STAYS * machine.l1 else FARTHER)
        each = max(tile, loads, IN_FLIGHT) + BESIDE * loads + 1.0 / schedule.unroll
        tiles = layout.tiles * layout.tap_tiles
        block = tiles * (layout.steps * each + 3.0 * tile + 12.0) + self._staged(layout)
        results = schedule.group * task.taps * schedule.vectors
        written = results * (TURNED + WRITTEN + task.work)
        rate = machine.flops / (2 * lanes)
        unit = (BEGUN + layout.blocks * block + written + 2.0 * layout.elements / lanes) / rate
        computed = makespan([(unit, layout.units)], machine.cores)
        return max(computed, self._moved(layout)) + BESIDE * min(computed, self._moved(layout))

    def _staged(self, layout: CorrelationLayout) -> float:
        """Instructions that fill scratch for a block."""
        schedule, lanes = layout.schedule, layout.schedule.lanes
        wide = self.task.slides[-1]
        if layout.channel_lanes:
            return schedule.images * schedule.vectors * layout.plane * TRANSPOSED
        rows = layout.plane / layout.extents[-1] * -(-min(layout.extents[-1], wide.inside) // lanes)
        return schedule.images * (
            schedule.group * rows * (COPIED + 2.0) + schedule.vectors * prod(layout.positions) * TRANSPOSED
        )

    def _moved(self, layout: CorrelationLayout) -> float:
        """Seconds that memory takes, and the last cache, from which workgroups read again what others have read."""
        task, machine = self.task, self.target.machine
        across, down = task.shifted.name, task.still.name
        if not layout.channel_lanes:
            across, down = down, across
        sizes = [task.count(task.chain.values[name].axes) * bits(task.step.dtype) // 8 for name in (across, down)]
        again = sum(
            size * (sharing - 1)
            for size, sharing in zip(sizes, (layout.groups, layout.panels), strict=True)
            if size > machine.l2 // 2
        )
        cores = min(machine.cores, layout.units)
        return task.traffic / (machine.bandwidth * cores) + again / (machine.cache_bandwidth * cores)

    def structure(self, schedule: CorrelationSchedule) -> Structure:
        """See `Match`."""
        names = (
            (self.task.shifted.name,) if schedule.along == "channel" else (self.task.shifted.name, self.task.still.name)
        )
        return Structure("tiles", cached=tuple(sorted({*names})), held=True)

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: CorrelationSchedule) -> Writer:
        """See `DenseMatch`."""
        return CorrelationWriter(code, self.task, sizes, schedule)


@register
class CorrelationTemplate(Template[CpuTarget, CorrelationSchedule]):
    """A sum of products of two images over all positions, at a few shifts of one."""

    name: ClassVar[str] = "correlation"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> CorrelationMatch | Refusal:
        """See `Template`."""
        correlation = correlation_of(chain)
        if correlation.taps > MOST_TAPS:
            return Refusal(f"its {correlation.taps} shifts would be written out, and {MOST_TAPS} are the most")
        match = CorrelationMatch(correlation, target)
        return match if match.ranked else Refusal("no panel of it fits into a stack frame")
