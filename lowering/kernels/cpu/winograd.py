"""Convolutions by Winograd's minimal filtering: what a 3 x 3 window slides over is taken apart into tiles that overlap,
and a tile's results are made of products of transforms, of which there are 2.25 or 4 times fewer; 1.44 or 1.78 times
where the window strides by 2.

For ``y[k, h, w] = f(sum over c, r, s of x[c, stride * h + r - 1, stride * w + s - 1] * g[k, c, r, s])``, a workgroup
runs this nest::

    block of down * across tiles; panel of output channels k          # fused: all panels, one after the other
    parts[point, tile, c] = B^T x[c, tile] B                          # fused; else a dispatch of its own, before
    for point in the 16 or 36 of a tile:                          # with a stride of 2, 25 or 81
        for tiles of the block step rows:
            products[rows, vectors] = 0                               # registers
            for c:
                products[rows, vectors] += parts[point, tile, c] * filters[point, c, k]
    for vector of output channels, row of tiles:
        results[k, h, w] = A^T products[tile] A                       # transposed in registers, in scratch
        y[k, h, w] = f(results[k, h, w])

``filters = G g G^T`` are computed ahead of time. Lanes run along channels: images of any size fill them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution import Corner
from covan_mlir.lowering.kernels.cpu.evaluator import VectorEvaluator, inputs
from covan_mlir.lowering.kernels.cpu.register_tile import Factors, Place, outer_products
from covan_mlir.lowering.kernels.cpu.row_outputs import RowOutputs
from covan_mlir.lowering.kernels.cpu.tiles import transpose
from covan_mlir.lowering.kernels.cpu.winograd_input import BlockInput
from covan_mlir.lowering.kernels.cpu.winograd_layout import WinogradLayout

AHEAD = 12
"""Channels ahead of what is read that filters are asked for: from the last cache or from memory, they come too late
otherwise."""


def parts_name(layout: WinogradLayout) -> str:
    """The tensor of the transformed input."""
    return f"{layout.convolution.window.name}.parts"


@dataclass(frozen=True)
class Block:
    """A block of tiles.

    Attributes:
        outer: position on the outer axes.
        corner: of its results.
        number: among all blocks.
    """

    outer: Mapping[str, Value]
    corner: Corner
    number: Value


def _block(code: KernelBuilder, layout: WinogradLayout, sizes: Mapping[str, Size], number: Value) -> Block:
    rest, across = code.divmod(number, layout.blocks[1])
    rest, down = code.divmod(rest, layout.blocks[0])
    outer: dict[str, Value] = {}
    for axis in reversed(layout.convolution.outer):
        rest, outer[axis] = code.divmod(rest, sizes[axis])
    size, schedule = layout.schedule.size, layout.schedule
    return Block(outer, Corner(code.mul(down, size * schedule.down), code.mul(across, size * schedule.across)), number)


def _blocks(code: KernelBuilder, layout: WinogradLayout, sizes: Mapping[str, Size]) -> Size:
    outer = code.product(sizes[axis] for axis in layout.convolution.outer)
    return code.mul(outer, layout.blocks[0] * layout.blocks[1])


class TransformWriter:
    """Writes the code of a workgroup that transforms the input: a vector of channels of a block."""

    def __init__(self, code: KernelBuilder, layout: WinogradLayout, sizes: Mapping[str, Size]) -> None:
        self.code, self.layout, self.sizes = code, layout, sizes

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """One per block and vector of channels, of sizes that may be others than the writer's own."""
        return self.code.mul(_blocks(self.code, self.layout, sizes), self.layout.lines)

    def write(self) -> None:
        """The whole function."""
        code, layout = self.code, self.layout
        rest, line = code.divmod(code.workgroup, layout.lines)
        block = _block(code, layout, self.sizes, rest)
        image = code.scratch(layout.staged, "f32")
        parts = BlockInput(code, layout, self.sizes, image, code.memory[parts_name(layout)])
        parts.write(block.outer, block.corner.top, block.corner.left, line, code.mul(rest, layout.parts))


class WinogradWriter:
    """Writes the code of a workgroup that multiplies.

    Args:
        filters: name of the transformed filter.
    """

    def __init__(self, code: KernelBuilder, layout: WinogradLayout, sizes: Mapping[str, Size], filters: str) -> None:
        self.code, self.layout, self.sizes, self.schedule = code, layout, sizes, layout.schedule
        convolution = layout.convolution
        chain = convolution.chain
        self.lane, self.row = convolution.width.axis, convolution.rows[0]
        evaluator = VectorEvaluator(code, chain, inputs(code, chain, sizes))
        fixed = frozenset((*convolution.outer, *convolution.rows))
        self.outputs = RowOutputs(code, chain, convolution.step, evaluator, sizes, fixed)
        self.filters = code.memory[filters]

    @cached_property
    def parts(self) -> Value:
        """The transformed input."""
        if self.schedule.fused:
            return self.code.scratch(self.layout.parts, "f32")
        return self.code.memory[parts_name(self.layout)]

    @cached_property
    def products(self) -> Value:
        """Scratch, by point, tile and output channel of a panel."""
        return self.code.scratch(self.layout.products, "f32")

    @cached_property
    def turned(self) -> Value:
        """Scratch for the results of a group of tiles, by row and column, lanes along output channels."""
        size = self.schedule.size
        return self.code.scratch(size * self.layout.group * size * self.code.lanes, "f32")

    @cached_property
    def results(self) -> Value:
        """Scratch for the results of a row of tiles, by output channel, row and column."""
        return self.code.scratch(self.code.lanes * self.schedule.size * self.layout.columns, "f32")

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """One per block, and, where it finds that transformed, panel; of sizes that may be others than the writer's."""
        blocks = _blocks(self.code, self.layout, sizes)
        return blocks if self.schedule.fused else self.code.mul(blocks, self.layout.panels)

    def write(self) -> None:
        """The whole function."""
        code, layout = self.code, self.layout
        if not self.schedule.fused:
            panel, number = code.divmod(code.workgroup, _blocks(code, layout, self.sizes))
            block = _block(code, layout, self.sizes, number)
            self._panel(block, panel, code.mul(number, layout.parts))
            return
        block = _block(code, layout, self.sizes, code.workgroup)
        # There are no products yet when the input is staged: it lies where they will.
        parts = BlockInput(code, layout, self.sizes, self.products, self.parts)

        def line(n: Value, none: list[Value]) -> list[Value]:
            parts.write(block.outer, block.corner.top, block.corner.left, n, code.index(0))
            return none

        def multiply(n: Value, none: list[Value]) -> list[Value]:
            self._panel(block, n, code.index(0))
            return none

        code.loop(0, layout.lines, 1, [], line)
        code.loop(0, layout.panels, 1, [], multiply)

    def _panel(self, block: Block, panel: Value, base: Value) -> None:
        code, layout = self.code, self.layout
        filters = code.mul(panel, layout.points * layout.channels * layout.panel)

        def point(n: Value, none: list[Value]) -> list[Value]:
            self._multiply(
                n,
                code.add(base, code.mul(n, layout.parts_of_point)),
                code.add(filters, code.mul(n, layout.channels * layout.panel)),
            )
            return none

        code.loop(0, layout.points, 1, [], point)
        first = code.mul(panel, layout.panel)
        vectors: Size = self.schedule.vectors
        if layout.panels * self.schedule.vectors * code.lanes - layout.filters >= code.lanes:
            left = code.op("subi", code.index(layout.filters), first)
            vectors = code.min(code.divmod(code.add(left, code.lanes - 1), code.lanes)[0], self.schedule.vectors)

        def vector(u: Value, none: list[Value]) -> list[Value]:
            def line(i: Value, none: list[Value]) -> list[Value]:
                self._interpolate(u, i)
                self._write(block, code.add(first, code.mul(u, code.lanes)), i)
                return none

            code.loop(0, self.schedule.down, 1, [], line)
            return none

        code.loop(0, vectors, 1, [], vector)

    def _multiply(self, point: Value, parts: Value, filters: Value) -> None:
        """The products of a point, of all tiles of a block and a panel.

        Args:
            parts, filters: where those of the point begin.
        """
        code, layout, vectors = self.code, self.layout, self.schedule.vectors

        def rows(first: Value, none: list[Value], count: int) -> list[Value]:
            begin = code.add(parts, code.mul(first, layout.pitch))
            turn, _ = code.divmod(first, self.schedule.rows)
            share = code.add(code.mul(turn, layout.channels * code.lanes), layout.channels * layout.panel)

            def scalar(i: int, place: Place, tap: int) -> Value:
                return code.scalar(self.parts, code.add(begin, place["c"], i * layout.pitch))

            def vector(u: int, place: Place, tap: int) -> Value:
                at = code.add(filters, code.mul(place["c"], layout.panel), u * code.lanes)
                if not layout.asks_next:
                    code.prefetch(self.filters, code.add(at, AHEAD * layout.panel))
                elif not u:
                    next_point = code.add(filters, share, code.mul(place["c"], code.lanes))
                    code.prefetch(self.filters, next_point, near=False)
                return code.load(self.filters, at)

            tile = [[code.splat(0.0, "f32")] * vectors for _ in range(count)]
            tile = outer_products(code, [("c", 0, layout.channels)], tile, Factors(scalar, vector))
            to = code.add(code.mul(point, layout.products_of_point), code.mul(first, layout.panel))
            for i, sums in enumerate(tile):
                for u, value in enumerate(sums):
                    code.store(value, self.products, code.add(to, i * layout.panel + u * code.lanes))
            return none

        code.spans(0, layout.tiles, self.schedule.rows, [], rows)

    def _interpolate(self, u: Value, i: Value) -> None:
        """The results of a row of tiles for a vector of output channels, transposed into scratch."""
        code, layout, lanes = self.code, self.layout, self.code.lanes
        algorithm, size, across = layout.algorithm, self.schedule.size, self.schedule.across
        span, wide = algorithm.span, layout.group * size

        def tile(j: Value, q: Value) -> None:
            place = code.add(code.mul(code.add(code.mul(i, across), j), layout.panel), code.mul(u, lanes))
            down = []
            for s in range(span):
                at = [code.add(place, (r * span + s) * layout.products_of_point) for r in range(span)]
                down.append(algorithm.interpolate(code, [code.load(self.products, n) for n in at]))
            for r in range(size):
                for s, value in enumerate(algorithm.interpolate(code, [column[r] for column in down])):
                    to = code.add(code.mul(q, size * lanes), (r * wide + s) * lanes)
                    code.store(value, self.turned, to)

        def group(g: Value, none: list[Value]) -> list[Value]:
            first = code.mul(g, layout.group)

            def one(q: Value, none: list[Value]) -> list[Value]:
                tile(code.add(first, q), q)
                return none

            count: Size = layout.group
            if across % layout.group:
                count = code.min(code.op("subi", code.index(across), first), layout.group)
            code.loop(0, count, 1, [], one)

            def row(r: Value, none: list[Value]) -> list[Value]:
                for n in range(0, wide, lanes):
                    at = code.add(code.mul(r, wide * lanes), n * lanes)
                    loaded = [code.load(self.turned, code.add(at, k * lanes)) for k in range(lanes)]
                    to = code.add(code.mul(r, layout.columns), code.mul(g, wide), n)
                    for k, value in enumerate(transpose(code, loaded)):
                        code.store(value, self.results, code.add(to, k * size * layout.columns))
                return none

            code.loop(0, size, 1, [], row)
            return none

        code.loop(0, -(-across // layout.group), 1, [], group)

    def _write(self, block: Block, first: Value, i: Value) -> None:
        """What the chain makes of a row of tiles for a vector of output channels."""
        code, layout, size, lanes = self.code, self.layout, self.schedule.size, self.code.lanes
        top = code.add(block.corner.top, code.mul(i, size))

        def bounded(count: int, total: int, begin: Value, whole: bool) -> Size:
            return count if whole else code.min(code.op("subi", code.index(total), begin), count)

        wide = size * self.schedule.across
        wide = min(wide, layout.width.outside)
        columns = bounded(wide, layout.width.outside, block.corner.left, layout.width.outside % wide == 0)
        whole = layout.height.outside % (size * self.schedule.down) == 0
        lines = bounded(size, layout.height.outside, top, whole)

        def one(k: Value, none: list[Value]) -> list[Value]:
            index = {**block.outer, self.row: code.add(first, k)}
            known = self.outputs.known(index)

            def line(r: Value, none: list[Value]) -> list[Value]:
                begin = code.mul(code.add(code.mul(k, size), r), layout.columns)
                there = {**index, layout.height.axis: code.add(top, r)}

                def chunk(w: Value, none: list[Value]) -> list[Value]:
                    left = code.min(code.op("subi", code.size(columns), w), lanes)
                    at = {**there, self.lane: code.add(block.corner.left, w)}
                    sums = code.load(self.results, code.add(begin, w))
                    self.outputs.write(sums, at, self.lane, code.prefix(left), known)
                    return none

                code.loop(0, columns, lanes, [], chunk)
                return none

            code.loop(0, lines, 1, [], line)
            return none

        count = bounded(lanes, layout.filters, first, layout.filters % lanes == 0)
        code.loop(0, count, 1, [], one)
