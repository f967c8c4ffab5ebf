"""The rows of planes: what of a row of the input lies a stride apart, with what is outside of the input around it."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, Sliding
from covan_mlir.lowering.kernels.cpu.window_columns import WindowColumns


@dataclass(frozen=True)
class PlaneRows:
    """Writes rows of planes, in whole vectors: what is written beyond the end of one is written again by the next.

    Attributes:
        pitch: length of a row.
        columns: what is read of the input's rows.
    """

    code: KernelBuilder
    convolution: Convolution
    pitch: int
    memory: Value
    columns: WindowColumns

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
            loads = self.columns.loads
            value = self.columns.elements(begin, [None if n + lanes <= last else max(last - n, 0) for n in loads])
            if length < lanes:
                value = code.op("select", code.prefix(length), value, self.columns.outside)
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
            value = self.columns.read(source, position, self.columns.masks(position))
            code.store(value, self.memory, code.add(to, at))
            return none

        code.loop(0, self.pitch, code.lanes, [], chunk)

    def blank(self, to: Value, length: int) -> None:
        """What is outside of the input, for so many positions at least."""
        code = self.code
        for at in range(0, length, code.lanes):
            code.store(self.columns.outside, self.memory, code.add(to, at))
