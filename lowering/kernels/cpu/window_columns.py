"""What a window shows of a row of its input to the lanes of a vector: elements a stride apart, or what is outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler.dialects import arith

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, Sliding, WindowWords
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import widen

MOST_SHUFFLED = 8
"""Stride up to which elements are picked from whole vectors."""


def leader(width: Sliding, tap: int) -> int:
    """The first column of a window whose loaded vectors hold what another one reads."""
    if width.stride > MOST_SHUFFLED:
        return tap
    reach = -(-width.stride // width.dilation)
    return tap // reach * reach


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
        return self.shown(self.loaded(self.code.add(source, position), valid), inside)

    def shown(self, loaded: Sequence[Value], inside: Value, shift: int = 0) -> Value:
        """A vector of elements of what was loaded, with what is outside where the input ends.

        Args:
            inside: which of the elements the input has.
            shift: of the first element, from where the loaded vectors begin; less than the stride.
        """
        value = self._element(loaded, shift)
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
            valid: as `loaded` takes it.
        """
        return self._element(self.loaded(begin, valid))

    def loaded(self, begin: Value, valid: Sequence[int | Value | None]) -> list[Value]:
        """Vectors that lie one behind the other and hold a vector's elements; or these, gathered.

        Args:
            valid: of each vector that is loaded, how many of its elements or which of them are read; None: all. Of
                gathered elements, the number of the last one.
        """
        code, stride = self.code, self.convolution.width.stride
        memory = code.memory[self.convolution.window.name]
        masks = [code.prefix(reach) if isinstance(reach, int) else reach for reach in valid if reach != 0]
        if stride > MOST_SHUFFLED:
            return [code.gather(memory, begin, code.offsets(stride), masks[0])]
        # What lies between is loaded, too: cheaper than elements one by one.
        return [code.load(memory, code.add(begin, n), mask) for n, mask in zip(self.loads, masks, strict=False)]

    def _element(self, loaded: Sequence[Value], shift: int = 0) -> Value:
        """Elements that lie a stride apart, as they are computed."""
        return widen(self.code, self._picked(loaded, shift), self.convolution.window.dtype)

    def _picked(self, loaded: Sequence[Value], shift: int = 0) -> Value:
        """Elements that lie a stride apart; in lanes that nothing was loaded for, whatever there is."""
        code, stride, lanes = self.code, self.convolution.width.stride, self.code.lanes
        value = loaded[0]
        if 1 < stride <= MOST_SHUFFLED:
            places = [shift + stride * k for k in range(lanes)]
            second = loaded[1] if len(loaded) > 1 else value
            value = code.shuffle(value, second, [at if at < 2 * lanes else k for k, at in enumerate(places)])
            for n, later in enumerate(loaded[2:], 2):
                ahead = [at - (n - 1) * lanes for at in places]
                order = [at if lanes <= at < 2 * lanes else k for k, at in enumerate(ahead)]
                value = code.shuffle(value, later, order)
        return value


@dataclass(frozen=True)
class WordColumns(WindowColumns):
    """Reads vectors of rows of consecutive channels, as words; of integers as the numbers that are multiplied.

    Attributes:
        apart: elements from a channel to the next one.
        words: what is multiplied.
        behind: channels behind the first one that there are: the last of them is all others, which are multiplied by 0.
    """

    apart: Size
    words: WindowWords
    behind: Size

    @property
    def outside(self) -> Value:
        """See `WindowColumns`."""
        step = int(self.convolution.window.outside.value) + self.words.offset - self.words.zero
        word = step % 256 * 0x01010101
        return self.code.splat(word - 2**32 if word >= 2**31 else word, "i32")

    def loaded(self, begin: Value, valid: Sequence[int | Value | None]) -> list[Value]:
        """See `WindowColumns`: those of each channel, one channel behind the other."""
        loaded: list[Value] = []
        for n in range(self.words.words.count):
            there = min(n, self.behind) if isinstance(self.behind, int) else self.code.min(self.behind, n)
            loaded += super().loaded(self.code.add(begin, self.code.mul(there, self.apart)), valid)
        return loaded

    def _element(self, loaded: Sequence[Value], shift: int = 0) -> Value:
        words = self.words.words
        each = len(loaded) // words.count
        rows = (self._picked(loaded[n * each : (n + 1) * each], shift) for n in range(words.count))
        value = words.packed(self.code, words.interleaved(self.code, *rows))
        return words.turned(self.code, value) if self.words.turned else value
