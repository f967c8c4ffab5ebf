"""How a convolution is laid out on a CPU, and what that takes of scratch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, WindowWords
from covan_mlir.lowering.kernels.cpu.dense import DIRECT, DenseSchedule
from covan_mlir.lowering.kernels.cpu.packed_weight import PackedWeight
from covan_mlir.lowering.kernels.cpu.planes import PlaneLayout
from covan_mlir.lowering.kernels.cpu.scalar_rows import in_place, row_length
from covan_mlir.lowering.kernels.cpu.word_offsets import Offsets


@dataclass(frozen=True)
class ConvolutionSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        rows, vectors: of the register tile: output channels, vectors of positions.
        group: output channels that a workgroup computes.
        height, width: rows and columns of the results that it computes.
        depth: positions of the first contracted axis that are staged together.
        apart: columns of the window have planes of their own.
        packed: the filter is packed ahead of time.
        words: several channels are multiplied at a time (`words`); the filter is packed then.
    """

    rows: int
    vectors: int
    group: int
    height: int
    width: int
    depth: int
    apart: bool = False
    packed: bool = False
    words: bool = False


@dataclass(frozen=True)
class Span:
    """Register tiles of one width along a run.

    Attributes:
        start, stop: vectors of the run.
        vectors: of a tile.
    """

    start: int
    stop: int
    vectors: int


UNUSED = 0.03
"""Of a run's vectors, the most that tiles of one width may add."""


@lru_cache(4096)
def spans_of(vectors: int, most: int) -> tuple[Span, ...]:
    """Tiles of at most so many vectors, as few as there can be: of one width, or of two that differ by one vector."""
    tiles = -(-vectors // most)
    wide = -(-vectors // tiles)
    if tiles * wide <= (1 + UNUSED) * vectors:
        return (Span(0, tiles * wide, wide),)
    border = (vectors - tiles * (wide - 1)) * wide
    return Span(0, border, wide), Span(border, vectors, wide - 1)


@dataclass(frozen=True)
class Footprint:
    """What a schedule takes of scratch.

    The convolution's, with a schedule.

    Attributes:
        layout: of the planes.
    """

    convolution: Convolution
    schedule: ConvolutionSchedule
    layout: PlaneLayout

    @staticmethod
    def of(convolution: Convolution, schedule: ConvolutionSchedule) -> Footprint:
        """That of a schedule."""
        layout = PlaneLayout(convolution, schedule.height, schedule.width, schedule.apart)
        return Footprint(convolution, schedule, layout)

    @property
    def blocks(self) -> int:
        """Of channels."""
        contracted = self.convolution.contracted
        return -(-self.convolution.sizes[contracted[0]] // self.schedule.depth) if contracted else 1

    @property
    def channels(self) -> int:
        """Positions on the contracted axes that are staged together; of words, so many words."""
        each = self.words.words.count if self.words is not None else 1
        return -(-self.schedule.depth // each) * self.convolution.beside

    @property
    def words(self) -> WindowWords | None:
        """What is multiplied a word at a time."""
        return self.convolution.words if self.schedule.words else None

    @property
    def width(self) -> int:
        """Columns of the widest register tile."""
        return self.schedule.vectors * self.schedule.lanes

    @property
    def spans(self) -> tuple[Span, ...]:
        """Register tiles along a run."""
        return spans_of(-(-self.layout.run // self.schedule.lanes), self.schedule.vectors)

    @property
    def pitch(self) -> int:
        """Positions that are computed for a row."""
        return self.spans[-1].stop * self.schedule.lanes

    @property
    def direct(self) -> bool:
        """Whether results are made of registers, and no sums are held."""
        return self.schedule.apart and self.blocks == 1 and self.convolution.work <= DIRECT

    @property
    def rows(self) -> int:
        """Whose sums are held."""
        if self.direct:
            return 0
        return self.schedule.group if self.blocks > 1 else self.schedule.rows

    @cached_property
    def summed(self) -> tuple[str, ...]:
        """All axes that are summed over, those of taps last."""
        slides = (self.convolution.height, self.convolution.width)
        taps = (one.tap for one in slides if one is not None and one.tap is not None)
        return (*self.convolution.contracted, *taps)

    @property
    def packing(self) -> PackedWeight | None:
        """How the filter is packed."""
        convolution, words = self.convolution, self.words
        filter_ = words.weight if words is not None else convolution.filter
        if not self.schedule.packed or filter_ is None:
            return None
        packing = PackedWeight(
            convolution.chain, filter_, convolution.outer, convolution.rows[0], self.summed, self.schedule.rows
        )
        return packing if words is None else replace(packing, words=words.words, along=convolution.contracted[0])

    @property
    def offsets(self) -> Offsets | None:
        """What is added to the sums of a row."""
        words, packing = self.words, self.packing
        return Offsets(packing, words.offset) if words is not None and words.offset and packing is not None else None

    @property
    def scalars(self) -> int:
        """Elements of a row of the filter, where that is staged, or 0."""
        if self.schedule.words or self.convolution.scalars is None:
            return 0
        if in_place(self.convolution.chain, self.convolution.scalars):
            return 0
        depth = self.schedule.depth if self.convolution.contracted else self.convolution.sizes[self.summed[0]]
        return row_length(self.convolution.sizes, self.summed, depth, self.schedule.lanes)

    @property
    def elements(self) -> int:
        """All scratch."""
        planes = self.channels * self.layout.channel + self.width + self.schedule.lanes
        sums = self.rows * self.pitch
        return planes + sums + self.schedule.group * self.scalars + 2 * self.schedule.lanes
