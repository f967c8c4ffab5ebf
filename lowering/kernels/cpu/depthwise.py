"""Windows over one channel at a time: depthwise convolutions and pooling, straight from memory.

For ``y[c, h, w] = f(sum over r, s of x[c, h + r - 1, w + s - 1] * f[c, r, s])``, a workgroup runs this nest::

    for c in channels:
        for h step rows:                                  # all h of a kind together, see `RowSpan`
            for w step vectors * lanes:
                tile[rows, vectors] = 0                   # registers
                for row of x that the tile needs, s:      # written out
                    skip it if it is outside of x         # asked where it may be
                    read[vectors] = x[c, row, w + s - 1]  # with masks: what is outside of x is 0
                    for h', r where h' + r - 1 is that row:
                        tile[h', vectors] += f[c, r, s] * read[vectors]
                y[c, h, w] = f(tile)

Nothing is staged: every element is loaded once for each column of the window and all rows of the tile. Of windows of
many taps, what is written out is one row of the input that all rows of the tile take, in a loop, and those before and
behind them that some take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations

from covan_mlir.lowering.kernels.cpu.accumulators import combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import MOST_TAPS, Convolution, Sliding
from covan_mlir.lowering.kernels.cpu.dense import DIRECT, DenseSchedule
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator, inputs
from covan_mlir.lowering.kernels.cpu.register_tile import Tile
from covan_mlir.lowering.kernels.cpu.row_outputs import Known, RowOutputs
from covan_mlir.lowering.kernels.cpu.turns import rows_in_turns
from covan_mlir.lowering.kernels.cpu.window_columns import WindowColumns, leader


@dataclass(frozen=True)
class DepthwiseSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        rows, vectors: of the register tile: rows of the results, vectors of their columns.
        channels: that a workgroup computes, counted through all outer axes.
        band: tiles of rows of them that it computes.
    """

    rows: int
    vectors: int
    channels: int
    band: int


Uses = Sequence[tuple[int, int]]
"""Of a row of the input: rows of a tile, and the row of the window that each is multiplied by."""

FactorOf = Callable[[int, int, int], Value | None]
"""What a row of a tile is multiplied by, for a row and a column of the window; None: what the window shows counts as it
is."""


@dataclass(frozen=True)
class RowSpan:
    """Tiles of as many rows: one piece of code.

    Attributes:
        start, stop: of the tiles.
        rows: of the results in each.
        reads: for each row of the input that is read, counted from where the tile's window begins: which rows of the
            results it is multiplied for, by which rows of the window.
        partial: those of them that some of the tiles read and others leave out, for they are outside of the input.
        looped: rows of the window by which the first row of the results is multiplied in a loop, with the one before by
            the second row, and so on; the rows of the input for them are none of ``reads``.
    """

    start: int
    stop: int
    rows: int
    reads: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    partial: frozenset[int] = frozenset()
    looped: range = range(0)

    @property
    def rows_read(self) -> int:
        """Of the input."""
        return len(self.reads) + len(self.looped)

    @property
    def uses(self) -> int:
        """Of all of them, rows of the results that they are multiplied for."""
        return sum(len(uses) for _, uses in self.reads) + self.rows * len(self.looped)

    @property
    def written(self) -> tuple[int, int]:
        """Rows of the input that are written out, and their uses."""
        once = 1 if self.looped else 0
        return len(self.reads) + once, sum(len(uses) for _, uses in self.reads) + once * self.rows


def row_spans(convolution: Convolution, height: int) -> list[RowSpan]:
    """All tiles of so many rows, in order."""
    slides = convolution.height
    if slides is None:
        return [RowSpan(0, 1, 1, ((0, ((0, 0),)),))]
    even, rest = divmod(slides.outside, height)
    many = convolution.taps > MOST_TAPS
    spans = [_row_span(slides, 0, even, height, 0, many)] if even else []
    if rest:
        spans.append(_row_span(slides, even, even + 1, rest, height * even, many))
    return spans


def loops(slides: Sliding, rows: int) -> bool:
    """Whether one row of a window after the other is what neighbouring rows of a tile are multiplied by."""
    return rows == 1 or (slides.stride, slides.dilation) == (1, 1)


def _row_span(slides: Sliding, start: int, stop: int, rows: int, top: int, many: bool) -> RowSpan:
    """Tiles of some rows.

    Args:
        top: the first row of the first tile.
        many: whether rows of the input that all rows of the tile take are read in a loop.
    """
    uses: dict[int, list[tuple[int, int]]] = {}
    for row, tap in combinations(range(rows), range(slides.taps)):
        uses.setdefault(slides.stride * row + slides.dilation * tap, []).append((row, tap))
    begins = [slides.stride * (top + rows * tile) + slides.offset for tile in range(stop - start)]
    inside = {at: sum(0 <= begin + at < slides.inside for begin in begins) for at in uses}
    reads = tuple((at, tuple(uses[at])) for at in sorted(uses) if inside[at])
    partial = frozenset(at for at, count in inside.items() if 0 < count < len(begins))
    if not many:
        return RowSpan(start, stop, rows, reads, partial)
    shared = [taken[0][1] for _, taken in reads if len(taken) == rows]
    looped = range(shared[0], shared[-1] + 1) if shared else range(0)
    return RowSpan(start, stop, rows, tuple(read for read in reads if len(read[1]) < rows), partial, looped)


@dataclass(frozen=True)
class Block:
    """Some columns of a channel's results.

    Attributes:
        outer: position on the outer axes.
        left: the first column.
        valid: masks of the columns that exist, by vector.
        masks: of what is read, by column of the window and vector.
    """

    outer: Mapping[str, Value]
    left: Value
    valid: Sequence[Value | None]
    masks: Sequence[Sequence[Sequence[Value]]]


class DepthwiseWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, convolution: Convolution, sizes: Mapping[str, Size], schedule: DepthwiseSchedule
    ) -> None:
        self.code, self.convolution, self.sizes, self.schedule = code, convolution, sizes, schedule
        chain = convolution.chain
        self.evaluator = VectorEvaluator(code, chain, inputs(code, chain, sizes))
        self.dtype = computed(convolution.step.dtype)
        self.outputs = RowOutputs(code, chain, convolution.step, self.evaluator, sizes, frozenset(convolution.outer))
        self.columns = WindowColumns(code, convolution)
        self.spans = row_spans(convolution, schedule.rows)
        self.held = convolution.work > DIRECT

    @cached_property
    def sums(self) -> Value:
        """Scratch for a tile of which much is made."""
        return self.code.scratch(self.schedule.rows * self.schedule.vectors * self.code.lanes, self.dtype)

    @property
    def _bands(self) -> int:
        return -(-self.spans[-1].stop // self.schedule.band)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, of sizes that may be others than the writer's own."""
        code = self.code
        channels = code.product(sizes[axis] for axis in self.convolution.outer)
        return code.mul(code.ceildiv(channels, self.schedule.channels), self._bands)

    def write(self) -> None:
        """The whole function."""
        code, group = self.code, self.schedule.channels
        total = code.product(self.sizes[axis] for axis in self.convolution.outer)
        rest, band = code.divmod(code.workgroup, self._bands)
        first = code.mul(rest, group)
        end = code.min(code.add(first, group), code.size(total))
        start = code.mul(band, self.schedule.band)

        def channel(number: Value, none: list[Value]) -> list[Value]:
            outer: dict[str, Value] = {}
            for axis in reversed(self.convolution.outer[1:]):
                number, outer[axis] = code.divmod(number, self.sizes[axis])
            if self.convolution.outer:
                outer[self.convolution.outer[0]] = number
            self._channel(outer, start)
            return none

        code.loop(first, end, 1, [], channel)

    def _channel(self, outer: Mapping[str, Value], start: Value) -> None:
        code, known = self.code, self.outputs.known(outer)
        for span in self.spans:
            low: Size = span.start
            high: Size = span.stop
            if self._bands > 1:
                low = code.max(start, span.start)
                high = code.min(code.add(start, self.schedule.band), span.stop)

            def tile(number: Value, none: list[Value], span: RowSpan = span) -> list[Value]:
                self._each_block(outer, lambda block: self._tile(block, span, number, known))
                return none

            if isinstance(high, int) and span.stop == span.start + 1:
                tile(code.index(span.start), [])
            else:
                code.loop(low, high, 1, [], tile)

    def _each_block(self, outer: Mapping[str, Value], body: Callable[[Block], None]) -> None:
        """Runs ``body`` on all columns. Where the last block has as many vectors as the others, one piece of code
        does for all."""
        code, lanes, vectors = self.code, self.code.lanes, self.schedule.vectors
        total, step = self.convolution.width.outside, vectors * lanes
        even = -(-total // lanes) % vectors == 0 and total > step

        def columns(left: Value, none: list[Value], length: int) -> list[Value]:
            count = -(-length // lanes)
            valid: list[Value | None] = [None] * count
            if even and total % lanes:
                valid[-1] = code.prefix(code.min(code.op("subi", code.index(total - step + lanes), left), lanes))
            elif length % lanes:
                valid[-1] = code.prefix(length % lanes)
            body(Block(outer, left, valid, self._masks(left, count)))
            return none

        if even:
            code.loop(0, total, step, [], lambda left, none: columns(left, none, step))
        else:
            code.spans(0, total, step, [], columns)

    def _masks(self, left: Value, count: int) -> Sequence[Sequence[Sequence[Value]]]:
        """Of what is read for so many vectors; see `Block`."""
        taps = range(self.convolution.width.taps)
        return [[self.columns.masks(self._column(left, u, tap)) for u in range(count)] for tap in taps]

    def _column(self, left: Value, u: int, tap: int) -> Value:
        """Of the input, where what a vector reads for a column of the window begins."""
        slides = self.convolution.width
        shift = slides.stride * u * self.code.lanes + slides.dilation * tap + slides.offset
        return self.code.add(self.code.mul(left, slides.stride), shift)

    def _source(self, outer: Mapping[str, Value], row: Value | None) -> Value:
        """Where a row of the input begins."""
        code, convolution = self.code, self.convolution
        axes = convolution.chain.values[convolution.window.name].axes
        *before, last = axes
        offset: Value = code.index(0)
        for axis, position in zip(before, convolution.window.at, strict=False):
            at = outer[position.axis] if position.axis is not None and position.axis in outer else row
            offset = code.add(code.mul(offset, self.sizes[axis]), at)
        return code.mul(offset, self.sizes[last])

    def _tile(self, block: Block, span: RowSpan, number: Value, known: Known) -> None:
        code, convolution = self.code, self.convolution
        vectors = range(len(block.valid))
        zero = code.splat(convolution.step.initial.value, self.dtype)
        tile = [[zero for _ in vectors] for _ in range(span.rows)]
        top = code.mul(number, self.schedule.rows)
        factors: dict[tuple[int, int], Value | None] = {}
        for at, uses in span.reads:
            row = self._row(top, at)
            for r, s in combinations({r: None for _, r in uses}, range(convolution.width.taps)):
                if (r, s) not in factors:
                    factors[r, s] = self._factor(block.outer, r, s)

            def factor(i: int, r: int, s: int) -> Value | None:
                return factors[r, s]

            if at in span.partial:
                assert row is not None
                self._read_if_inside(block, row, uses, factor, tile)
            else:
                self._read_row(block, row, uses, factor, tile)
        if span.looped:
            self._read_looped(block, span, top, tile)
        self._write(block, top, tile, known)

    def _row(self, top: Value, at: Size) -> Value | None:
        """Of the input."""
        slides, code = self.convolution.height, self.code
        return code.add(code.mul(top, slides.stride), at, slides.offset) if slides is not None else None

    def _read_looped(self, block: Block, span: RowSpan, top: Value, tile: Tile) -> None:
        """Takes the rows of the input that all rows of a tile take into its sums."""
        code, slides = self.code, self.convolution.height
        assert slides is not None
        uses = [(i, 0) for i in range(span.rows)]
        width = len(block.valid)

        def one(tap: Value, sums: list[Value]) -> list[Value]:
            row = self._row(top, code.mul(tap, slides.dilation))
            assert row is not None
            changed = [sums[i * width : (i + 1) * width] for i in range(span.rows)]

            def factor(i: int, r: int, s: int) -> Value | None:
                return self._factor(block.outer, code.add(tap, -i), s)

            self._read_if_inside(block, row, uses, factor, changed)
            return [value for sums in changed for value in sums]

        initial = [value for sums in tile for value in sums]
        last = iter(code.loop(span.looped.start, span.looped.stop, 1, initial, one))
        for sums in tile:
            sums[:] = [next(last) for _ in sums]

    def _read_if_inside(self, block: Block, row: Value, uses: Uses, factor: FactorOf, tile: Tile) -> None:
        """Takes a row into the sums of a tile if the input has it."""
        code, slides = self.code, self.convolution.height
        assert slides is not None
        touched = sorted({i for i, _ in uses})

        def rows_touched() -> list[Value]:
            changed = [list(sums) for sums in tile]
            self._read_row(block, row, uses, factor, changed)
            return [value for i in touched for value in changed[i]]

        before = [value for i in touched for value in tile[i]]
        after = iter(code.replaced(code.within(row, slides.inside), before, rows_touched))
        for i in touched:
            tile[i] = [next(after) for _ in block.valid]

    def _read_row(self, block: Block, row: Value | None, uses: Uses, factor_of: FactorOf, tile: Tile) -> None:
        """Takes a row of the input into the sums of a tile."""
        code, vectors = self.code, range(len(block.valid))
        combine = combining(self.convolution.step)[0]
        source, width = self._source(block.outer, row), self.convolution.width
        loaded: list[list[Value]] = []
        for s in range(width.taps):
            first = leader(width, s)
            if first == s:
                begins = [code.add(source, self._column(block.left, u, s)) for u in vectors]
                loaded = [self.columns.loaded(begins[u], block.masks[s][u][:-1]) for u in vectors]
            shift = width.dilation * (s - first)
            read = [self.columns.shown(loaded[u], block.masks[s][u][-1], shift) for u in vectors]
            for i, r in uses:
                factor = factor_of(i, r, s)
                for u in vectors:
                    term = read[u] if factor is None else code.op("mulf", factor, read[u])
                    tile[i][u] = code.op(combine, tile[i][u], term)

    def _factor(self, outer: Mapping[str, Value], r: Size, s: int) -> Value | None:
        convolution = self.convolution
        if convolution.scalars is None:
            return None
        index = dict(outer)
        for slides, tap in ((convolution.height, r), (convolution.width, s)):
            if slides is not None and slides.tap is not None:
                index[slides.tap] = self.code.size(tap)
        return self.code.broadcast(self.evaluator.scalar(convolution.scalars, Position(index, None)))

    def _settled(self, sums: Value) -> Value:
        """Sums as the chain computes with them."""
        return sums

    def _write(self, block: Block, top: Value, tile: Tile, known: Known) -> None:
        """What the chain makes of a tile's sums, into its results."""
        code, lanes = self.code, self.code.lanes
        lane, height = self.convolution.width.axis, self.convolution.height

        def one(value: Value, i: Value | int, u: int) -> None:
            index = {**block.outer, lane: code.add(block.left, u * lanes)}
            if height is not None:
                index[height.axis] = code.add(top, i)
            self.outputs.write(self._settled(value), index, lane, block.valid[u], known)

        if not self.held:
            for i, sums in enumerate(tile):
                for u, value in enumerate(sums):
                    one(value, i, u)
            return
        width = len(block.valid) * lanes
        for i, sums in enumerate(tile):
            for u, value in enumerate(sums):
                code.store(value, self.sums, code.index(i * width + u * lanes))

        def row(i: Value) -> Callable[[int], None]:
            return lambda u: one(code.load(self.sums, code.add(code.mul(i, width), u * lanes)), i, u)

        rows_in_turns(code, len(tile), len(block.valid), row)
