"""Planes: what a convolution's window slides over, staged in scratch so that every tap is a shift.

The rows that a workgroup needs are laid out with what is outside of the input around them, one after the other without
a gap, and taken apart by stride: with a stride of 2, even and odd positions are planes of their own. Then all results
of a plane are one run of positions, and what a tap multiplies is the same run, shifted::

    plane[channel, phase, i * pitch + j] = x[channel, stride_h * (h + i) + phase_h + offset_h,
                                                      stride_w * j + phase_w + offset_w]

Between two rows of the results lie ``pitch - width`` positions that are computed for nothing. None do where each column
of the window has planes of its own, as wide as the results: as many times as much is staged, and all positions are
computed for something::

    plane[channel, phase_h, s, i * width + j] = x[channel, stride_h * (h + i) + phase_h + offset_h,
                                                           stride_w * j + dilation_w * s + offset_w]

Where several channels are multiplied at a time (`covan_mlir.lowering.kernels.cpu.words`), they lie in the planes of
one, as words: all that counts channels here counts such words then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations

from covan_mlir.fred.expression import Affine
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import (
    MOST_TAPS,
    Convolution,
    Sliding,
    WindowWords,
    position_on,
)
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.plane_rows import PlaneRows
from covan_mlir.lowering.kernels.cpu.register_tile import Place
from covan_mlir.lowering.kernels.cpu.window_columns import WindowColumns, WordColumns

LINE = 16
"""Elements of a cache line, in single precision."""
MOST_WRITTEN = 16
"""Taps that are written out; of more, the rows of the filter are looped over."""


@dataclass(frozen=True)
class PlaneLayout:
    """Where what lies, in elements.

    Attributes:
        height: rows of the results that a workgroup computes.
        width: columns of the results that it computes.
        apart: columns of the window have planes of their own.
    """

    convolution: Convolution
    height: int
    width: int
    apart: bool = False

    @cached_property
    def pitch(self) -> int:
        """From one row to the next."""
        return self.width + (0 if self.apart else self.convolution.width.halo)

    @cached_property
    def across(self) -> tuple[int, ...]:
        """Where, beside a window, the planes of a row begin."""
        width = self.convolution.width
        return tuple(width.dilation * tap for tap in range(width.taps)) if self.apart else width.phases

    @cached_property
    def rows(self) -> int:
        """Of a plane."""
        slides = self.convolution.height
        return self.height + (slides.halo if slides is not None else 0)

    @cached_property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """The planes of a channel: interleaved parts of rows, and of columns."""
        slides = self.convolution.height
        return tuple(combinations(slides.phases if slides is not None else (0,), self.across))

    @cached_property
    def channel(self) -> int:
        """All planes of a channel. Those of a single tap begin at cache lines: no vector of them crosses one."""
        elements = len(self.phases) * self.rows * self.pitch
        return elements if len(self.taps) > 1 else -(-elements // LINE) * LINE

    @cached_property
    def run(self) -> int:
        """From the first to the last result of a plane."""
        return (self.height - 1) * self.pitch + self.width

    @cached_property
    def rolled(self) -> tuple[str, ...]:
        """The axes of the filter that are looped over: its rows where there are many taps, and the taps of a row where
        these are, as far as they lie at regular distances."""
        slides, width = self.convolution.height, self.convolution.width
        axes = []
        if slides is not None and slides.tap is not None and slides.taps * width.taps > MOST_WRITTEN:
            axes += [slides.tap] if _regular(slides) else []
        if width.tap is not None and width.taps > MOST_TAPS and not self.apart:
            axes += [width.tap] if _regular(width) else []
        return tuple(axes)

    @cached_property
    def taps(self) -> tuple[tuple[int, int], ...]:
        """The positions of the filter in a plane that are written out."""
        slides = (self.convolution.height, self.convolution.width)
        rows, columns = (one.taps if one is not None and one.tap not in self.rolled else 1 for one in slides)
        return tuple(combinations(range(rows), range(columns)))

    def written(self, number: int) -> dict[str, int]:
        """The position of a tap that is written out, by axis of the filter."""
        slides = (self.convolution.height, self.convolution.width)
        axes = [one.tap if one is not None else None for one in slides]
        at = zip(axes, self.taps[number], strict=True)
        return {axis: n for axis, n in at if axis is not None and axis not in self.rolled}

    def tap(self, number: int) -> int:
        """Where what a tap multiplies begins, in a channel's planes; of a loop, where it begins."""
        width, slides = self.convolution.width, self.convolution.height
        r, s = self.taps[number]
        column, right = (width.dilation * s, 0) if self.apart else (width.phase(s), width.shift(s))
        phase = self.phases.index((slides.phase(r) if slides is not None else 0, column))
        down = slides.shift(r) if slides is not None else 0
        return (phase * self.rows + down) * self.pitch + right


@dataclass(frozen=True)
class Planes:
    """The planes of a block of channels.

    Attributes:
        words: what is multiplied, if they are words of channels.
    """

    code: KernelBuilder
    layout: PlaneLayout
    sizes: Mapping[str, Size]
    memory: Value
    words: WindowWords | None = None

    @staticmethod
    def make(
        code: KernelBuilder,
        layout: PlaneLayout,
        sizes: Mapping[str, Size],
        channels: int,
        read: int,
        *,
        words: WindowWords | None = None,
    ) -> Planes:
        """In the stack frame.

        Args:
            channels: positions on all contracted axes together.
            read: elements that are read together, perhaps beyond the end.
        """
        elements = channels * layout.channel + read + code.lanes
        dtype = "i32" if words is not None else computed(layout.convolution.step.dtype)
        return Planes(code, layout, sizes, code.scratch(elements, dtype), words)

    @property
    def _convolution(self) -> Convolution:
        return self.layout.convolution

    def _channel(self, place: Place) -> Value:
        """Where the planes of a position on the contracted axes begin; the first one counts from the block's first."""
        code, flat = self.code, self.code.index(0)
        for n, axis in enumerate(self._convolution.contracted):
            flat = code.add(code.mul(flat, self.sizes[axis] if n else 1), place[axis])
        return code.mul(flat, self.layout.channel)

    def load(self, at: Value, place: Place, tap: int) -> Value:
        """What a tap multiplies for a vector of the run."""
        value = self.code.load(self.memory, self._position(at, place, tap))
        return self.words.words.unpacked(self.code, value) if self.words is not None else value

    def scalar(self, at: Value, place: Place, tap: int) -> Value:
        """What a tap multiplies for a position of the run."""
        return self.code.scalar(self.memory, self._position(at, place, tap))

    def _position(self, at: Value, place: Place, tap: int) -> Value:
        code, layout, plane = self.code, self.layout, self.layout.rows * self.layout.pitch
        begin = code.add(self._channel(place), at, layout.tap(tap))
        for slides, planes, step in (
            (self._convolution.height, len(layout.across) * plane, layout.pitch),
            (self._convolution.width, plane, 1),
        ):
            if slides is not None and slides.tap in layout.rolled:
                shift, phase = code.divmod(code.mul(place[slides.tap], slides.dilation), slides.stride)
                begin = code.add(begin, code.mul(phase, planes), code.mul(shift, step))
        return begin

    def _rows(self, index: Mapping[str, Value]) -> PlaneRows:
        code, convolution = self.code, self._convolution
        columns = WindowColumns(code, convolution)
        if self.words is not None:
            columns = WordColumns(code, convolution, self._apart, self.words, self._behind(index, self.words))
        return PlaneRows(code, convolution, self.layout.pitch, self.memory, columns)

    def _behind(self, index: Mapping[str, Value], words: WindowWords) -> Size:
        """Channels of a word behind its first one that there are."""
        channel, most = self._convolution.contracted[0], words.words.count - 1
        channels = self._convolution.sizes[channel]
        if channels % words.words.count == 0:
            return most
        return self.code.min(self.code.op("subi", self.code.index(channels - 1), index[channel]), most)

    @property
    def _apart(self) -> Size:
        """Elements of the input from a channel to the next one."""
        convolution = self._convolution
        axes, channel = convolution.chain.values[convolution.window.name].axes, convolution.contracted[0]
        position = position_on(convolution.window, channel)
        inner = axes[convolution.window.at.index(position) + 1 :]
        return self.code.mul(self.code.product(self.sizes[axis] for axis in inner), dict(position.terms)[channel])

    def fill(self, outer: Mapping[str, Value], top: Value, left: Value, start: Value, count: Size) -> None:
        """Stages a block.

        Args:
            top, left: first row and column of the results.
            start: of the first contracted axis.
            count: of it; of words, so many words.
        """
        code, contracted = self.code, self._convolution.contracted

        def channel(n: int, place: dict[str, Value]) -> None:
            if n < len(contracted):
                stop = self.sizes[contracted[n]] if n else count
                self._loop(stop, lambda at: channel(n + 1, {**place, contracted[n]: at}))
                return
            step = self.words.words.count if self.words is not None else 1
            first = {contracted[0]: code.add(start, code.mul(place[contracted[0]], step))} if contracted else {}
            self._stage({**outer, **place, **first}, self._channel(place), top, left)

        channel(0, {})

    def _loop(self, stop: Size, body: Callable[[Value], None]) -> None:
        def inside(at: Value, none: list[Value]) -> list[Value]:
            body(at)
            return none

        self.code.loop(0, stop, 1, [], inside)

    def _stage(self, index: Mapping[str, Value], begin: Value, top: Value, left: Value) -> None:
        """The planes of a channel, in the order in which they lie: what is written beyond the end of one is written
        again."""
        code, layout, slides = self.code, self.layout, self._convolution.height
        size = layout.rows * layout.pitch
        across = layout.across
        if slides is None:
            for n, phase in enumerate(across):
                self._plane(index, code.add(begin, n * size), phase, None, left)
            return
        first, step = slides.phases[0], slides.phases[1] - slides.phases[0] if len(slides.phases) > 1 else 1
        regular = slides.phases == tuple(range(first, first + step * len(slides.phases), step))

        def rows(number: Value, down: Value) -> None:
            at = code.add(code.mul(top, slides.stride), down, slides.offset)
            for n, phase in enumerate(across):
                to = code.add(begin, code.mul(number, len(across) * size), n * size)
                self._plane(index, to, phase, at, left)

        if regular:
            self._loop(len(slides.phases), lambda n: rows(n, code.add(code.mul(n, step), first)))
        else:
            for n, down in enumerate(slides.phases):
                rows(code.index(n), code.index(down))

    def _plane(self, index: Mapping[str, Value], begin: Value, phase: int, top: Value | None, left: Value) -> None:
        """One of them.

        Args:
            top: row of the input, if that has rows; the others follow by strides.
            left: column of the results.
        """
        code, layout, slides = self.code, self.layout, self._convolution.height
        rows = self._rows(index)

        def row(i: Value) -> None:
            to = code.add(begin, code.mul(i, layout.pitch))
            at = code.add(top, code.mul(i, slides.stride)) if top is not None and slides is not None else None
            source, exists = self._row(index, at)

            def copy() -> None:
                if layout.width == self._convolution.width.outside:
                    rows.whole(source, to, phase)
                else:
                    rows.band(source, to, phase, left)

            if exists is None:
                copy()
            else:
                code.branch(exists, copy, lambda: rows.blank(to, layout.pitch))

        self._loop(layout.rows, row)

    def _row(self, index: Mapping[str, Value], height: Value | None) -> tuple[Value, Value | None]:
        """-> (where a row of the input begins, whether it exists; None: it does)."""
        code, convolution = self.code, self._convolution
        axes = convolution.chain.values[convolution.window.name].axes
        offset, exists, stride = code.index(0), None, self.sizes[axes[-1]]
        slides = convolution.height
        for axis, position in reversed([*zip(axes, convolution.window.at, strict=True)][:-1]):
            slid = slides is not None and slides.axis in position.axes
            at = height if slid else self._affine(position, index)
            if slid or not self._always_inside(position, self.sizes[axis]):
                there = code.op(
                    "andi",
                    code.below(code.index(-1), at),
                    code.below(at, self.sizes[axis]),
                )
                exists = there if exists is None else code.op("andi", exists, there)
            offset = code.add(offset, code.mul(at, stride))
            stride = code.mul(stride, self.sizes[axis])
        return offset, exists

    def _affine(self, position: Affine, index: Mapping[str, Value]) -> Value:
        terms = [self.code.mul(index[axis], coefficient) for axis, coefficient in position.terms]
        return self.code.add(*terms, position.offset) if terms else self.code.index(position.offset)

    def _always_inside(self, position: Affine, size: Size) -> bool:
        if position.axis is not None and self.sizes[position.axis] is size:
            return True
        sizes = self._convolution.sizes
        low, high = position.bounds(sizes)
        return low >= 0 and ((isinstance(size, int) and high < size) or position.axis is not None)


def _regular(slides: Sliding) -> bool:
    """Whether the parts that taps read follow each other without a gap, so that a tap's is found by its number."""
    return slides.phases == tuple(range(len(slides.phases)))
