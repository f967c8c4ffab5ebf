"""The input of a block of tiles, transformed: vector lanes run along channels.

::

    image[row, column, lanes] = x[channels, row, column]  # transposed in registers, with zeros outside of the input
    for tile of the block:
        parts[point, tile, channels] = B^T image[rows, columns of the tile] B
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iree.compiler.dialects import arith

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.evaluator import widen
from covan_mlir.lowering.kernels.cpu.tiles import transpose
from covan_mlir.lowering.kernels.cpu.winograd_layout import WinogradLayout


@dataclass(frozen=True)
class BlockInput:
    """Transforms vectors of channels of a block.

    Attributes:
        image: scratch for one vector of channels of what the block is made of.
        parts: what is written.
    """

    code: KernelBuilder
    layout: WinogradLayout
    sizes: Mapping[str, Size]
    image: Value
    parts: Value

    def write(self, outer: Mapping[str, Value], top: Value, left: Value, line: Value, base: Value) -> None:
        """One vector of channels.

        Args:
            top, left: first row and column of the block's results.
            line: number of the vector.
            base: where the block's parts begin.
        """
        code, layout = self.code, self.layout
        first = code.mul(line, code.lanes)
        above, before = (code.mul(position, layout.stride) for position in (top, left))
        self._stage(outer, code.add(above, layout.height.offset), before, first)
        self._transform(code.add(base, first))

    def _stage(self, outer: Mapping[str, Value], top: Value, left: Value, first: Value) -> None:
        code, layout = self.code, self.layout
        channels = [code.add(first, n) for n in range(code.lanes)]
        if layout.channels % code.lanes:
            # Beyond the last channel, that one once more: nobody reads it.
            channels = [code.min(channel, layout.channels - 1) for channel in channels]
        planes = [self._plane(outer, channel) for channel in channels]
        rows, columns = layout.image

        def row(n: Value, none: list[Value]) -> list[Value]:
            at, to = code.add(top, n), code.mul(n, columns * code.lanes)
            exists = code.op("andi", code.below(code.index(-1), at), code.below(at, layout.height.inside))
            source = code.mul(at, layout.width.inside)
            code.branch(exists, lambda: self._row(planes, source, left, to), lambda: self._blank(to, 0, columns))
            return none

        code.loop(0, rows, 1, [], row)

    def _plane(self, outer: Mapping[str, Value], channel: Value) -> Value:
        """Where a channel begins in the input."""
        code, convolution = self.code, self.layout.convolution
        index = {**outer, convolution.contracted[0]: channel}
        axes = convolution.chain.values[convolution.window.name].axes
        offset, stride = code.index(0), code.product(self.sizes[axis] for axis in axes[-2:])
        for axis, position in reversed([*zip(axes, convolution.window.at, strict=True)][:-2]):
            assert position.axis is not None
            offset = code.add(offset, code.mul(index[position.axis], stride))
            stride = code.mul(stride, self.sizes[axis])
        return offset

    def _row(self, planes: list[Value], source: Value, left: Value, to: Value) -> None:
        code, lanes, slides = self.code, self.code.lanes, self.layout.width
        memory = code.memory[self.layout.convolution.window.name]
        whole = self.layout.blocks[1] == 1

        def chunk(at: Value, none: list[Value], length: int) -> list[Value]:
            column = code.add(left, at, slides.offset)
            positions = code.op("addi", code.broadcast(code.cast("index_cast", column, "i32")), code.iota())
            # As numbers without a sign, negative ones are large.
            valid = arith.cmpi(arith.CmpIPredicate.ult, positions, code.splat(slides.inside, "i32"))
            begin = code.add(source, column)
            dtype = self.layout.convolution.window.dtype
            loaded = [widen(code, code.load(memory, code.add(plane, begin), valid), dtype) for plane in planes]
            for n, value in enumerate(transpose(code, loaded)[:length]):
                code.store(value, self.image, code.add(to, code.mul(code.add(at, n), lanes)))
            return none

        columns = self.layout.image[1]
        # Of a block that is as wide as the input it is known beforehand what is outside.
        last = min(columns, slides.inside - slides.offset) if whole else columns
        code.spans(0, last, lanes, [], chunk)
        self._blank(to, last, columns)

    def _blank(self, to: Value, first: int, last: int) -> None:
        code = self.code
        zero = code.splat(0.0, "f32")

        def one(at: Value, none: list[Value]) -> list[Value]:
            code.store(zero, self.image, code.add(to, code.mul(at, code.lanes)))
            return none

        if first < last:
            code.loop(first, last, 1, [], one)

    def _transform(self, base: Value) -> None:
        code, layout, schedule = self.code, self.layout, self.layout.schedule
        algorithm, columns = layout.algorithm, layout.image[1]
        span, step = algorithm.span, schedule.size * layout.stride

        def tile(i: Value, j: Value) -> None:
            corner = code.mul(code.add(code.mul(i, step * columns), code.mul(j, step)), code.lanes)
            to = code.add(base, code.mul(code.add(code.mul(i, schedule.across), j), layout.pitch))
            down = [
                algorithm.transform(
                    code,
                    [code.load(self.image, code.add(corner, (r * columns + s) * code.lanes)) for r in range(span)],
                )
                for s in range(span)
            ]
            for r in range(span):
                for s, value in enumerate(algorithm.transform(code, [column[r] for column in down])):
                    code.store(value, self.parts, code.add(to, (r * span + s) * layout.parts_of_point))

        def line(i: Value, none: list[Value]) -> list[Value]:
            def one(j: Value, none: list[Value]) -> list[Value]:
                tile(i, j)
                return none

            code.loop(0, schedule.across, 1, [], one)
            return none

        code.loop(0, schedule.down, 1, [], line)
