"""Depthwise convolutions of 8 bits: the nest of `covan_mlir.lowering.kernels.cpu.depthwise`, whose window is multiplied
four columns at a time.

For ``y[c, h, w] = f(sum over r, s of (x[c, h + r - 1, w + s - 1] - zero) * f[c, r, s])``, a workgroup runs this nest::

    for c in channels:
        for h step rows:
            for w step vectors * lanes:
                tile[rows, vectors] = -zero * sum of f[c]     # registers
                for row of x that the tile needs:             # written out
                    read = x[c, row, w - 1 : ]                # bytes; what is outside of x is zero
                    word[w] = read[w], read[w + 1], ...       # a shuffle
                    for h', r where h' + r - 1 is that row:
                        tile[h', vectors] += word . f[c, r]
                y[c, h, w] = f(tile)

See `covan_mlir.lowering.kernels.cpu.tap_words` for words, and what sums begin with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iree.compiler.dialects import arith, vector

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.depthwise import Block, DepthwiseSchedule, DepthwiseWriter, RowSpan
from covan_mlir.lowering.kernels.cpu.evaluator import widen
from covan_mlir.lowering.kernels.cpu.row_outputs import Known
from covan_mlir.lowering.kernels.cpu.tap_words import COUNT, TapWords
from covan_mlir.lowering.kernels.cpu.words import INTEGER_SUMS


class WordDepthwiseWriter(DepthwiseWriter):
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, words: TapWords, sizes: Mapping[str, Size], schedule: DepthwiseSchedule
    ) -> None:
        super().__init__(code, words.convolution, sizes, schedule)
        self.words = words
        self.loads = words.loads(code.lanes)

    @property
    def _loaded(self) -> list[int]:
        """Words of a row with which vectors are loaded."""
        return sorted({first for first, _ in self.loads})

    def _masks(self, left: Value, count: int) -> Sequence[Sequence[Sequence[Value]]]:
        """See `DepthwiseWriter`; by what is loaded and vector."""
        begins = ([self._column(left, u, turn * COUNT) for u in range(count)] for turn in self._loaded)
        return [[[self.words.masks(self.code, begin)] for begin in of_turn] for of_turn in begins]

    def _tile(self, block: Block, span: RowSpan, number: Value, known: Known) -> None:
        code, words = self.code, self.words
        top = code.mul(number, self.schedule.rows)
        taps = sorted({r for _, uses in span.reads for _, r in uses})
        filter_words = {r: [words.filter_word(code, block.outer, r, turn) for turn in range(words.turns)] for r in taps}
        tile = []
        for i in range(span.rows):
            multiplied = [r for _, uses in span.reads for row, r in uses if row == i]
            begun = words.begun(code, [word for r in multiplied for word in filter_words[r]])
            tile.append([begun for _ in block.valid])
        for at, uses in span.reads:
            read = self._read(block, self._row(top, at), partial=at in span.partial)
            for turn, vectors in enumerate(read):
                for i, r in uses:
                    for u, word in enumerate(vectors):
                        tile[i][u] = words.words.added(code, tile[i][u], word, filter_words[r][turn])
        self._write(block, top, tile, known)

    def _read(self, block: Block, row: Value | None, *, partial: bool) -> list[list[Value]]:
        """The words that windows show of a row of the input, by word of the window's row and vector.

        Args:
            partial: the input may lack the row.
        """
        code, slides, masks = self.code, self.convolution.height, block.masks
        if partial:
            assert row is not None
            assert slides is not None
            exists = code.within(row, slides.inside)
            # No address beyond the input, be it of bytes that are not read.
            row = code.max(code.min(row, slides.inside - 1), 0)
            masks = [[[_where(code, exists, mask) for mask in masks_of] for masks_of in each] for each in masks]
        source = self._source(block.outer, row)
        loaded: dict[int, list[Value]] = {}
        axes = self.convolution.chain.values[self.convolution.window.name].axes
        elements = code.product(self.sizes[axis] for axis in axes)
        for turn, of_turn in zip(self._loaded, masks, strict=True):
            begins = [code.add(source, self._column(block.left, u, turn * COUNT)) for u in range(len(of_turn))]
            loaded[turn] = [
                self.words.loaded(code, at, mask, elements) for at, (mask,) in zip(begins, of_turn, strict=True)
            ]
        return [
            [self.words.shown(code, value, turn) for value in loaded[first]]
            for turn, (first, _) in enumerate(self.loads)
        ]

    def _settled(self, sums: Value) -> Value:
        """See `DepthwiseWriter`."""
        return widen(self.code, sums, INTEGER_SUMS)


def _where(code: KernelBuilder, exists: Value, mask: Value) -> Value:
    """A mask, or none of it."""
    return arith.select(exists, mask, vector.broadcast(mask.type, code.constant(0, "i1")))
