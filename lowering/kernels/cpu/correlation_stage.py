"""What a correlation reads of a block of its two images: channels side by side or planes in scratch, or in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from iree.compiler.dialects import arith

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.correlation_schedule import CorrelationLayout
from covan_mlir.lowering.kernels.cpu.evaluator import Position, address
from covan_mlir.lowering.kernels.cpu.tiles import transpose


@dataclass(frozen=True)
class Block:
    """What is summed over at a time.

    Attributes:
        outer: position on the outer axes.
        image: the first one.
        first: position on the first dimension.
        scalar: the first of the workgroup on the axis that is not the lanes'.
        lane: the first on the lanes' axis.
    """

    outer: Mapping[str, Value]
    image: Value
    first: Value
    scalar: Value
    lane: Value


class _Stage:
    """An image in scratch."""

    def __init__(self, code: KernelBuilder, layout: CorrelationLayout) -> None:
        self.code, self.layout, self.task = code, layout, layout.task
        self.schedule, self.dtype = layout.schedule, layout.task.step.dtype

    def _flat(self, place: Sequence[Value], sizes: Sequence[int]) -> Value:
        flat = self.code.index(0)
        for at, size in zip(place, sizes, strict=True):
            flat = self.code.add(self.code.mul(flat, size), at)
        return flat

    def _transposed(
        self,
        memory: Value,
        count: int,
        read: Callable[[int, Value, Value | None], Value],
        at: Callable[[Value, int], Value],
    ) -> None:
        """Writes consecutive positions of as many channels as there are lanes, those of a position side by side.

        Args:
            count: of positions.
            read: a vector of them, by channel, first position and mask.
            at: where the channels of a position go, so many behind a multiple of as many as there are lanes.
        """
        code, lanes = self.code, self.code.lanes

        def block(number: Value, length: int) -> None:
            start = code.mul(number, lanes)
            mask = None if length == lanes else code.prefix(length)
            columns = [read(n, start, mask) for n in range(lanes)]
            for n, value in enumerate(transpose(code, columns)[:length]):
                code.store(value, memory, at(start, n))

        def whole(number: Value, none: list[Value]) -> list[Value]:
            block(number, lanes)
            return none

        code.loop(0, count // lanes, 1, [], whole)
        if count % lanes:
            block(code.index(count // lanes), count % lanes)


@dataclass(frozen=True)
class _Run:
    """Elements of the shifted image that lie together, and go to a block's last dimension, or to its last two.

    Attributes:
        count: of them.
        begins: where the first one goes, on each of these dimensions.
        source: where it is in the image, on the first of them.
        masked: elements may lie outside of the image.
    """

    count: int
    begins: tuple[int, ...]
    source: Value
    masked: bool = False


class ShiftedStage(_Stage):
    """The image that is shifted, with what is outside around it: by position, then channel, where lanes run along
    channels; else by channel, then position."""

    def __init__(self, code: KernelBuilder, layout: CorrelationLayout) -> None:
        super().__init__(code, layout)
        self._loaded: dict[Value, Value] = {}

    @cached_property
    def memory(self) -> Value:
        """Its scratch."""
        return self.code.scratch(self.layout.panel if self.layout.channel_lanes else self.layout.planes, self.dtype)

    def begin(self) -> None:
        """Clears it: what is outside of the image in all blocks is not written again."""
        elements = self.layout.panel if self.layout.channel_lanes else self.layout.planes
        self._clear(self.code.index(0), elements)

    def _clear(self, begin: Value, elements: int) -> None:
        code = self.code

        def vector(at: Value, none: list[Value]) -> list[Value]:
            code.store(code.splat(0.0, self.dtype), self.memory, code.add(begin, at))
            return none

        code.loop(0, elements, code.lanes, [], vector)

    # A block

    def fill(self, block: Block) -> None:
        """Copies a block."""
        code, layout, schedule = self.code, self.layout, self.schedule

        def of_vector(image: Value, u: int) -> None:
            base = code.add(code.mul(image, layout.plane * layout.width), u * code.lanes)
            lane, there = code.add(block.lane, u * code.lanes), code.add(block.image, image)

            def line(source: list[Value], to: Value, run: _Run) -> None:
                # Beyond the last channel, that one once more: nobody reads it.
                ragged = self.task.channels % layout.width
                last = self.task.channels - 1
                channels = [code.add(lane, n) for n in range(code.lanes)]
                channels = [code.min(channel, last) for channel in channels] if ragged else channels
                begins = [self._source(block, there, channel, [*source, run.source]) for channel in channels]
                self._transposed(
                    self.memory,
                    run.count,
                    lambda n, start, mask: self._read(begins[n], start, mask, run),
                    lambda start, n: code.add(base, code.mul(code.add(to, self._behind(run, start, n)), layout.width)),
                )

            self._lines(block, self._flattened, line, lambda to: self._blank(base, to))

        def of_channel(image: Value, channel: Value) -> None:
            base = code.mul(code.add(code.mul(image, schedule.group), channel), layout.plane)

            def line(source: list[Value], to: Value, run: _Run) -> None:
                at = code.add(block.scalar, channel)
                begin = self._source(block, code.add(block.image, image), at, [*source, run.source])

                # A vector ends where nothing is, or where the next line is, which is written afterwards.
                def copy(start: Value, none: list[Value], length: int) -> list[Value]:
                    value = self._read(begin, start, None if length == code.lanes else code.prefix(length), run)
                    code.store(value, self.memory, code.add(base, to, run.begins[0], start))
                    return none

                code.spans(0, run.count, code.lanes, [], copy)

            self._lines(block, 1, line, lambda to: self._clear(code.add(base, to), prod(layout.extents[1:])))

        def of_image(image: Value, none: list[Value]) -> list[Value]:
            if layout.channel_lanes:
                for u in range(schedule.vectors):
                    of_vector(image, u)
                return none

            def one(channel: Value, none: list[Value]) -> list[Value]:
                of_channel(image, channel)
                return none

            return code.loop(0, schedule.group, 1, none, one)

        code.loop(0, schedule.images, 1, [], of_image)

    @cached_property
    def _flattened(self) -> int:
        """The last dimensions of which all that is read lies together: two, where rows are short."""
        slides, lanes = self.task.slides, self.code.lanes
        if len(slides) == 1 or (len(slides) == 2 and self.layout.banded):
            return 1
        begin, end = self._inside(len(slides) - 1)
        whole = begin + slides[-1].offset == 0 and end - begin == slides[-1].inside
        return 2 if whole and (end - begin) % lanes else 1

    def _inside(self, d: int) -> tuple[int, int]:
        """Of a dimension of which a block has all, where what is inside of the image begins and ends."""
        slides, extent = self.task.slides[d], self.layout.extents[d]
        begin = min(max(0, -slides.offset), extent)
        return begin, max(begin, min(extent, slides.inside - slides.offset))

    def _run(self, block: Block, flattened: int) -> _Run:
        code, slides, extents = self.code, self.task.slides, self.layout.extents
        if len(slides) == 1 and self.layout.banded:
            source = code.add(code.mul(block.first, slides[0].stride), slides[0].offset)
            return _Run(extents[0], (0,), source, masked=True)
        ends = [self._inside(d) for d in range(len(slides) - flattened, len(slides))]
        count = prod(end - begin for begin, end in ends)
        first = len(slides) - flattened
        return _Run(count, tuple(begin for begin, _ in ends), code.index(ends[0][0] + slides[first].offset))

    def _lines(
        self,
        block: Block,
        flattened: int,
        line: Callable[[list[Value], Value, _Run], None],
        blank: Callable[[Value], None],
    ) -> None:
        """Runs ``line`` on each run of elements: where it is in the image, and where the row begins that it goes to.
        Rows outside of the image are ``blank``."""
        code, slides, extents = self.code, self.task.slides, self.layout.extents
        run, leading = self._run(block, flattened), len(slides) - flattened
        inner = prod(extents[leading:])

        def level(d: int, source: list[Value], to: Value) -> None:
            if d == leading:
                line(source, code.mul(to, inner), run)
                return
            banded = d == 0 and self.layout.banded
            begin, end = (0, extents[0]) if banded else self._inside(d)

            def one(n: Value, none: list[Value]) -> list[Value]:
                at, here = code.add(n, begin), code.add(code.mul(to, extents[d]), n, begin)
                there = code.add(at, slides[d].offset)
                if banded:
                    there = code.add(there, code.mul(block.first, slides[d].stride))
                    rows = code.mul(here, prod(extents[1:]))
                    inside = code.within(there, slides[d].inside)
                    code.branch(inside, lambda: level(d + 1, [*source, there], here), lambda: blank(rows))
                else:
                    level(d + 1, [*source, there], here)
                return none

            code.loop(0, end - begin, 1, [], one)

        level(0, [], code.index(0))

    def _blank(self, base: Value, to: Value) -> None:
        """Clears a vector of channels at all positions of a row."""
        code, width = self.code, self.layout.width

        def one(n: Value, none: list[Value]) -> list[Value]:
            at = code.add(base, code.mul(code.add(to, n), width))
            code.store(code.splat(0.0, self.dtype), self.memory, at)
            return none

        code.loop(0, prod(self.layout.extents[1:]), 1, [], one)

    def _behind(self, run: _Run, start: Value, n: int) -> Value:
        """Where an element goes, from where the row begins.

        Args:
            start: a multiple of the lanes.
        """
        code, extents = self.code, self.layout.extents
        if len(run.begins) == 1:
            return code.add(start, n, run.begins[0])
        wide = self.task.slides[-1].inside
        if code.lanes % wide == 0:
            row, column = code.add(code.divmod(start, wide)[0], n // wide), code.index(n % wide)
        else:
            row, column = code.divmod(code.add(start, n), wide)
        return code.add(code.mul(code.add(row, run.begins[0]), extents[-1]), column, run.begins[1])

    def _source(self, block: Block, image: Value, channel: Value, places: list[Value]) -> Value:
        """Where an element lies in memory.

        Args:
            places: on the dimensions that are shifted, as far as they are not 0.
        """
        code, task = self.code, self.task
        index = {**block.outer, task.channel: channel}
        if task.image:
            index[task.image] = image
        zero = code.index(0)
        leading = [index[at.axis] if at.axis else zero for at in task.shifted.at[: -len(task.slides)]]
        shape = [task.sizes[axis] for axis in task.chain.values[task.shifted.name].axes]
        return self._flat([*leading, *places, *[zero] * (len(task.slides) - len(places))], shape)

    def _read(self, begin: Value, start: Value, mask: Value | None, run: _Run) -> Value:
        code, memory = self.code, self.code.memory[self.task.shifted.name]
        if run.masked:
            first = code.broadcast(code.cast("index_cast", code.add(run.source, start), "i32"))
            size = code.splat(self.task.slides[0].inside, "i32")
            # As numbers without a sign, negative ones are large.
            inside = arith.cmpi(arith.CmpIPredicate.ult, code.op("addi", first, code.iota()), size)
            mask = inside if mask is None else code.op("andi", inside, mask)
        return code.load(memory, code.add(begin, start), mask)

    # Tiles

    def forget(self) -> None:
        """What was loaded is not seen any more."""
        self._loaded = {}

    def _at(self, place: Sequence[Value], tap: Sequence[Value]) -> Value:
        code = self.code
        moved = [
            code.add(code.mul(at, slides.stride), code.mul(shift, slides.dilation))
            for at, shift, slides in zip(place, tap, self.task.slides, strict=True)
        ]
        return self._flat(moved, self.layout.extents)

    def vector(self, image: Value, place: Sequence[Value], tap: Sequence[Value], u: int) -> Value:
        """A vector of channels: what one shift shows at a position, another one shows at the next."""
        code, layout = self.code, self.layout
        at = code.mul(code.add(code.mul(image, layout.plane), self._at(place, tap)), layout.width)
        at = code.add(at, u * code.lanes)
        if at not in self._loaded:
            self._loaded[at] = code.load(self.memory, at)
        return self._loaded[at]

    def scalar(self, image: Value, place: Sequence[Value], tap: Sequence[Value], tile: Value, n: int) -> Value:
        """An element of a tile's channel."""
        code, layout = self.code, self.layout
        plane = code.add(code.mul(image, self.schedule.group), tile, n)
        return code.scalar(self.memory, code.add(code.mul(plane, layout.plane), self._at(place, tap)))


class StillStage(_Stage):
    """The image that is read at one place: by position, then row, where lanes run along these; else in place."""

    @cached_property
    def memory(self) -> Value:
        """Its scratch."""
        return self.code.scratch(self.layout.panel, self.dtype)

    def _address(self, block: Block, image: Value, place: Sequence[Value], row: Value) -> Value:
        code, task = self.code, self.task
        index = {**block.outer, task.row: row}
        if task.image:
            index[task.image] = code.add(block.image, image)
        for d, (slides, at) in enumerate(zip(task.slides, place, strict=True)):
            index[slides.axis] = code.add(at, block.first) if d == 0 else at
        return address(code, task.chain.values[task.still.name].axes, task.sizes, Position(index, None))[0]

    def fill(self, block: Block) -> None:
        """Copies a block, where lanes run along rows."""
        code, layout, task = self.code, self.layout, self.task
        if layout.channel_lanes:
            return
        count, zero = prod(layout.positions), code.index(0)

        def of_vector(image: Value, u: int) -> None:
            rows = [code.add(block.lane, u * code.lanes + n) for n in range(code.lanes)]
            rows = [code.min(row, task.rows - 1) for row in rows] if task.rows % layout.width else rows
            begins = [self._address(block, image, [zero] * len(task.slides), row) for row in rows]
            base = code.add(code.mul(image, count * layout.width), u * code.lanes)
            self._transposed(
                self.memory,
                count,
                lambda n, start, mask: code.load(code.memory[task.still.name], code.add(begins[n], start), mask),
                lambda start, n: code.add(base, code.mul(code.add(start, n), layout.width)),
            )

        def of_image(image: Value, none: list[Value]) -> list[Value]:
            for u in range(self.schedule.vectors):
                of_vector(image, u)
            return none

        code.loop(0, self.schedule.images, 1, [], of_image)

    def scalar(self, block: Block, image: Value, place: Sequence[Value], tile: Value, n: int) -> Value:
        """An element of a tile's row."""
        at = self._address(block, image, place, self.code.add(block.scalar, tile, n))
        return self.code.scalar(self.code.memory[self.task.still.name], at)

    def vector(self, image: Value, place: Sequence[Value], u: int) -> Value:
        """A vector of rows."""
        code, layout = self.code, self.layout
        at = code.add(code.mul(image, prod(layout.positions)), self._flat(place, layout.positions))
        return code.load(self.memory, code.add(code.mul(at, layout.width), u * code.lanes))
