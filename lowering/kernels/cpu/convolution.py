"""Direct convolutions: vector lanes run along the positions of the results, the filter is read as scalars, in place.

For ``y[k, h, w] = f(sum over c, r, s of x[c, h + r - 1, w + s - 1] * f[k, c, r, s])``, a workgroup runs this nest::

    h, w = height rows and width columns of the results; k = a group of output channels
    sums[k, p] = 0                                        # p counts through all rows of h, see `planes`
    for block of c, of depth positions:
        planes[c, p] = x[c, p]                            # staged in scratch, with what is outside around it
        for k in group step rows:
            for p step vectors * lanes:
                tile[rows, vectors] = 0                   # registers
                for c in block:
                    for r, s:                             # written out
                        tile[rows, vectors] += f[k, c, r, s] * planes[c, p + r * pitch + s]
                sums[k, p] += tile
    y[k, h, w] = f(sums[k, p])

Pooling is the same nest without a filter: ``tile = max(tile, planes[p + r * pitch + s])``.

With one block of channels, ``sums`` holds one tile's rows, and what they become is written tile by tile; straight from
the registers where no position is computed for nothing (see `planes`) and little is made of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.lowering.kernels.cpu.accumulators import combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution
from covan_mlir.lowering.kernels.cpu.convolution_schedule import ConvolutionSchedule, Footprint, Span
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator, inputs, widen
from covan_mlir.lowering.kernels.cpu.planes import Planes
from covan_mlir.lowering.kernels.cpu.register_tile import Factors, Place, Tile, outer_products
from covan_mlir.lowering.kernels.cpu.row_outputs import Known, RowOutputs
from covan_mlir.lowering.kernels.cpu.row_tiles import RowTiles
from covan_mlir.lowering.kernels.cpu.scalar_rows import ScalarRows, ask_next, asked_weight
from covan_mlir.lowering.kernels.cpu.words import INTEGER_SUMS


@dataclass(frozen=True)
class Corner:
    """The first row and column of the results that a workgroup computes."""

    top: Value
    left: Value


class ConvolutionWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, convolution: Convolution, sizes: Mapping[str, Size], schedule: ConvolutionSchedule
    ) -> None:
        self.code, self.convolution, self.sizes, self.schedule = code, convolution, sizes, schedule
        chain = convolution.chain
        self.evaluator = VectorEvaluator(code, chain, inputs(code, chain, sizes))
        self.dtype = computed(convolution.step.dtype)
        self.footprint = Footprint.of(convolution, schedule)
        self.rows = RowTiles(code, convolution.rows, schedule.rows, schedule.group)
        fixed = frozenset((*convolution.outer, *convolution.rows))
        self.outputs = RowOutputs(code, chain, convolution.step, self.evaluator, sizes, fixed)
        self.pitch = self.footprint.pitch

    @cached_property
    def planes(self) -> Planes:
        """What the window slides over."""
        footprint = self.footprint
        return Planes.make(
            self.code,
            footprint.layout,
            self.sizes,
            footprint.channels,
            footprint.width,
            words=footprint.words,
        )

    @cached_property
    def scalars(self) -> ScalarRows | None:
        """The filter, where it is staged."""
        pitch, code, expr = self.footprint.scalars, self.code, self.convolution.scalars
        if not pitch or expr is None:
            return None
        memory = code.scratch(self.schedule.group * pitch + code.lanes, self.dtype)
        return ScalarRows(code, self.evaluator, expr, self.rows, self.footprint.summed, self.sizes, pitch, memory)

    @cached_property
    def sums(self) -> Value:
        """Of the rows that are held."""
        # The last vector of a row of the results may begin anywhere.
        return self.code.scratch(self.footprint.rows * self.pitch + self.code.lanes, self.dtype)

    @property
    def _bands(self) -> tuple[int, int]:
        """How often a workgroup's rows and columns of the results fit into all."""
        height, width = self.convolution.height, self.convolution.width
        rows = -(-height.outside // self.schedule.height) if height is not None else 1
        return rows, -(-width.outside // self.schedule.width)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, of sizes that may be others than the writer's own."""
        code = self.code
        outer = code.product(sizes[axis] for axis in self.convolution.outer)
        return code.mul(code.mul(outer, self.rows.groups(sizes)), self._bands[0] * self._bands[1])

    def write(self) -> None:
        """The whole function."""
        code, convolution = self.code, self.convolution
        rest, across = code.divmod(code.workgroup, self._bands[1])
        rest, down = code.divmod(rest, self._bands[0])
        rest, group = code.divmod(rest, self.rows.groups(self.sizes))
        outer: dict[str, Value] = {}
        for axis in reversed(convolution.outer):
            rest, outer[axis] = code.divmod(rest, self.sizes[axis])
        first = code.mul(group, self.schedule.group)
        corner = Corner(code.mul(down, self.schedule.height), code.mul(across, self.schedule.width))
        if self.footprint.blocks == 1:
            whole = self.sizes[convolution.contracted[0]] if convolution.contracted else 1
            self._stage(outer, corner, first, code.index(0), whole)

            def tile(row: Value, rows: int) -> None:
                indices = [{**outer, **self.rows.position(code.add(row, i), self.sizes)} for i in range(rows)]
                known = [self.outputs.known(index) for index in indices] if self.footprint.direct else []

                def take(sums: Tile, at: Value) -> None:
                    if self.footprint.direct:
                        for index, of_row, vectors in zip(indices, known, sums, strict=True):
                            self._write_run(index, of_row, corner, vectors, at)
                    else:
                        self._store(sums, code.index(0), at)

                self._multiply(outer, first, row, rows, code.index(0), whole, take)
                if not self.footprint.direct:
                    self._write(outer, corner, row, code.index(0), rows)

            self.rows.each(first, self.sizes, tile)
            return
        self._clear()
        depth, channels = self.schedule.depth, code.size(self.sizes[convolution.contracted[0]])

        def block(start: Value, none: list[Value]) -> list[Value]:
            count = code.min(code.op("subi", channels, start), depth)
            self._stage(outer, corner, first, start, count)

            def tile(row: Value, rows: int) -> None:
                held = code.op("subi", row, first)
                self._multiply(
                    outer, first, row, rows, start, count, lambda sums, at: self._store(sums, held, at, add=True)
                )

            self.rows.each(first, self.sizes, tile)
            return none

        code.loop(0, channels, depth, [], block)
        self.rows.each(
            first, self.sizes, lambda row, rows: self._write(outer, corner, row, code.op("subi", row, first), rows)
        )

    def _stage(self, outer: Mapping[str, Value], corner: Corner, first: Value, start: Value, count: Size) -> None:
        self.planes.fill(outer, corner.top, corner.left, start, self._turns(count))
        if self.scalars is not None:
            if not self.convolution.contracted:
                count = self.sizes[self.footprint.summed[0]]
            self.scalars.fill(outer, first, start, count)

    def _turns(self, count: Size) -> Size:
        """How often something is multiplied for each tap, of so many positions on the first contracted axis."""
        words = self.footprint.words
        return self.code.ceildiv(count, words.words.count) if words is not None else count

    def _clear(self) -> None:
        code = self.code

        def vector(at: Value, none: list[Value]) -> list[Value]:
            code.store(code.splat(self.convolution.step.initial.value, self.dtype), self.sums, at)
            return none

        code.loop(0, self.footprint.rows * self.pitch, code.lanes, [], vector)

    def _multiply(
        self,
        outer: Mapping[str, Value],
        first: Value,
        row: Value,
        rows: int,
        start: Value,
        count: Size,
        take: Callable[[Tile, Value], None],
    ) -> None:
        """Multiplies a block of some rows, all along the run.

        Args:
            first: row of the group.
            take: is given the sums of each register tile, and where that begins.
        """
        code, convolution, layout = self.code, self.convolution, self.footprint.layout
        indices = [{**outer, **self.rows.position(code.add(row, i), self.sizes)} for i in range(rows)]
        contracted, packing = convolution.contracted, self.footprint.packing
        begin = packing.begin(code, outer, row, start) if packing is not None else None

        def scalar(i: int, place: Place, tap: int) -> Value:
            there = {**place, **{axis: code.index(n) for axis, n in layout.written(tap).items()}}
            if self.scalars is not None:
                return self.scalars.load(code.add(code.op("subi", row, first), i), there)
            if packing is not None:
                if packing.words is not None:
                    there[packing.along] = code.mul(there[packing.along], packing.words.count)
                return packing.scalar(code, begin, there, i)
            index = {**indices[i], **there}
            if contracted:
                index[contracted[0]] = code.add(start, place[contracted[0]])
            assert convolution.scalars is not None
            return self.evaluator.scalar(convolution.scalars, Position(index, None))

        # Rows of filters of more taps are long enough to be foreseen.
        single = len(layout.taps) == 1 and not layout.rolled and bool(contracted) and packing is None
        weight = asked_weight(convolution.chain, convolution.scalars, convolution.rows) if single else None

        def vector(u: int, at: Value, place: Place, tap: int, idle: int) -> Value:
            if not u and idle > 0 and weight is not None:
                there = {**indices[0], **place, contracted[0]: code.add(start, place[contracted[0]])}
                turn = place[contracted[-1]]
                ask_next(code, weight, self.sizes, there, convolution.rows[0], rows, turn, near=False)
            return self.planes.load(code.add(at, u * code.lanes), place, tap)

        ranges = [(axis, 0, self.sizes[axis] if n else self._turns(count)) for n, axis in enumerate(contracted)]
        ranges += [(axis, 0, self.sizes[axis]) for axis in layout.rolled]

        for span in self.footprint.spans:

            def panel(at: Value, none: list[Value], span: Span = span) -> list[Value]:
                zero = code.splat(convolution.step.initial.value, self.dtype)
                idle = rows * span.vectors - rows - span.vectors  # loads, two of which go with two products
                factors = Factors(
                    scalar if convolution.scalars is not None else None,
                    lambda u, place, tap: vector(u, at, place, tap, idle),
                    len(layout.taps),
                    combining(convolution.step)[0],
                    multiply_add=self._added if self.footprint.words is not None else None,
                )
                take(outer_products(code, ranges, [[zero] * span.vectors for _ in range(rows)], factors), at)
                return none

            lanes = code.lanes
            code.loop(span.start * lanes, span.stop * lanes, span.vectors * lanes, [], panel)

    def _added(self, sums: Value, scalar: Value, vector: Value) -> Value:
        """Sums, with all products of words: of integers the second factor is the weight."""
        words = self.footprint.words
        assert words is not None
        first, second = (vector, scalar) if words.words.integers else (scalar, vector)
        return words.words.added(self.code, sums, first, second)

    def _settled(self, sums: Value, index: Mapping[str, Value]) -> Value:
        """Sums of a row as the chain computes with them."""
        code, offsets = self.code, self.footprint.offsets
        if offsets is not None:
            row = index[self.convolution.rows[0]]
            sums = code.op("addi", sums, offsets.of_row(code, index, row))
        return widen(code, sums, self.dtype) if self.dtype == INTEGER_SUMS else sums

    def _store(self, tile: Tile, held: Value, at: Value, *, add: bool = False) -> None:
        """Keeps sums, or adds to those that are kept.

        Args:
            held: number of the first row among those whose sums are held.
        """
        code = self.code
        for i, vectors in enumerate(tile):
            for u, value in enumerate(vectors):
                to = code.add(code.mul(code.add(held, i), self.pitch), at, u * code.lanes)
                if add:
                    value = code.op(combining(self.convolution.step)[0], code.load(self.sums, to), value)
                code.store(value, self.sums, to)

    def _write_run(
        self, index: Mapping[str, Value], known: Known, corner: Corner, vectors: Sequence[Value], at: Value
    ) -> None:
        """What the chain makes of a register tile's sums of a row, into its results: all of their rows are one."""
        code, width, height = self.code, self.convolution.width, self.convolution.height
        lanes, run, total = code.lanes, self.footprint.layout.run, width.outside
        begin, there = at, dict(index)
        left: Size = run
        if height is not None:
            there[height.axis] = code.index(0)
            total *= height.outside
            begin = code.add(at, code.mul(corner.top, width.outside))
            if total % run:  # the last band is shorter
                left = code.min(code.op("subi", code.index(total), code.mul(corner.top, width.outside)), run)
        for u, value in enumerate(vectors):
            valid = None
            if total % run or run % (len(vectors) * lanes) or len(self.footprint.spans) > 1:
                count = code.op("subi", code.size(left), code.add(at, u * lanes))
                valid = code.prefix(code.max(code.min(count, lanes), 0))
            place = {**there, width.axis: code.add(begin, u * lanes)}
            self.outputs.write(self._settled(value, index), place, width.axis, valid, known)

    def _write(self, outer: Mapping[str, Value], corner: Corner, row: Value, held: Value, rows: int) -> None:
        """What the chain makes of some rows' sums, into its results."""
        code, convolution, layout = self.code, self.convolution, self.footprint.layout
        lane, height = convolution.width.axis, convolution.height

        def one(i: Value, none: list[Value]) -> list[Value]:
            index = {**outer, **self.rows.position(code.add(row, i), self.sizes)}
            known = self.outputs.known(index)

            def line(h: Value, none: list[Value]) -> list[Value]:
                begin = code.add(code.mul(code.add(held, i), self.pitch), code.mul(h, layout.pitch))
                there = {**index, **({height.axis: code.add(corner.top, h)} if height is not None else {})}

                def chunk(w: Value, none: list[Value], valid: Value | None) -> list[Value]:
                    at = {**there, lane: code.add(corner.left, w)}
                    sums = self._settled(code.load(self.sums, code.add(begin, w)), index)
                    self.outputs.write(sums, at, lane, valid, known)
                    return none

                self._columns(corner, chunk)
                return none

            lines: Size = self.schedule.height
            if height is not None and height.outside % self.schedule.height:
                lines = code.min(code.op("subi", code.index(height.outside), corner.top), self.schedule.height)
            code.loop(0, lines, 1, [], line)
            return none

        code.loop(0, rows, 1, [], one)

    def _columns(self, corner: Corner, body: Callable[[Value, list[Value], Value | None], list[Value]]) -> None:
        """Runs ``body`` on each vector of columns, with a mask of those that exist."""
        code, columns, lanes = self.code, self.schedule.width, self.code.lanes
        total = self.convolution.width.outside
        if total % columns == 0:
            code.spans(
                0, columns, lanes, [], lambda w, v, length: body(w, v, None if length == lanes else code.prefix(length))
            )
            return
        count = code.min(code.op("subi", code.index(total), corner.left), columns)

        def masked(w: Value, values: list[Value]) -> list[Value]:
            return body(w, values, code.prefix(code.min(code.op("subi", count, w), lanes)))

        code.loop(0, count, lanes, [], masked)
