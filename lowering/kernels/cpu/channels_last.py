"""Windows over one channel at a time, of images whose channels lie side by side: lanes along these, read in place.

For ``y[h, w, c] = f(sum over r, s of x[h + r - 1, w + s - 1, c] * f[r, s, c])``, a workgroup runs this nest::

    for h in some rows:
        for c in channels step vectors * lanes:           # all that is read again is of these rows
            for w step columns:                           # all w of a kind together, see `ColumnSpan`
                tile[columns, vectors] = 0                # registers
                for r where h + r - 1 is a row of x:
                    for column of x that the tile needs:  # written out
                        for w', s where w' + s - 1 is that column:
                            tile[w', vectors] += f[r, s, c] * x[h + r - 1, column, c]
                y[h, w, c] = f(tile)

Nothing is transposed, and nothing has a mask: the last channels are a whole vector, too, of which some are computed
twice. No product is one with what lies outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from covan_mlir.lowering.kernels.cpu.accumulators import combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, Sliding
from covan_mlir.lowering.kernels.cpu.dense import DIRECT, DenseSchedule
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator, inputs, widen
from covan_mlir.lowering.kernels.cpu.row_outputs import Known, RowOutputs
from covan_mlir.lowering.kernels.cpu.turns import TOGETHER, in_turns
from covan_mlir.lowering.kernels.cpu.window_rows import rows_inside


@dataclass(frozen=True)
class ChannelsLastSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        columns, vectors: of the register tile: columns of the results, vectors of their channels.
        chunks: as many channels as a tile has, each, that a workgroup computes.
        band: rows of them that it computes.
    """

    columns: int
    vectors: int
    chunks: int
    band: int


@dataclass(frozen=True)
class ColumnSpan:
    """Tiles of as many columns that read alike: one piece of code.

    Attributes:
        start, stop: of the tiles.
        columns: of the results in each.
        reads: for each column of the input that is read, counted from where the tile's window begins: which columns of
            the results it is multiplied for, by which columns of the window.
    """

    start: int
    stop: int
    columns: int
    reads: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def column_spans(width: Sliding, columns: int) -> list[ColumnSpan]:
    """All tiles of so many columns, in order."""
    spans: list[ColumnSpan] = []
    for number, left in enumerate(range(0, width.outside, columns)):
        there = min(columns, width.outside - left)
        begin = width.stride * left + width.offset
        uses: dict[int, list[tuple[int, int]]] = {}
        for column in range(there):
            for tap in range(width.taps):
                at = width.stride * column + width.dilation * tap
                if 0 <= begin + at < width.inside:
                    uses.setdefault(at, []).append((column, tap))
        reads = tuple((at, tuple(uses[at])) for at in sorted(uses))
        if spans and (spans[-1].columns, spans[-1].reads) == (there, reads):
            spans[-1] = ColumnSpan(spans[-1].start, number + 1, there, reads)
        else:
            spans.append(ColumnSpan(number, number + 1, there, reads))
    return spans


@dataclass(frozen=True)
class Chunk:
    """Some channels of a row of the results.

    Attributes:
        index: position on the outer axes, that of the channels included, and on that of the rows.
        valid: mask of those that exist; None for all.
    """

    index: Mapping[str, Value]
    valid: Value | None


class ChannelsLastWriter:
    """Writes the code of a workgroup.

    Args:
        channel: the axis of the channels.
    """

    def __init__(
        self,
        code: KernelBuilder,
        convolution: Convolution,
        channel: str,
        sizes: Mapping[str, Size],
        schedule: ChannelsLastSchedule,
    ) -> None:
        self.code, self.convolution, self.sizes, self.schedule = code, convolution, sizes, schedule
        self.channel, self.channels = channel, convolution.sizes[channel]
        self.images = tuple(axis for axis in convolution.outer if axis != channel)
        self.dtype = computed(convolution.step.dtype)
        chain = convolution.chain
        self.evaluator = VectorEvaluator(code, chain, inputs(code, chain, sizes))
        fixed = frozenset(axis for axis in convolution.step.axes if axis != channel)
        self.outputs = RowOutputs(code, chain, convolution.step, self.evaluator, sizes, fixed)

    @cached_property
    def _width(self) -> int:
        """Channels of a tile."""
        return self.schedule.vectors * self.code.lanes

    @property
    def _groups(self) -> int:
        return -(-self.channels // (self._width * self.schedule.chunks))

    @property
    def _bands(self) -> int:
        height = self.convolution.height
        return -(-height.outside // self.schedule.band) if height is not None else 1

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, of sizes that may be others than the writer's own."""
        return self.code.mul(self.code.product(sizes[axis] for axis in self.images), self._bands * self._groups)

    def write(self) -> None:
        """The whole function."""
        code, schedule, height = self.code, self.schedule, self.convolution.height
        rest, group = code.divmod(code.workgroup, self._groups)
        number, band = code.divmod(rest, self._bands)
        image: dict[str, Value] = {}
        for axis in reversed(self.images[1:]):
            number, image[axis] = code.divmod(number, self.sizes[axis])
        if self.images:
            image[self.images[0]] = number
        first = code.mul(group, schedule.chunks)
        last = code.min(code.add(first, schedule.chunks), -(-self.channels // self._width))
        valid = code.prefix(self.channels) if self.channels < code.lanes else None

        def row(index: Mapping[str, Value]) -> None:
            def chunk(at: Value, none: list[Value]) -> list[Value]:
                # The last vectors end where the channels do.
                begin = code.min(code.mul(at, self._width), max(self.channels - self._width, 0))
                self._row(Chunk({**index, self.channel: begin}, valid))
                return none

            code.loop(first, last, 1, [], chunk)

        if height is None:
            row(image)
            return
        top = code.mul(band, schedule.band)
        end = code.min(code.add(top, schedule.band), height.outside)

        def one(h: Value, none: list[Value]) -> list[Value]:
            row({**image, height.axis: h})
            return none

        code.loop(top, end, 1, [], one)

    def _row(self, chunk: Chunk) -> None:
        code, columns = self.code, self.schedule.columns
        for span in column_spans(self.convolution.width, columns):

            def tile(number: Value, none: list[Value], span: ColumnSpan = span) -> list[Value]:
                self._tile(chunk, span, code.mul(number, columns))
                return none

            code.loop(span.start, span.stop, 1, [], tile)

    def _tile(self, chunk: Chunk, span: ColumnSpan, left: Value) -> None:
        code, height = self.code, self.convolution.height
        initial = code.splat(self.convolution.step.initial.value, self.dtype)
        tile = [initial] * (span.columns * self.schedule.vectors)
        if height is None:
            tile = self._add(tile, chunk, span, left, None, None)
        else:
            rows = rows_inside(code, height, chunk.index[height.axis])

            def tap(r: Value, tile: list[Value]) -> list[Value]:
                row = code.add(rows.top, code.mul(r, height.dilation))
                return self._add(tile, chunk, span, left, row, r)

            tile = code.loop(rows.low, rows.high, 1, tile, tap)
        self._write(chunk, left, tile)

    def _source(self, chunk: Chunk, row: Value | None, column: Value) -> Value:
        """Where the channels of a chunk begin in the input."""
        code, window = self.code, self.convolution.window
        *before, _, _ = self.convolution.chain.values[window.name].axes
        at: Value = code.index(0)
        for axis, position in zip(before, window.at, strict=False):
            here = position.axis
            at = code.mul(at, self.sizes[axis])
            at = code.add(at, chunk.index[here] if here in self.images else code.size(0 if row is None else row))
        at = code.add(code.mul(at, self.convolution.width.inside), column)
        return code.add(code.mul(at, self.channels), chunk.index[self.channel])

    def _add(
        self, tile: list[Value], chunk: Chunk, span: ColumnSpan, left: Value, row: Value | None, r: Value | None
    ) -> list[Value]:
        """A tile, with what one row of the window shows of the input."""
        code, convolution, vectors = self.code, self.convolution, self.schedule.vectors
        width, window = convolution.width, convolution.window
        combine, sums = combining(convolution.step)[0], list(tile)
        begin = code.add(code.mul(left, width.stride), width.offset)
        known: dict[tuple[int, int], Value] = {}
        for at, uses in span.reads:
            source = self._source(chunk, row, code.add(begin, at))
            for u in range(vectors):
                here = code.add(source, u * code.lanes)
                value = widen(code, code.load(code.memory[window.name], here, chunk.valid), window.dtype)
                for column, s in uses:
                    if convolution.scalars is None:
                        term = value
                    else:
                        if (s, u) not in known:
                            known[s, u] = self._factor(chunk, r, s, u)
                        term = code.op("mulf", known[s, u], value)
                    place = column * vectors + u
                    sums[place] = code.op(combine, sums[place], term)
        return sums

    def _factor(self, chunk: Chunk, r: Value | None, s: int, u: int) -> Value:
        """The filter's elements for a vector of channels."""
        code, convolution = self.code, self.convolution
        assert convolution.scalars is not None
        index = {**chunk.index, self.channel: code.add(chunk.index[self.channel], u * code.lanes)}
        for slides, tap in ((convolution.height, r), (convolution.width, code.index(s))):
            if slides is not None and slides.tap is not None and tap is not None:
                index[slides.tap] = tap
        return self.evaluator.vector(convolution.scalars, Position(index, self.channel, chunk.valid))

    def _write(self, chunk: Chunk, left: Value, tile: list[Value]) -> None:
        """What the chain makes of a tile's sums, into its results."""
        code, vectors, convolution = self.code, self.schedule.vectors, self.convolution

        def column(w: int) -> tuple[Mapping[str, Value], Known]:
            index = {**chunk.index, convolution.width.axis: code.add(left, w)}
            return index, self.outputs.known(index)

        def one(place: Mapping[str, Value], known: Known, u: int, value: Value) -> None:
            index = {**place, self.channel: code.add(place[self.channel], u * code.lanes)}
            self.outputs.write(value, index, self.channel, chunk.valid, known)

        writers = []
        for w in range(len(tile) // vectors):
            place, known = column(w)
            writers += [partial(one, place, known, u, tile[w * vectors + u]) for u in range(vectors)]
        together = TOGETHER if convolution.work > DIRECT else 1
        for n in range(0, len(writers), together):
            in_turns(writers[n : n + together])
