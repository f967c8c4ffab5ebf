"""Windows over one channel at a time, lanes along channels: for images that are too narrow to fill vectors.

For ``y[c, h, w] = f(sum over r, s of x[c, h + r - 1, w + s - 1] * f[c, r, s])``, a workgroup runs this nest::

    for c in channels step lanes:
        plane[p, c] = x[c, p]                             # all of the image, transposed in registers
        taps[r, s, c] = f[c, r, s]
        for h:
            row[w] = 0                                    # registers
            for r where h + r - 1 is a row of x:
                for j, and s where w + s - 1 = j:         # written out
                    row[w] += taps[r, s] * plane[h + r - 1, j]
            sums[h, w, c] = row[w]
        result[c, p] = sums[p, c]                         # transposed in registers
        y[c, p] = f(result[c, p])

No product is one with what lies outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.expression import Read, Window
from covan_mlir.lowering.kernels.cpu.accumulators import combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, Sliding
from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import VectorEvaluator, inputs, widen
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.cpu.tiles import padded, transpose
from covan_mlir.lowering.kernels.cpu.turns import rows_in_turns
from covan_mlir.lowering.kernels.cpu.window_rows import rows_inside


@dataclass(frozen=True)
class ChannelLanesSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        chunks: as many channels as there are lanes, each, that a workgroup computes.
    """

    chunks: int


@dataclass(frozen=True)
class Footprint:
    """What a chunk takes of scratch, in vectors.

    Attributes:
        lanes: channels of a chunk.
    """

    convolution: Convolution
    lanes: int

    @cached_property
    def image(self) -> int:
        """Positions of the input."""
        height, width = self.convolution.height, self.convolution.width
        return width.inside * (height.inside if height is not None else 1)

    @cached_property
    def result(self) -> int:
        """Positions of the results."""
        height, width = self.convolution.height, self.convolution.width
        return width.outside * (height.outside if height is not None else 1)

    @cached_property
    def taps(self) -> int:
        """Positions of the filter, if there is one."""
        return self.convolution.taps if self.convolution.scalars is not None else 0

    @cached_property
    def blocks(self) -> int:
        """That are transposed, of as many positions as there are lanes."""
        return sum(padded(n, self.lanes) // self.lanes for n in (self.image, self.result, self.taps))

    @cached_property
    def elements(self) -> int:
        """All scratch: results stand there once by positions and once by channels."""
        return (self.blocks * self.lanes + padded(self.result, self.lanes)) * self.lanes


def columns_read(width: Sliding) -> list[tuple[int, list[tuple[int, int]]]]:
    """For each column of the input that is read: which columns of the results it is multiplied for, by which columns of
    the window."""
    read: dict[int, list[tuple[int, int]]] = {}
    for column in range(width.outside):
        for tap in range(width.taps):
            at = width.stride * column + width.dilation * tap + width.offset
            if 0 <= at < width.inside:
                read.setdefault(at, []).append((column, tap))
    return sorted(read.items())


class ChannelLanesWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, convolution: Convolution, sizes: Mapping[str, Size], schedule: ChannelLanesSchedule
    ) -> None:
        self.code, self.convolution, self.sizes, self.schedule = code, convolution, sizes, schedule
        chain = convolution.chain
        self.dtype = computed(convolution.step.dtype)
        self.footprint = Footprint(convolution, code.lanes)
        evaluator = VectorEvaluator(code, chain, inputs(code, chain, sizes))
        self.outputs = RowOutputs(code, chain, convolution.step, evaluator, sizes, frozenset(convolution.outer))

    @cached_property
    def _channels(self) -> Size:
        return self.code.product(self.sizes[axis] for axis in self.convolution.outer)

    def _scratch(self, positions: int) -> Value:
        return self.code.scratch(padded(positions, self.code.lanes) * self.code.lanes, self.dtype)

    @cached_property
    def plane(self) -> Value:
        """The image, by positions."""
        return self._scratch(self.footprint.image)

    @cached_property
    def taps(self) -> Value:
        """The filter, by positions."""
        return self._scratch(self.footprint.taps)

    @cached_property
    def sums(self) -> Value:
        """By positions."""
        return self._scratch(self.footprint.result)

    @cached_property
    def results(self) -> Value:
        """The sums by channels."""
        return self._scratch(self.footprint.result)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, of sizes that may be others than the writer's own."""
        code = self.code
        channels = code.product(sizes[axis] for axis in self.convolution.outer)
        return code.ceildiv(channels, self.schedule.chunks * code.lanes)

    def write(self) -> None:
        """The whole function."""
        code, chunks = self.code, self.schedule.chunks
        first = code.mul(code.workgroup, chunks)
        end = code.min(code.add(first, chunks), code.size(code.ceildiv(self._channels, code.lanes)))

        def chunk(number: Value, none: list[Value]) -> list[Value]:
            self._chunk(code.mul(number, code.lanes))
            return none

        code.loop(first, end, 1, [], chunk)

    def _chunk(self, first: Value) -> None:
        code, lanes, convolution = self.code, self.code.lanes, self.convolution
        numbers = [code.add(first, n) for n in range(lanes)]
        if not isinstance(self._channels, int) or self._channels % lanes:
            # Beyond the last channel, that one once more.
            last = code.add(code.size(self._channels), -1)
            numbers = [code.min(number, last) for number in numbers]
        channels = [self._index(number) for number in numbers]
        window = convolution.window
        self._stage(window, [self._image(index) for index in channels], self.footprint.image, self.plane)
        if isinstance(convolution.scalars, Read):
            begins = [self._filter(convolution.scalars.name, index) for index in channels]
            self._stage(convolution.scalars, begins, self.footprint.taps, self.taps)
        self._sum()
        self._turn()
        count = code.min(code.op("subi", code.size(self._channels), first), lanes)
        code.loop(0, count, 1, [], lambda n, none: self._write(first, n, none))

    def _index(self, number: Value) -> dict[str, Value]:
        """A channel's position on each outer axis."""
        outer, index = self.convolution.outer, {}
        for axis in reversed(outer[1:]):
            number, index[axis] = self.code.divmod(number, self.sizes[axis])
        return {**index, **({outer[0]: number} if outer else {})}

    def _begin(self, name: str, at: Sequence[Value], dims: int) -> Value:
        """Where the last dimensions of an input begin, at a position on the others."""
        code, axes = self.code, self.convolution.chain.values[name].axes
        flat: Value = code.index(0)
        for axis, position in zip(axes[:-dims], at, strict=True):
            flat = code.add(code.mul(flat, self.sizes[axis]), position)
        for axis in axes[-dims:]:
            flat = code.mul(flat, self.sizes[axis])
        return flat

    def _image(self, index: Mapping[str, Value]) -> Value:
        window, dims = self.convolution.window, len(self.convolution.slides)
        return self._begin(window.name, [index[at.axis] for at in window.at[:-dims] if at.axis is not None], dims)

    def _filter(self, name: str, index: Mapping[str, Value]) -> Value:
        axes, dims = self.convolution.chain.values[name].axes, len(self.convolution.step.over)
        return self._begin(name, [index[axis] for axis in axes[:-dims]], dims)

    # Transpositions

    def _blocks(self, positions: int, body: Callable[[Value, int], None]) -> None:
        """Runs ``body`` on the first of as many positions as there are lanes, or of those that are left, and their
        number."""

        def block(at: Value, none: list[Value], length: int) -> list[Value]:
            body(at, length)
            return none

        self.code.spans(0, positions, self.code.lanes, [], block)

    def _mask(self, length: int) -> Value | None:
        return None if length == self.code.lanes else self.code.prefix(length)

    def _stage(self, source: Read | Window, begins: Sequence[Value], positions: int, memory: Value) -> None:
        """Writes the positions of all channels of a chunk to scratch, channels side by side."""
        code, lanes, given = self.code, self.code.lanes, self.code.memory[source.name]

        def block(at: Value, length: int) -> None:
            valid = self._mask(length)
            read = [widen(code, code.load(given, code.add(begin, at), valid), source.dtype) for begin in begins]
            for n, value in enumerate(transpose(code, read)[:length]):
                code.store(value, memory, code.mul(code.add(at, n), lanes))

        self._blocks(positions, block)

    def _turn(self) -> None:
        """Writes the sums of a channel side by side."""
        code, lanes = self.code, self.code.lanes
        pitch = padded(self.footprint.result, lanes)

        def block(at: Value, length: int) -> None:
            # Beyond the last position, that one once more: nobody reads it.
            read = [code.load(self.sums, code.mul(code.add(at, min(n, length - 1)), lanes)) for n in range(lanes)]
            for n, value in enumerate(transpose(code, read)):
                code.store(value, self.results, code.add(at, n * pitch))

        self._blocks(self.footprint.result, block)

    # Sums and results

    def _sum(self) -> None:
        code, lanes, width, height = self.code, self.code.lanes, self.convolution.width, self.convolution.height

        def row(h: Value, none: list[Value]) -> list[Value]:
            tile = [code.splat(self.convolution.step.initial.value, self.dtype)] * width.outside
            if height is None:
                tile = self._add(tile, code.index(0), code.index(0))
            else:
                rows = rows_inside(code, height, h)

                def tap(r: Value, tile: list[Value]) -> list[Value]:
                    return self._add(tile, code.add(rows.top, code.mul(r, height.dilation)), r)

                tile = code.loop(rows.low, rows.high, 1, tile, tap)
            for w, value in enumerate(tile):
                code.store(value, self.sums, code.mul(code.add(code.mul(h, width.outside), w), lanes))
            return none

        code.loop(0, height.outside if height is not None else 1, 1, [], row)

    def _add(self, tile: Sequence[Value], row: Value, r: Value) -> list[Value]:
        """A row of results, with what one row of the window shows of the input."""
        code, lanes, width = self.code, self.code.lanes, self.convolution.width
        combine, sums = combining(self.convolution.step)[0], list(tile)
        factors: list[Value] = []
        if self.convolution.scalars is not None:
            begin = code.mul(r, width.taps * lanes)
            factors = [code.load(self.taps, code.add(begin, s * lanes)) for s in range(width.taps)]
        begin = code.mul(row, width.inside * lanes)
        for column, uses in columns_read(width):
            value = code.load(self.plane, code.add(begin, column * lanes))
            for w, s in uses:
                term = code.op("mulf", factors[s], value) if factors else value
                sums[w] = code.op(combine, sums[w], term)
        return sums

    def _write(self, first: Value, n: Value, none: list[Value]) -> list[Value]:
        """What the chain makes of a channel's sums, into its results: all rows as one."""
        code, lanes, convolution = self.code, self.code.lanes, self.convolution
        positions, lane = self.footprint.result, convolution.width.axis
        outer = self._index(code.add(first, n))
        if convolution.height is not None:
            outer[convolution.height.axis] = code.index(0)
        known = self.outputs.known(outer)

        def block(number: Value) -> Callable[[int], None]:
            # The last vector ends where the results do.
            at = code.min(code.mul(number, lanes), max(positions - lanes, 0))
            value = code.load(self.results, code.add(code.mul(n, padded(positions, lanes)), at))
            mask = self._mask(min(positions, lanes))
            return lambda _: self.outputs.write(value, {**outer, lane: at}, lane, mask, known)

        rows_in_turns(code, -(-positions // lanes), 1, block)
        return none
