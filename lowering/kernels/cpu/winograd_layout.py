"""How a convolution by Winograd's minimal filtering is laid out on a CPU: tiles, blocks of them, and what lies where.

::

    parts[block, point, tile, channel]                    # of the input, transformed
    filters[panel, point, channel, output channel]        # of the filter, transformed ahead of time
    products[point, tile, output channel]                 # of a block and a panel, in scratch
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, Sliding
from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule
from covan_mlir.lowering.kernels.cpu.winograd_algebra import TAPS, Algorithm


@dataclass(frozen=True)
class WinogradSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        size: results of a tile in each dimension.
        rows, vectors: of the register tile: tiles, vectors of output channels; a panel has as many vectors.
        down, across: tiles of a block.
        fused: whether a workgroup transforms the input of its block itself, or finds it transformed by a dispatch
            before.
    """

    size: int
    rows: int
    vectors: int
    down: int
    across: int
    fused: bool


@dataclass(frozen=True)
class WinogradLayout:
    """Where what lies, in elements."""

    convolution: Convolution
    schedule: WinogradSchedule

    @cached_property
    def algorithm(self) -> Algorithm:
        """Of the tiles."""
        return Algorithm(self.schedule.size, self.stride)

    @property
    def stride(self) -> int:
        """Of the filter, in both dimensions."""
        return self.width.stride

    @cached_property
    def points(self) -> int:
        """Products of a tile, channel and output channel."""
        return self.algorithm.span**2

    @property
    def height(self) -> Sliding:
        """Along which tiles lie below each other."""
        assert self.convolution.height is not None
        return self.convolution.height

    @property
    def width(self) -> Sliding:
        """Along which they lie side by side."""
        return self.convolution.width

    @cached_property
    def blocks(self) -> tuple[int, int]:
        """Down and across."""
        size, schedule = self.schedule.size, self.schedule
        return (
            -(-self.height.outside // (size * schedule.down)),
            -(-self.width.outside // (size * schedule.across)),
        )

    @cached_property
    def tiles(self) -> int:
        """Of a block."""
        return self.schedule.down * self.schedule.across

    @cached_property
    def channels(self) -> int:
        """Of the input."""
        return self.convolution.count(self.convolution.contracted)

    @cached_property
    def filters(self) -> int:
        """Output channels."""
        return self.convolution.count(self.convolution.rows)

    @cached_property
    def lines(self) -> int:
        """Vectors of channels."""
        return -(-self.channels // self.schedule.lanes)

    @cached_property
    def pitch(self) -> int:
        """From a transformed tile to the next one: its channels, with those that fill the last vector. Where there is
        room, not a power of 2, which would have tiles drive each other out of the first cache."""
        return (self.lines if self.schedule.fused else self.lines | 1) * self.schedule.lanes

    @cached_property
    def asks_next(self) -> bool:
        """Whether register tiles ask for the filters of the next point, a line at each channel: where there are enough
        of them to ask for all of its lines. Else they ask for those of a few channels ahead."""
        return -(-self.tiles // self.schedule.rows) >= self.schedule.vectors

    @cached_property
    def panel(self) -> int:
        """Output channels of a panel."""
        return self.schedule.vectors * self.schedule.lanes

    @cached_property
    def panels(self) -> int:
        """That hold all output channels."""
        return -(-self.filters // self.panel)

    @cached_property
    def image(self) -> tuple[int, int]:
        """Rows and columns of the input that a block is made of."""
        size, schedule = self.schedule.size, self.schedule
        down, across = ((size * tiles - 1) * self.stride + TAPS for tiles in (schedule.down, schedule.across))
        return down, across

    @cached_property
    def parts_of_point(self) -> int:
        """Elements from a block's transformed input for a point to that for the next one."""
        return self._odd(self.tiles * self.pitch)

    @cached_property
    def parts(self) -> int:
        """Elements of a block's transformed input."""
        return self.points * self.parts_of_point

    @cached_property
    def products_of_point(self) -> int:
        """Elements from the products of a point to those of the next one."""
        return self._odd(self.tiles * self.panel)

    def _odd(self, elements: int) -> int:
        """An odd number of vectors: what is read of all points together is in different sets of a cache."""
        lanes = self.schedule.lanes
        return (elements // lanes | 1) * lanes

    @cached_property
    def group(self) -> int:
        """Tiles side by side whose results fill vectors of columns."""
        return max(1, self.schedule.lanes // self.schedule.size)

    @cached_property
    def columns(self) -> int:
        """Of a row of a block's results, in whole groups."""
        return -(-self.schedule.across // self.group) * self.group * self.schedule.size

    @cached_property
    def staged(self) -> int:
        """Elements of scratch that the input of a block takes, one vector of channels at a time."""
        return self.image[0] * self.image[1] * self.schedule.lanes

    @cached_property
    def products(self) -> int:
        """Elements of scratch that the products of a block and a panel take."""
        products = self.points * self.products_of_point
        return max(products, self.staged) if self.schedule.fused else products

    @cached_property
    def scratch(self) -> int:
        """Elements of scratch of a workgroup that multiplies."""
        lanes, size = self.schedule.lanes, self.schedule.size
        turned = size * self.group * size * lanes
        results = lanes * size * self.columns
        return self.products + turned + results + (self.parts if self.schedule.fused else 0)
