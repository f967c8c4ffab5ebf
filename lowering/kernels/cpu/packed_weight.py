"""Weights that are packed ahead of time, in the order in which a register tile reads them.

::

    packed[outer, tile, k, width] = weight[outer, tile * width + n, k]       # zeros beyond the last one

Along the axis that is taken apart run a panel's columns, where the weight is read as vectors, or a tile's rows, where
it is read as scalars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.register_tile import Place
from covan_mlir.lowering.kernels.cpu.words import Words
from covan_mlir.lowering.kernels.kernel import Operand, Preparation, composed

_NEAREST = {
    True: """    %least = arith.constant -8 : {kind}
    %most = arith.constant 7 : {kind}
    %a_above = arith.maxsi %a, %least : {kind}
    %a_held = arith.minsi %a_above, %most : {kind}
    %b_above = arith.maxsi %b, %least : {kind}
    %b_held = arith.minsi %b_above, %most : {kind}
""",
    False: """    %most = arith.constant 15 : {kind}
    %a_held = arith.minui %a, %most : {kind}
    %b_held = arith.minui %b, %most : {kind}
""",
}
"""The nearest numbers that half a byte holds, with a sign and without one."""
PADDING = 0.05
"""Of a packed weight's elements, the most that may be zeros beyond the last column or row."""


@dataclass(frozen=True)
class PackedWeight:
    """How a weight is packed.

    Attributes:
        outer: outer axes of what is computed; the weight may lack some of them.
        axis: that is taken apart.
        contracted: axes that are summed over, in the order in which they are read.
        width: positions on ``axis`` that lie together.
        words: of elements of consecutive positions on a contracted axis, which lie next to each other; None: of one.
        along: that axis.
        nibbles: elements take half a byte, and those of two consecutive positions on the last contracted axis are one.
        signed: of such, they have a sign.
    """

    chain: Chain
    weight: Input
    outer: tuple[str, ...]
    axis: str
    contracted: tuple[str, ...]
    width: int
    words: Words | None = None
    along: str = ""
    nibbles: bool = False
    signed: bool = True

    @property
    def pitch(self) -> int:
        """Elements of memory from a position to the next one; of nibbles, those of two positions are one."""
        return self.width // 2 if self.nibbles else self.width

    @property
    def _each(self) -> int:
        """Elements that lie next to each other."""
        return self.words.count if self.words is not None else 1

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        return self.chain.nominal.known_sizes

    @property
    def before(self) -> tuple[str, ...]:
        """Axes of what is computed that the weight has."""
        return tuple(axis for axis in self.outer if axis in self.weight.axes)

    @property
    def count(self) -> int:
        """Panels, or tiles, for one position on the outer axes."""
        return -(-self._sizes[self.axis] // self.width)

    @property
    def padding(self) -> float:
        """Zeros, per element of the weight."""
        return self.count * self.width / self._sizes[self.axis] - 1

    @property
    def operand(self) -> Operand:
        """What the kernel reads."""
        before = (self._sizes[axis] for axis in self.before)
        contracted = [-(-self._sizes[axis] // (self._each if axis == self.along else 1)) for axis in self.contracted]
        if self.nibbles:
            contracted[-1] //= 2
        shape = (*before, self.count, *contracted, self.width, *((self._each,) if self.words is not None else ()))
        return Operand(f"{self.weight.name}.packed", shape, self.weight.dtype)

    @property
    def preparation(self) -> Preparation:
        """What packs the weight."""
        if self.nibbles:
            return composed(replace(self, nibbles=False).preparation, self._joined)
        axes, dtype = self.weight.axes, self.weight.dtype
        given = f"tensor<{'x'.join([*(str(self._sizes[axis]) for axis in axes), dtype])}>"
        packed = self.operand.tensor
        order = [axes.index(axis) for axis in (*self.before, self.axis, *self.contracted)]
        inner, tiles = [axes.index(self.axis)], [self.width]
        if self.words is not None:
            inner, tiles = [*inner, axes.index(self.along)], [*tiles, self._each]
        result, returned, shape = packed, "%packed", self.operand.shape
        if self.words is not None and self.width == 1:  # IREE packs tiles of one beside others wrongly
            inner, tiles = inner[1:], tiles[1:]
            result, returned = f"tensor<{'x'.join([*map(str, (*shape[:-2], shape[-1])), dtype])}>", "%expanded"
        text = f"""func.func private @packed(%w: {given}) -> {packed} {{
  %zero = arith.constant {"0" if dtype[0] == "i" else "0.0"} : {dtype}
  %empty = tensor.empty() : {result}
  %packed = linalg.pack %w padding_value(%zero : {dtype}) outer_dims_perm = {order}
    inner_dims_pos = {inner} inner_tiles = {tiles} into %empty : {given} -> {result}
{_expanded(shape, result, packed) if result != packed else ""}  return {returned} : {packed}
}}
"""
        return Preparation(self.operand, (self.weight.name,), text)

    @property
    def _joined(self) -> Preparation:
        """What makes one byte of two packed elements, the nearest ones that half a byte holds."""
        apart, joined = replace(self, nibbles=False).operand, self.operand
        rank, deep, kind = len(joined.shape), len(joined.shape) - 2, self.weight.dtype
        names = ", ".join(f"d{n}" for n in range(rank))
        whole = f"affine_map<({names}) -> ({names})>"
        sizes, ones = ", ".join(map(str, joined.shape)), ["1"] * rank
        steps = ", ".join([*ones[:deep], "2", "1"])
        held = _NEAREST[self.signed].format(kind=kind)
        slices = [", ".join(["0"] * deep + [str(first), "0"]) for first in (0, 1)]
        text = f"""func.func private @joined(%w: {apart.tensor}) -> {joined.tensor} {{
  %low = tensor.extract_slice %w[{slices[0]}] [{sizes}] [{steps}] : {apart.tensor} to {joined.tensor}
  %high = tensor.extract_slice %w[{slices[1]}] [{sizes}] [{steps}] : {apart.tensor} to {joined.tensor}
  %empty = tensor.empty() : {joined.tensor}
  %joined = linalg.generic {{
      indexing_maps = [{whole}, {whole}, {whole}], iterator_types = [{", ".join(['"parallel"'] * rank)}]}}
      ins(%low, %high : {joined.tensor}, {joined.tensor}) outs(%empty : {joined.tensor}) {{
  ^bb0(%a: {kind}, %b: {kind}, %c: {kind}):
{held}    %mask = arith.constant 15 : {kind}
    %four = arith.constant 4 : {kind}
    %first = arith.andi %a_held, %mask : {kind}
    %second = arith.shli %b_held, %four : {kind}
    %both = arith.ori %first, %second : {kind}
    linalg.yield %both : {kind}
  }} -> {joined.tensor}
  return %joined : {joined.tensor}
}}
"""
        return Preparation(joined, (apart.name,), text)

    def number(self, code: KernelBuilder, outer: Mapping[str, Value], first: Value) -> Value:
        """That of a panel, or a tile.

        Args:
            first: position on the axis that is taken apart.
        """
        flat: Value = code.index(0)
        for axis in self.before:
            flat = code.add(code.mul(flat, self._sizes[axis]), outer[axis])
        return code.add(code.mul(flat, self.count), code.divmod(first, self.width)[0])

    def begin(self, code: KernelBuilder, outer: Mapping[str, Value], first: Value, start: Value) -> Value:
        """Where what a block reads begins.

        Args:
            first: position on the axis that is taken apart.
            start: of the first contracted axis.
        """
        panels = self._length(self.contracted[0]) if self.contracted else 1
        flat = code.add(code.mul(self.number(code, outer, first), panels), start)
        return code.mul(flat, prod(self._length(axis) for axis in self.contracted[1:]) * self.pitch)

    def _length(self, axis: str) -> int:
        """Of a contracted axis, with zeros that fill up the last word."""
        each = self._each if axis == self.along else 1
        return -(-self._sizes[axis] // each) * each

    def position(self, code: KernelBuilder, place: Place) -> Value:
        """Of what is contracted, counted through from the block's first. Of a word, the first element's; beside that
        lie the others, and where the next position on an axis further in would be, only behind all."""
        position, step = code.index(0), 1
        for n, axis in enumerate(self.contracted):
            position = code.add(code.mul(position, self._sizes[axis] if n else 1), code.mul(place[axis], step))
            step = self._each if axis == self.along else step
        return position

    def scalar(self, code: KernelBuilder, begin: Value, place: Place, i: int) -> Value:
        """What a row of a tile multiplies; a word is in all lanes.

        Args:
            begin: where what the tile reads of a block begins.
            i: number of the row in the tile.
        """
        at = code.mul(self.position(code, place), self.width)
        memory = code.memory[self.operand.name]
        if self.words is not None:
            return self.words.in_all_lanes(code, memory, code.add(begin, at, self._each * i))
        return code.scalar(memory, code.add(begin, at, i))


def _expanded(shape: tuple[int, ...], result: str, packed: str) -> str:
    """A line that gives what is packed its last dimension but one, of one position."""
    last = len(shape) - 2
    groups = ", ".join(f"[{n}]" for n in range(last))
    sizes = ", ".join(map(str, shape))
    return (
        f"  %expanded = tensor.expand_shape %packed [{groups}, [{last}, {last + 1}]] output_shape [{sizes}]"
        f" : {result} into {packed}\n"
    )
