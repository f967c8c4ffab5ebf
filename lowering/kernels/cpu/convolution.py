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

With one block of channels, ``sums`` holds one tile's rows, and what they become is written tile by tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.lowering.kernels.cpu.accumulators import combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution
from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator, inputs
from covan_mlir.lowering.kernels.cpu.planes import PlaneLayout, Planes
from covan_mlir.lowering.kernels.cpu.register_tile import Factors, Place, outer_products
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.cpu.row_tiles import RowTiles
from covan_mlir.lowering.kernels.cpu.scalar_rows import ScalarRows, in_place, row_length


@dataclass(frozen=True)
class ConvolutionSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        rows, vectors: of the register tile: output channels, vectors of positions.
        group: output channels that a workgroup computes.
        height, width: rows and columns of the results that it computes.
        depth: positions of the first contracted axis that are staged together.
    """

    rows: int
    vectors: int
    group: int
    height: int
    width: int
    depth: int


@dataclass(frozen=True)
class Footprint:
    """What a schedule takes of scratch.

    Attributes:
        blocks: of channels.
        panels: register tiles along a run.
    """

    convolution: Convolution
    schedule: ConvolutionSchedule

    @cached_property
    def layout(self) -> PlaneLayout:
        """Of the planes."""
        return PlaneLayout(self.convolution, self.schedule.height, self.schedule.width)

    @cached_property
    def blocks(self) -> int:
        """Of channels."""
        contracted = self.convolution.contracted
        return -(-self.convolution.sizes[contracted[0]] // self.schedule.depth) if contracted else 1

    @cached_property
    def channels(self) -> int:
        """Positions on the contracted axes that are staged together."""
        return self.schedule.depth * self.convolution.count(self.convolution.contracted[1:])

    @cached_property
    def width(self) -> int:
        """Columns of a register tile."""
        return self.schedule.vectors * self.schedule.lanes

    @cached_property
    def panels(self) -> int:
        """Register tiles along a run."""
        return -(-self.layout.run // self.width)

    @cached_property
    def rows(self) -> int:
        """Whose sums are held."""
        return self.schedule.group if self.blocks > 1 else self.schedule.rows

    @cached_property
    def summed(self) -> tuple[str, ...]:
        """All axes that are summed over, those of taps last."""
        slides = (self.convolution.height, self.convolution.width)
        taps = (one.tap for one in slides if one is not None and one.tap is not None)
        return (*self.convolution.contracted, *taps)

    @cached_property
    def scalars(self) -> int:
        """Elements of a row of the filter, where that is staged, or 0."""
        if self.convolution.scalars is None or in_place(self.convolution.chain, self.convolution.scalars):
            return 0
        depth = self.schedule.depth if self.convolution.contracted else self.convolution.sizes[self.summed[0]]
        return row_length(self.convolution.sizes, self.summed, depth, self.schedule.lanes)

    @cached_property
    def elements(self) -> int:
        """All scratch."""
        planes = self.channels * self.layout.channel + self.width + self.schedule.lanes
        sums = self.rows * self.panels * self.width
        return planes + sums + self.schedule.group * self.scalars + 2 * self.schedule.lanes


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
        self.footprint = Footprint(convolution, schedule)
        self.rows = RowTiles(code, convolution.rows, schedule.rows, schedule.group)
        fixed = frozenset((*convolution.outer, *convolution.rows))
        self.outputs = RowOutputs(code, chain, convolution.step, self.evaluator, sizes, fixed)
        self.pitch = self.footprint.panels * self.footprint.width

    @cached_property
    def planes(self) -> Planes:
        """What the window slides over."""
        footprint = self.footprint
        return Planes.make(self.code, footprint.layout, self.sizes, footprint.channels, footprint.width)

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
                self._multiply(outer, first, row, code.index(0), rows, code.index(0), whole, fresh=True)
                self._write(outer, corner, row, code.index(0), rows)

            self.rows.each(first, self.sizes, tile)
            return
        self._clear()
        depth, channels = self.schedule.depth, code.size(self.sizes[convolution.contracted[0]])

        def block(start: Value, none: list[Value]) -> list[Value]:
            count = code.min(code.op("subi", channels, start), depth)
            self._stage(outer, corner, first, start, count)
            self.rows.each(
                first,
                self.sizes,
                lambda row, rows: self._multiply(outer, first, row, code.op("subi", row, first), rows, start, count),
            )
            return none

        code.loop(0, channels, depth, [], block)
        self.rows.each(
            first, self.sizes, lambda row, rows: self._write(outer, corner, row, code.op("subi", row, first), rows)
        )

    def _stage(self, outer: Mapping[str, Value], corner: Corner, first: Value, start: Value, count: Size) -> None:
        self.planes.fill(outer, corner.top, corner.left, start, count)
        if self.scalars is not None:
            if not self.convolution.contracted:
                count = self.sizes[self.footprint.summed[0]]
            self.scalars.fill(outer, first, start, count)

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
        held: Value,
        rows: int,
        start: Value,
        count: Size,
        *,
        fresh: bool = False,
    ) -> None:
        """Adds a block's products to the sums of some rows, all along the run.

        Args:
            first: row of the group.
            held: number of the first row among those whose sums are held.
            fresh: nothing was added yet.
        """
        code, convolution, layout = self.code, self.convolution, self.footprint.layout
        indices = [{**outer, **self.rows.position(code.add(row, i), self.sizes)} for i in range(rows)]
        contracted = convolution.contracted
        slides = (convolution.height, convolution.width)
        taps = [one.tap if one is not None else None for one in slides]

        def scalar(i: int, place: Place, tap: int) -> Value:
            written = {axis: code.index(n) for axis, n in zip(taps, layout.taps[tap], strict=True) if axis is not None}
            there = {**written, **place}
            if self.scalars is not None:
                return self.scalars.load(code.add(code.op("subi", row, first), i), there)
            index = {**indices[i], **there}
            if contracted:
                index[contracted[0]] = code.add(start, place[contracted[0]])
            assert convolution.scalars is not None
            return self.evaluator.scalar(convolution.scalars, Position(index, None))

        ranges = [(axis, 0, self.sizes[axis] if n else count) for n, axis in enumerate(contracted)]
        if layout.rolled is not None:
            ranges.append((layout.rolled, 0, self.sizes[layout.rolled]))

        def panel(at: Value, none: list[Value]) -> list[Value]:
            def offset(i: int, u: int) -> Value:
                return code.add(code.mul(code.add(held, i), self.pitch), at, u * code.lanes)

            vectors = range(self.schedule.vectors)
            zero = code.splat(convolution.step.initial.value, self.dtype)
            tile = [[zero for _ in vectors] for _ in range(rows)]
            combine = combining(convolution.step)[0]
            factors = Factors(
                scalar if convolution.scalars is not None else None,
                lambda u, place, tap: self.planes.load(code.add(at, u * code.lanes), place, tap),
                len(layout.taps),
                combine,
            )
            for i, vectors_of_row in enumerate(outer_products(code, ranges, tile, factors)):
                for u, value in enumerate(vectors_of_row):
                    total = value if fresh else code.op(combine, code.load(self.sums, offset(i, u)), value)
                    code.store(total, self.sums, offset(i, u))
            return none

        code.loop(0, self.pitch, self.footprint.width, [], panel)

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
                    self.outputs.write(code.load(self.sums, code.add(begin, w)), at, lane, valid, known)
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
