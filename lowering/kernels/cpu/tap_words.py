"""Windows over one channel of 8 bits, whose taps are multiplied a word at a time: four columns of the window.

Of a row of the input one vector of bytes is loaded, and a shuffle makes of it, for each position of the results, the
word that the window shows there::

    word[w] = x[stride * w], x[stride * w + dilation], x[stride * w + 2 * dilation], x[stride * w + 3 * dilation]
    sums[w] += word[w] . f[c, r, s : s + 4]                    # vpdpbusd

Rows of the filter are filled up with zeros to whole words, ahead of time. What is outside of the input are bytes that
stand for nothing: with them, all taps are multiplied everywhere, and what is multiplied too much of each is the same
for all positions of a channel, `TapWords.begun`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from iree.compiler.dialects import arith, vector

from covan_mlir.fred.chain import Input
from covan_mlir.fred.expression import Apply, Window
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, Sliding
from covan_mlir.lowering.kernels.cpu.evaluator import Position, address
from covan_mlir.lowering.kernels.cpu.words import OFFSET, Words, fitting
from covan_mlir.lowering.kernels.dense.chain import is_unsigned, stored, without_zero
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Operand, Preparation
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.machine.words import BYTES

COUNT = BYTES
"""Taps of a word."""
_ELEMENT = "i8"
_STEPS = 256
"""Numbers of a byte."""


@dataclass(frozen=True)
class TapWords:
    """What is multiplied of such a window.

    Attributes:
        words: how it is multiplied.
        weight: the filter, of numbers with a sign; its last axis goes along the window's rows.
        signed: the image has a sign.
        zero: what is taken off each of its numbers before it is multiplied.
    """

    convolution: Convolution
    words: Words
    weight: Input
    signed: bool
    zero: int

    @staticmethod
    def of(convolution: Convolution) -> TapWords:
        """Those of a convolution.

        Raises:
            UnsupportedError: its taps are not multiplied so.
        """
        width, window = convolution.width, convolution.window
        if convolution.scalars is None or window.dtype != _ELEMENT:
            raise UnsupportedError("it multiplies no integers of 8 bits by a filter")
        weight = convolution.packable(convolution.scalars, window)
        if weight is None or weight.dtype != _ELEMENT or is_unsigned(convolution.scalars):
            raise UnsupportedError("its filter is no weight of 8 bits with a sign")
        if width.tap is None or weight.axes[-1] != width.tap:
            raise UnsupportedError("rows of its filter do not lie together")
        term = Scope(convolution.chain, {}).inlined(convolution.step.expr)
        assert isinstance(term, Apply)
        image, zero = next(one for one in map(without_zero, term.args) if isinstance(stored(one[0]), Window))
        signed = not is_unsigned(image)
        multiplied = fitting(convolution.integers, signed=signed)
        if multiplied is None:
            raise UnsupportedError("the machine does not multiply integers of 8 bits a word at a time")
        words = TapWords(convolution, multiplied, weight, signed, zero)
        least = -OFFSET if multiplied.signs[0] == "s" else 0
        if words.offset not in range(least, least + _STEPS):
            raise UnsupportedError("what is taken off the image is no number of 8 bits")
        if any(_leaves(one) for one in convolution.slides) and (int(window.outside.value) - zero) % _STEPS:
            raise UnsupportedError("what is outside of the input counts")
        return words

    @property
    def offset(self) -> int:
        """What is multiplied too much of each number of the image."""
        return self.words.excess(signed=self.signed, zero=self.zero)

    @property
    def turns(self) -> int:
        """Words of a row of the window."""
        return -(-self.convolution.width.taps // COUNT)

    def reach(self, lanes: int) -> int:
        """Bytes of the input that a vector of words is made of, at most."""
        width = self.convolution.width
        return (lanes - 1) * width.stride + (min(width.taps, COUNT) - 1) * width.dilation + 1

    def loads(self, lanes: int) -> tuple[tuple[int, int], ...]:
        """For each word of a row: the one with which it is loaded, and how many bytes on it begins there."""
        step, loads = self.convolution.width.dilation * COUNT, list[tuple[int, int]]()
        for turn in range(self.turns):
            first = loads[-1][0] if loads else 0
            shift = step * (turn - first)
            loads.append((first, shift) if shift + self.reach(lanes) <= COUNT * lanes else (turn, 0))
        return tuple(loads)

    def bytes_loaded(self, lanes: int) -> int:
        """Of a vector that is loaded: half a register where that is enough."""
        needed = max(shift for _, shift in self.loads(lanes)) + self.reach(lanes)
        whole = COUNT * lanes
        return whole // 2 if needed <= whole // 2 else whole

    # The filter

    @cached_property
    def operand(self) -> Operand:
        """What the kernel reads of it."""
        sizes = self.convolution.sizes
        before = (sizes[axis] for axis in self.weight.axes[:-1])
        return Operand(f"{self.weight.name}.words", (*before, self.turns, COUNT), _ELEMENT)

    @property
    def preparation(self) -> Preparation:
        """What fills its rows up."""
        sizes, axes = self.convolution.sizes, self.weight.axes
        given = f"tensor<{'x'.join(str(sizes[axis]) for axis in axes)}x{_ELEMENT}>"
        words = self.operand.tensor
        text = f"""func.func private @words(%w: {given}) -> {words} {{
  %zero = arith.constant 0 : {_ELEMENT}
  %empty = tensor.empty() : {words}
  %packed = linalg.pack %w padding_value(%zero : {_ELEMENT})
    inner_dims_pos = [{len(axes) - 1}] inner_tiles = [{COUNT}]
    into %empty : {given} -> {words}
  return %packed : {words}
}}
"""
        return Preparation(self.operand, (self.weight.name,), text)

    def filter_word(self, code: KernelBuilder, outer: Mapping[str, Value], r: int, turn: int) -> Value:
        """A word of a row of the filter, in all lanes."""
        height, width = self.convolution.height, self.convolution.width
        index = {**outer, (width.tap or ""): code.index(turn * COUNT)}
        if height is not None and height.tap is not None:
            index[height.tap] = code.index(r)
        sizes: dict[str, Size] = {**self.convolution.sizes, (width.tap or ""): self.turns * COUNT}
        at, _ = address(code, self.weight.axes, sizes, Position(index, None))
        return self.words.in_all_lanes(code, code.memory[self.operand.name], at)

    def begun(self, code: KernelBuilder, filter_words: Sequence[Value]) -> Value:
        """What sums begin with, of the words that are multiplied for each of them."""
        begun = code.splat(0, "i32")
        if not self.offset:
            return begun
        all_outside = self.words.unpacked(code, code.splat(_word(self.offset), "i32"))
        for word in filter_words:
            begun = self.words.added(code, begun, all_outside, word)
        return code.op("subi", code.splat(0, "i32"), begun)

    # The image

    def masks(self, code: KernelBuilder, begin: Value) -> Value:
        """Which of the bytes that are loaded the input has.

        Args:
            begin: column of the first one, perhaps outside.
        """
        count = self.bytes_loaded(code.lanes)
        kind = f"i{count}"
        before = code.max(code.mul(begin, -1), 0)
        behind = code.max(code.add(begin, count - self.convolution.width.inside), 0)
        inside = arith.andi(_ones(code, arith.shli, before, count), _ones(code, arith.shrui, behind, count))
        bits = vector.broadcast(code.vector_type(kind, 1), inside)
        return vector.bitcast(code.vector_type("i1", count), bits)

    def loaded(self, code: KernelBuilder, at: Value, mask: Value, elements: Size) -> Value:
        """Bytes of a row, with what is outside where the input has none, as the numbers that are multiplied.

        Args:
            mask: which of them the input has.
            elements: of the input.
        """
        count = self.bytes_loaded(code.lanes)
        kind = code.vector_type(_ELEMENT, count)
        outside = _bytes(code, self.zero % _STEPS, count)
        memory = code.memory[self.convolution.window.name]

        def some() -> Value:
            return vector.maskedload(kind, memory, [at], mask, outside)

        if code.narrow_masks:
            value = some()
        else:
            # What lies around a row is read and left out, but at the ends of the memory.
            there = code.op("andi", code.below(code.index(-1), at), code.below(at, code.add(elements, 1 - count)))
            value = code.either(kind, there, lambda: arith.select(mask, vector.load(kind, memory, [at]), outside), some)
        return arith.xori(value, _bytes(code, OFFSET, count)) if self.words.turns(signed=self.signed) else value

    def shown(self, code: KernelBuilder, loaded: Value, turn: int) -> Value:
        """The words that a window shows for a vector of positions."""
        width, (_, shift) = self.convolution.width, self.loads(code.lanes)[turn]
        taps = min(COUNT, width.taps - turn * COUNT)
        order = [
            shift + width.stride * lane + width.dilation * (tap if tap < taps else 0)
            for lane in range(code.lanes)
            for tap in range(COUNT)
        ]
        return code.shuffle(loaded, loaded, order)


def _leaves(slides: Sliding) -> bool:
    """Whether a window shows what is outside of the input."""
    last = slides.stride * (slides.outside - 1) + slides.dilation * (slides.taps - 1) + slides.offset
    return slides.offset < 0 or last >= slides.inside


def _word(step: int) -> int:
    """A number of 8 bits four times, as an integer with a sign."""
    word = step % _STEPS * 0x01010101
    return word - 2**32 if word >= 2**31 else word


def _bytes(code: KernelBuilder, step: int, count: int) -> Value:
    """A vector of one number, as an integer with a sign."""
    held = step - _STEPS if step >= OFFSET else step
    return vector.broadcast(code.vector_type(_ELEMENT, count), code.constant(held, _ELEMENT))


def _ones(code: KernelBuilder, shift: Callable[[Value, Value], Value], by: Value, count: int) -> Value:
    """As many ones, shifted by an index that may be more."""
    kind = f"i{count}"
    bits = shift(code.constant(-1, kind), code.cast("index_cast", code.min(by, count - 1), kind))
    return arith.select(code.below(by, count), bits, code.constant(0, kind))
