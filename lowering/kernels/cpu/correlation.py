"""Correlations of two images at a few shifts: vector lanes run along the channels of one, the other is read as scalars.

For ``y[o, i, r, s] = f(sum over n, h, w of g[n, o, h, w] * x[n, i, h + r - 1, w + s - 1])``, a workgroup runs this
nest, here with lanes along ``i``::

    i = vectors * lanes channels; o = a group of rows
    sums[o, r, s, i] = 0
    for block of n, of images, and of h, of height positions:
        panel[n, h, w, i] = x[n, i, h, w]                 # transposed in registers, with what is outside around it
        for o in group step scalars; r, s step taps:
            tile[scalars, vectors, taps] = 0              # registers
            for n, h, w in block:
                tile[o, i, r, s] += g[n, o, h, w] * panel[n, h + r, w + s, i]
            sums[o, r, s, i] += tile
    turned[o, i, r, s] = sums[o, r, s, i]                 # transposed in registers
    y[o, i, r, s] = f(turned[o, i, r, s])

A shift is another place in the panel, so one transposition serves all of them. With lanes along ``o`` (first layers,
whose images have few channels) the panel is of ``g``, and ``x`` is copied into planes with what is outside around it.
The last group, and the last tile of one, begin where they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.correlation_roles import Correlation
from covan_mlir.lowering.kernels.cpu.correlation_schedule import CorrelationLayout, CorrelationSchedule
from covan_mlir.lowering.kernels.cpu.correlation_stage import Block, ShiftedStage, StillStage
from covan_mlir.lowering.kernels.cpu.evaluator import VectorEvaluator, inputs
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.cpu.tiles import transpose


class CorrelationWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, task: Correlation, sizes: Mapping[str, Size], schedule: CorrelationSchedule
    ) -> None:
        self.code, self.task, self.sizes, self.schedule = code, task, sizes, schedule
        self.layout = layout = CorrelationLayout(task, schedule)
        self.dtype = task.step.dtype
        self.shifted, self.still = ShiftedStage(code, layout), StillStage(code, layout)
        evaluator = VectorEvaluator(code, task.chain, inputs(code, task.chain, sizes))
        self.outputs = RowOutputs(code, task.chain, task.step, evaluator, sizes, frozenset((*task.outer, task.row)))

    @cached_property
    def sums(self) -> Value:
        """Of all register tiles, one after the other."""
        return self.code.scratch(self.layout.sums, self.dtype)

    @cached_property
    def turned(self) -> Value:
        """The results of a vector of lanes, those of a lane side by side."""
        return self.code.scratch(self.layout.turned, self.dtype)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """How many there are; no size is known at run time only."""
        return self.layout.units

    def write(self) -> None:
        """The whole function."""
        code, layout, schedule, task = self.code, self.layout, self.schedule, self.task
        rest, panel = code.divmod(code.workgroup, layout.panels)
        rest, group = code.divmod(rest, layout.groups)
        outer: dict[str, Value] = {}
        for axis in reversed(task.outer):
            rest, outer[axis] = code.divmod(rest, self.sizes[axis])
        first = self._fitting(group, schedule.group, layout.down)
        column = code.mul(panel, layout.width)
        self._clear(self.sums, layout.sums)
        self.shifted.begin()
        bands = task.slides[0].positions // schedule.height

        def block(number: Value, none: list[Value]) -> list[Value]:
            image, band = code.divmod(number, bands)
            here = Block(outer, code.mul(image, schedule.images), code.mul(band, schedule.height), first, column)
            self.shifted.fill(here)
            self.still.fill(here)
            self._each_tile(lambda tile, taps, slot: self._add(here, tile, taps, slot))
            return none

        code.loop(0, layout.blocks, 1, [], block)
        self._write_results(outer, first, column)

    def _fitting(self, number: Value, step: int, total: int) -> Value:
        """Where a step of this number begins: the last one ends where all does."""
        at = self.code.mul(number, step)
        return self.code.min(at, max(total - step, 0)) if total % step else at

    def _clear(self, memory: Value, elements: int) -> None:
        code = self.code

        def vector(at: Value, none: list[Value]) -> list[Value]:
            code.store(code.splat(0.0, self.dtype), memory, at)
            return none

        code.loop(0, elements, code.lanes, [], vector)

    # Register tiles

    def _each_tile(self, body: Callable[[Value, list[Value], Value], None]) -> None:
        """Runs ``body`` on the first scalar of a tile in the group, its first shifts, and the place of its sums."""
        code, layout, schedule, slides = self.code, self.layout, self.schedule, self.task.slides
        each = layout.accumulators * code.lanes

        def tile(number: Value, none: list[Value]) -> list[Value]:
            first = self._fitting(number, schedule.scalars, schedule.group)

            def taps(level: int, chosen: list[Value], flat: Value) -> None:
                if level == len(slides):
                    body(first, chosen, code.mul(flat, each))
                    return
                count = slides[level].taps // schedule.taps[level]

                def one(n: Value, none: list[Value]) -> list[Value]:
                    tap = code.mul(n, schedule.taps[level])
                    taps(level + 1, [*chosen, tap], code.add(code.mul(flat, count), n))
                    return none

                code.loop(0, count, 1, [], one)

            taps(0, [], number)
            return none

        code.loop(0, layout.tiles, 1, [], tile)

    def _add(self, block: Block, tile: Value, taps: Sequence[Value], slot: Value) -> None:
        """Adds a block's products, summed by themselves first, to the sums of a tile: errors grow with the lengths of
        the blocks and with their number, not with the product of both (Higham 1993, section 3)."""
        code = self.code
        for n, value in enumerate(self._multiplied(block, tile, taps)):
            at = code.add(slot, n * code.lanes)
            code.store(code.op("addf", code.load(self.sums, at), value), self.sums, at)

    def _multiplied(self, block: Block, tile: Value, taps: Sequence[Value]) -> list[Value]:
        """The tile after a block: by scalar, then by vector; shifts are the last of whose they are."""
        code, layout, schedule = self.code, self.layout, self.schedule
        own = [[code.add(tap, by) for tap, by in zip(taps, each, strict=True)] for each in layout.tile_taps]
        first = [(n, u) for n in range(schedule.scalars) for u in range(schedule.vectors)]

        def add(image: Value, place: list[Value], held: Sequence[Value]) -> list[Value]:
            if layout.channel_lanes:
                columns = [self.shifted.vector(image, place, tap, u) for u in range(schedule.vectors) for tap in own]
                scalars = [self.still.scalar(block, image, place, tile, n) for n in range(schedule.scalars)]
            else:
                columns = [self.still.vector(image, place, u) for u in range(schedule.vectors)]
                scalars = [
                    self.shifted.scalar(image, place, tap, tile, n) for n in range(schedule.scalars) for tap in own
                ]
            new, sums = [], iter(held)
            for scalar in scalars:
                factor = code.broadcast(scalar)
                new += [code.op("addf", next(sums), code.op("mulf", factor, column)) for column in columns]
            return new

        def nest(level: int, image: Value, place: list[Value], held: Sequence[Value]) -> list[Value]:
            if level == len(layout.positions) - 1:
                return code.spans(
                    0,
                    layout.positions[level],
                    schedule.unroll,
                    held,
                    lambda w, inner, count: row(image, place, w, inner, count),
                )
            return code.loop(
                0, layout.positions[level], 1, held, lambda at, inner: nest(level + 1, image, [*place, at], inner)
            )

        def row(image: Value, place: list[Value], begin: Value, held: Sequence[Value], count: int) -> list[Value]:
            self.shifted.forget()
            for by in range(count):
                held = add(image, [*place, code.add(begin, by)], held)
            return list(held)

        zero = code.splat(0.0, self.dtype)
        sums = [zero] * (len(first) * len(own))
        return code.loop(0, schedule.images, 1, sums, lambda image, inner: nest(0, image, [], inner))

    def _slot(self, scalar: Value, n: Value, u: int, tap: int) -> Value:
        """Where the sums are of a scalar of a tile's number, and of a shift.

        Args:
            scalar: number of the tile.
            n: of the scalar in it.
        """
        code, layout, schedule = self.code, self.layout, self.schedule
        counts = [slides.taps for slides in self.task.slides]
        flat, inside, beside = 0, 0, self.task.taps
        for count, held in zip(counts, schedule.taps, strict=True):
            beside //= count
            digit = tap // beside % count
            flat, inside = flat * (count // held) + digit // held, inside * held + digit % held
        own = len(layout.tile_taps)
        tiles = code.add(code.mul(scalar, layout.tap_tiles), flat)
        if layout.channel_lanes:
            vector = code.add(code.mul(n, schedule.vectors * own), u * own + inside)
        else:
            vector = code.add(code.mul(code.add(code.mul(n, own), inside), schedule.vectors), u)
        return code.mul(code.add(code.mul(tiles, layout.accumulators), vector), code.lanes)

    # Results

    def _write_results(self, outer: Mapping[str, Value], first: Value, column: Value) -> None:
        """What the chain makes of the sums of a group, into its results."""
        code, schedule, layout = self.code, self.schedule, self.layout

        def of_vector(u: int, lane: Value) -> None:
            def turn(n: Value, slot: Callable[[int], Value]) -> None:
                if layout.channel_lanes:
                    self._turn(slot, code.index(0))
                    self._row_of_lanes(outer, code.add(first, n), lane)
                else:
                    self._turn(slot, code.mul(n, self.task.taps))

            self._each_scalar(u, turn)
            if not layout.channel_lanes:
                self._rows_of_lanes(outer, first, lane)

        for u in range(schedule.vectors):
            of_vector(u, code.add(column, u * code.lanes))

    def _each_scalar(self, u: int, body: Callable[[Value, Callable[[int], Value]], None]) -> None:
        """Runs ``body`` on each scalar of the group, and the places of its sums in a vector, by shift."""
        code, schedule = self.code, self.schedule

        def tile(number: Value, none: list[Value]) -> list[Value]:
            first = self._fitting(number, schedule.scalars, schedule.group)

            def one(n: Value, none: list[Value]) -> list[Value]:
                body(code.add(first, n), lambda tap: self._slot(number, n, u, tap))
                return none

            return code.loop(0, schedule.scalars, 1, none, one)

        code.loop(0, self.layout.tiles, 1, [], tile)

    def _turn(self, slot: Callable[[int], Value], begin: Value) -> None:
        """Writes the sums of all shifts, those of each lane side by side. What is written beyond the last one is
        written again by the next lane."""
        code, lanes, taps = self.code, self.code.lanes, self.task.taps
        for start in range(0, taps, lanes):
            start = min(start, max(taps - lanes, 0))
            read = [code.load(self.sums, slot(min(start + n, taps - 1))) for n in range(lanes)]
            for lane, value in enumerate(transpose(code, read)):
                code.store(value, self.turned, code.add(begin, lane * self.layout.pitch + start))

    def _row_of_lanes(self, outer: Mapping[str, Value], row: Value, lane: Value) -> None:
        """A row's results of a vector of channels: they lie together."""
        code, task = self.code, self.task
        index = {**outer, task.row: row, **dict.fromkeys(task.run, code.index(0)), task.channel: lane}
        left = code.op("subi", code.index(task.channels), lane)
        whole = task.channels % code.lanes == 0
        count = code.lanes * task.taps if whole else code.mul(code.min(left, code.lanes), task.taps)
        self._write_run(index, count, code.index(0))

    def _rows_of_lanes(self, outer: Mapping[str, Value], first: Value, lane: Value) -> None:
        """The results of a vector of rows, of a group of channels."""
        code, task = self.code, self.task
        count = code.min(code.op("subi", code.index(task.rows), lane), code.lanes)

        def one(n: Value, none: list[Value]) -> list[Value]:
            index = {
                **outer,
                task.row: code.add(lane, n),
                **dict.fromkeys(task.run, code.index(0)),
                task.channel: first,
            }
            self._write_run(index, self.schedule.group * task.taps, code.mul(n, self.layout.pitch))
            return none

        code.loop(0, count, 1, [], one)

    def _write_run(self, index: Mapping[str, Value], count: Size, begin: Value) -> None:
        """Results that lie together, of sums that do."""
        code, along = self.code, self.task.run[-1]
        known = self.outputs.known(index)

        def write(at: Value, valid: Value | None) -> None:
            sums = code.load(self.turned, code.add(begin, at))
            self.outputs.write(sums, {**index, along: at}, along, valid, known)

        if isinstance(count, int):

            def span(at: Value, none: list[Value], length: int) -> list[Value]:
                write(at, None if length == code.lanes else code.prefix(length))
                return none

            code.spans(0, count, code.lanes, [], span)
            return

        def step(at: Value, none: list[Value]) -> list[Value]:
            write(at, code.prefix(code.min(code.op("subi", count, at), code.lanes)))
            return none

        code.loop(0, count, code.lanes, [], step)
