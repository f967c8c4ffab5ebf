"""What a window shows of a row of its input to the lanes of a vector: elements a stride apart, or what is outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler.dialects import arith

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import widen

MOST_SHUFFLED = 8
"""Stride up to which elements are picked from whole vectors."""


@dataclass(frozen=True)
class WindowColumns:
    """Reads vectors of a row, one element for each of as many positions of the window."""

    code: KernelBuilder
    convolution: Convolution

    @property
    def loads(self) -> range:
        """Where the vectors begin that hold a vector's elements."""
        lanes, stride = self.code.lanes, self.convolution.width.stride
        return range(0, lanes * stride if stride <= MOST_SHUFFLED else 1, lanes)

    @property
    def outside(self) -> Value:
        """A vector of what is outside of the input."""
        dtype = computed(self.convolution.window.dtype)
        return self.code.splat(self.convolution.window.outside.value, dtype)

    def masks(self, position: Value) -> list[Value]:
        """Which elements of the vectors that are loaded the input has, and last, which of those that are read.

        Args:
            position: of the first element, perhaps outside.
        """
        stride = self.convolution.width.stride
        masks = [self._inside(self.code.add(position, n), 1) for n in self.loads]
        return [*masks, masks[0] if stride == 1 else self._inside(position, stride)]

    def read(self, source: Value, position: Value, masks: Sequence[Value]) -> Value:
        """A vector of elements, with what is outside where the input ends.

        Args:
            source: where the row begins.
            position: of the first element, perhaps outside.
            masks: of this position.
        """
        *valid, inside = masks
        value = self.elements(self.code.add(source, position), valid)
        if self.convolution.window.outside.value != 0:
            value = self.code.op("select", inside, value, self.outside)
        return value

    def _inside(self, position: Value, step: int) -> Value:
        """Which of the positions ``position, position + step, ...`` the input has."""
        code = self.code
        positions = code.op("addi", code.broadcast(code.cast("index_cast", position, "i32")), code.iota(step))
        # As numbers without a sign, negative ones are large.
        size = code.splat(self.convolution.width.inside, "i32")
        return arith.cmpi(arith.CmpIPredicate.ult, positions, size)

    def elements(self, begin: Value, valid: Sequence[int | Value | None]) -> Value:
        """Elements that lie a stride apart.

        Args:
            valid: of each vector that is loaded, how many of its elements or which of them are read; None: all. Of
                gathered elements, the number of the last one.
        """
        code, stride, lanes = self.code, self.convolution.width.stride, self.code.lanes
        window = self.convolution.window
        memory = code.memory[window.name]
        if stride > MOST_SHUFFLED:
            reach = valid[0]
            mask = code.prefix(reach) if isinstance(reach, int) else reach
            return widen(code, code.gather(memory, begin, code.offsets(stride), mask), window.dtype)
        # What lies between is loaded, too: cheaper than elements one by one.
        value: Value | None = None
        for n, reach in zip(self.loads, valid, strict=True):
            if isinstance(reach, int) and reach == 0:
                continue
            mask = code.prefix(reach) if isinstance(reach, int) else reach
            loaded = code.load(memory, code.add(begin, n), mask)
            # In lanes that are not read yet, whatever there is.
            order = [lanes + stride * k - n if n <= stride * k < n + lanes else k for k in range(lanes)]
            value = loaded if stride == 1 else code.shuffle(loaded if value is None else value, loaded, order)
        return widen(code, value, window.dtype)
