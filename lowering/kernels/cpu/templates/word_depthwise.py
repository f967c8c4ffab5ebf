"""Depthwise convolutions of 8 bits, with what is done to their elements, four columns of the window at a time
(`covan_mlir.lowering.kernels.cpu.word_depthwise`).

::

    for channels, bands of rows in parallel:
        for rows and columns of the band, a register tile at a time:
            tile = -zero * sum of the filter
            tile += words of the filter . words of the input, shuffled from vectors that are read with masks
        results = the chain's maps of the sums
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.convolution_roles import (
    check_bare_windows,
    check_taps,
    convolution_of,
    with_filters_outside,
)
from covan_mlir.lowering.kernels.cpu.dense import Writer
from covan_mlir.lowering.kernels.cpu.depthwise import DepthwiseSchedule, RowSpan
from covan_mlir.lowering.kernels.cpu.tap_words import COUNT, TapWords
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.depthwise import DepthwiseMatch
from covan_mlir.lowering.kernels.cpu.word_depthwise import WordDepthwiseWriter
from covan_mlir.lowering.kernels.cpu.words import integer_words
from covan_mlir.lowering.kernels.kernel import Preparation, Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template

READ = 5.0
"""Of a word's vector, the time of its load with a mask, and of its shuffle, in that of a vector's products."""


@dataclass(frozen=True)
class WordDepthwiseMatch(DepthwiseMatch):
    """A chain that sums products within one channel of 8 bits."""

    @property
    def words(self) -> TapWords:
        """What is multiplied."""
        return TapWords.of(self.task)

    @property
    def _turns(self) -> int:
        return self.words.turns

    @property
    def _read(self) -> float:
        return READ

    def _taken(self, rows: int, vectors: int) -> float:
        return self.words.words.taken(rows, vectors)

    def _written(self, spans: list[RowSpan], vectors: int, wide: int) -> int:
        reads = sum(span.written[0] for span in spans)
        uses = sum(span.written[1] for span in spans)
        bodies = 1 if wide % vectors == 0 else 2
        return bodies * vectors * self._turns * (uses + 3 * reads)

    def structure(self, schedule: DepthwiseSchedule) -> Structure:
        """See `Match`."""
        return Structure("tiles", packed=(self.words.weight.name,))

    def prepared(self, schedule: DepthwiseSchedule) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        return (self.words.preparation,)

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: DepthwiseSchedule) -> Writer:
        """See `DenseMatch`."""
        return WordDepthwiseWriter(code, self.words, sizes, schedule)


@register
class WordDepthwiseTemplate(Template[CpuTarget, DepthwiseSchedule]):
    """Windows over one channel of 8 bits, lanes along the columns of the results."""

    name: ClassVar[str] = "word_depthwise"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> WordDepthwiseMatch | Refusal:
        """See `Template`."""
        lanes = target.machine.lanes("f32")
        words = integer_words(target.machine)
        if not words:
            return Refusal("the machine does not multiply integers of 8 bits a word at a time")
        convolution = with_filters_outside(convolution_of(chain, integers=words))
        check_bare_windows(convolution)
        check_taps(convolution.taps)
        if TapWords.of(convolution).reach(lanes) > COUNT * lanes:
            return Refusal("a vector of bytes does not hold what its window shows")
        match = WordDepthwiseMatch(convolution, target)
        return match if match.ranked else Refusal("its tiles are too long to be written out")
