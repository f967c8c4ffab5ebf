"""The rows of planes: what of a row of the input lies a stride apart, with what is outside of the input around it."""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler.dialects import arith

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, Sliding
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import widen

MOST_SHUFFLED = 8
"""Stride up to which elements are picked from whole vectors."""


@dataclass(frozen=True)
class PlaneRows:
    """Writes rows of planes, in whole vectors: what is written beyond the end of one is written again by the next.

    Attributes:
        pitch: length of a row.
    """

    code: KernelBuilder
    convolution: Convolution
    pitch: int
    memory: Value

    @property
    def _width(self) -> Sliding:
        return self.convolution.width

    def whole(self, source: Value, to: Value, phase: int) -> None:
        """A row that holds all columns of the results: where it leaves the input is known beforehand.

        Args:
            source, to: where it begins in the input and in the planes.
        """
        code, slides, lanes = self.code, self._width, self.code.lanes
        left = max(0, -((phase + slides.offset) // slides.stride))
        first = slides.stride * left + phase + slides.offset
        count = max(0, min(self.pitch - left, (slides.inside - 1 - first) // slides.stride + 1))
        if left:
            self.blank(to, min(left, self.pitch))

        def chunk(at: Value, none: list[Value], length: int) -> list[Value]:
            begin = code.add(source, code.mul(at, slides.stride), first)
            last = slides.stride * (length - 1) + 1  # elements from the first to the last one
            value = self._elements(begin, [None if n + lanes <= last else max(last - n, 0) for n in self._loads])
            if length < lanes:
                value = code.op("select", code.prefix(length), value, self._outside)
            code.store(value, self.memory, code.add(to, at, left))
            return none

        if count > 0:
            code.spans(0, count, lanes, [], chunk)
        written = left + -(-count // lanes) * lanes
        if written < self.pitch:
            self.blank(code.add(to, written), self.pitch - written)

    def band(self, source: Value, to: Value, phase: int, column: Value) -> None:
        """A row that begins at some column of the results."""
        code, slides = self.code, self._width

        def chunk(at: Value, none: list[Value]) -> list[Value]:
            position = code.add(code.mul(code.add(column, at), slides.stride), phase + slides.offset)
            masks = [self._inside(code.add(position, n), 1) for n in self._loads]
            value = self._elements(code.add(source, position), masks)
            if self.convolution.window.outside.value != 0:
                value = code.op("select", self._inside(position, slides.stride), value, self._outside)
            code.store(value, self.memory, code.add(to, at))
            return none

        code.loop(0, self.pitch, code.lanes, [], chunk)

    def blank(self, to: Value, length: int) -> None:
        """What is outside of the input, for so many positions at least."""
        code = self.code
        for at in range(0, length, code.lanes):
            code.store(self._outside, self.memory, code.add(to, at))

    @property
    def _outside(self) -> Value:
        dtype = computed(self.convolution.window.dtype)
        return self.code.splat(self.convolution.window.outside.value, dtype)

    @property
    def _loads(self) -> range:
        """Where the vectors begin that hold a vector's elements."""
        lanes, stride = self.code.lanes, self._width.stride
        return range(0, lanes * stride if stride <= MOST_SHUFFLED else 1, lanes)

    def _inside(self, position: Value, step: int) -> Value:
        """Which of the positions ``position, position + step, ...`` the input has."""
        code = self.code
        positions = code.op("addi", code.broadcast(code.cast("index_cast", position, "i32")), code.iota(step))
        # As numbers without a sign, negative ones are large.
        return arith.cmpi(arith.CmpIPredicate.ult, positions, code.splat(self._width.inside, "i32"))

    def _elements(self, begin: Value, valid: list[int | Value | None]) -> Value:
        """Elements that lie a stride apart.

        Args:
            valid: of each vector that is loaded, how many of its elements or which of them are read; None: all. Of
                gathered elements, the number of the last one.
        """
        code, stride, lanes, window = self.code, self._width.stride, self.code.lanes, self.convolution.window
        memory = code.memory[window.name]
        if stride > MOST_SHUFFLED:
            reach = valid[0]
            mask = code.prefix(reach) if isinstance(reach, int) else reach
            return widen(code, code.gather(memory, begin, code.offsets(stride), mask), window.dtype)
        # What lies between is loaded, too: cheaper than elements one by one.
        value: Value | None = None
        for n, reach in zip(self._loads, valid, strict=True):
            if isinstance(reach, int) and reach == 0:
                continue
            mask = code.prefix(reach) if isinstance(reach, int) else reach
            loaded = code.load(memory, code.add(begin, n), mask)
            # In lanes that are not read yet, whatever there is.
            order = [lanes + stride * k - n if n <= stride * k < n + lanes else k for k in range(lanes)]
            value = loaded if stride == 1 else code.shuffle(loaded if value is None else value, loaded, order)
        return widen(code, value, window.dtype)
