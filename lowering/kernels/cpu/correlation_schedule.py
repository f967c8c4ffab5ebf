"""How a correlation is laid out: its register tile, blocks and scratch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from math import prod

from covan_mlir.lowering.kernels.cpu.correlation_roles import Correlation
from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule


@dataclass(frozen=True)
class CorrelationSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        along: what lanes run along: ``channel`` of the shifted image, or ``row`` of the still one. The other image is
            read as scalars.
        scalars: positions of a register tile on the axis that is not the lanes'.
        vectors: of a register tile, along the lanes' axis.
        taps: shifts of a register tile, along each dimension; they are its vectors' or its scalars', whose image is
            shifted.
        group: positions on the axis that is not the lanes' of a workgroup.
        images: of a block.
        height: positions of a block along the first dimension.
        unroll: positions along the last dimension that are written out.
    """

    along: str
    scalars: int
    vectors: int
    taps: tuple[int, ...]
    group: int
    images: int
    height: int
    unroll: int


@dataclass(frozen=True)
class CorrelationLayout:
    """A correlation with a schedule: how far its loops go, and what lies where in scratch."""

    task: Correlation
    schedule: CorrelationSchedule

    @property
    def channel_lanes(self) -> bool:
        """Whether lanes run along the channels of the shifted image."""
        return self.schedule.along == "channel"

    @property
    def across(self) -> int:
        """Positions on the axis of the lanes."""
        return self.task.channels if self.channel_lanes else self.task.rows

    @property
    def down(self) -> int:
        """Positions on the other one."""
        return self.task.rows if self.channel_lanes else self.task.channels

    @property
    def width(self) -> int:
        """Positions of a workgroup along the lanes' axis."""
        return self.schedule.vectors * self.schedule.lanes

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Of a block, along each dimension."""
        return (self.schedule.height, *(slides.positions for slides in self.task.slides[1:]))

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """What a block reads of the shifted image, along each dimension."""
        pairs = zip(self.task.slides, self.positions, strict=True)
        return tuple(slides.extent(count) for slides, count in pairs)

    @property
    def banded(self) -> bool:
        """Whether a block is a part of an image."""
        return self.schedule.height < self.task.slides[0].positions

    @property
    def blocks(self) -> int:
        """Of what is summed over."""
        bands = self.task.slides[0].positions // self.schedule.height
        return self.task.images // self.schedule.images * bands

    @property
    def steps(self) -> int:
        """Products of a block for a sum."""
        return self.schedule.images * prod(self.positions)

    @cached_property
    def tile_taps(self) -> tuple[tuple[int, ...], ...]:
        """The shifts of a register tile, in order."""
        return tuple(combinations(*map(range, self.schedule.taps)))

    @property
    def tap_tiles(self) -> int:
        """Register tiles that it takes for all shifts."""
        return self.task.taps // len(self.tile_taps)

    @property
    def accumulators(self) -> int:
        """Vectors of a register tile."""
        return self.schedule.scalars * self.schedule.vectors * len(self.tile_taps)

    @property
    def tiles(self) -> int:
        """Register tiles down a group."""
        return -(-self.schedule.group // self.schedule.scalars)

    @property
    def groups(self) -> int:
        """Of workgroups, down."""
        return -(-self.down // self.schedule.group)

    @property
    def panels(self) -> int:
        """Of workgroups, across."""
        return -(-self.across // self.width)

    @property
    def units(self) -> int:
        """Workgroups."""
        return self.task.count(self.task.outer) * self.groups * self.panels

    @property
    def plane(self) -> int:
        """Positions of the shifted image in a block, of one image and channel."""
        return prod(self.extents)

    # Elements of scratch

    @property
    def panel(self) -> int:
        """What is read as vectors."""
        each = self.plane if self.channel_lanes else prod(self.positions)
        return self.schedule.images * each * self.width

    @property
    def planes(self) -> int:
        """What is read as scalars, with room for a vector behind the last one."""
        if self.channel_lanes:
            return 0
        elements = self.schedule.images * self.schedule.group * self.plane
        return (-(-elements // self.schedule.lanes) + 1) * self.schedule.lanes

    @property
    def sums(self) -> int:
        """Of all register tiles."""
        return self.tiles * self.tap_tiles * self.accumulators * self.schedule.lanes

    @property
    def pitch(self) -> int:
        """From the results of a lane to those of the next one."""
        return self.task.taps if self.channel_lanes else self.schedule.group * self.task.taps + self.schedule.lanes

    @property
    def turned(self) -> int:
        """The results of a vector of lanes, those of a lane side by side."""
        return self.schedule.lanes * (self.pitch + 1)

    @property
    def elements(self) -> int:
        """All of it."""
        return self.panel + self.planes + self.sums + self.turned
