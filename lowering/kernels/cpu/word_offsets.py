"""What sums begin with where scalars of 8 bits are not multiplied as they are: those with a sign are taken for `OFFSET`
more, and a zero point is not taken off each of them. It is the sum of a column of the packed weight, as often less,
computed ahead of time.

::

    offsets[outer, panel, n] = -offset * sum over k of weight[outer, panel * width + n, k]

Where the weight is read as scalars, its rows are what columns are else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.packed_weight import PackedWeight
from covan_mlir.lowering.kernels.kernel import Operand, Preparation


@dataclass(frozen=True)
class Offsets:
    """Those of a weight.

    Attributes:
        packing: how it is packed.
        offset: what is multiplied too much of each scalar.
    """

    packing: PackedWeight
    offset: int

    @property
    def operand(self) -> Operand:
        """What the kernel reads."""
        packed, contracted = self.packing.operand, len(self.packing.contracted)
        panels = packed.shape[: -contracted - 2]  # behind them words, the columns of a panel, and a word's elements
        return Operand(f"{self.packing.weight.name}.offsets", (*panels, self.packing.width), "i32")

    @property
    def preparation(self) -> Preparation:
        """What computes them."""
        weight, sizes = self.packing.weight, self.packing.chain.known_sizes
        axes = [axis for axis in weight.axes if axis not in self.packing.contracted]
        domain = ", ".join(f"d{n}" for n in range(len(weight.axes)))
        kept = ", ".join(f"d{weight.axes.index(axis)}" for axis in axes)
        kinds = ", ".join('"parallel"' if axis in axes else '"reduction"' for axis in weight.axes)
        given = f"tensor<{'x'.join(str(sizes[axis]) for axis in weight.axes)}x{weight.dtype}>"
        sums = f"tensor<{'x'.join(str(sizes[axis]) for axis in axes)}xi32>"
        every = ", ".join(f"d{n}" for n in range(len(axes)))
        parallel = ", ".join(['"parallel"'] * len(axes))
        order = [axes.index(axis) for axis in (*self.packing.before, self.packing.axis)]
        text = f"""func.func private @offsets(%w: {given}) -> {self.operand.tensor} {{
  %zero = arith.constant 0 : i32
  %factor = arith.constant {-self.offset} : i32
  %empty = tensor.empty() : {sums}
  %begun = linalg.fill ins(%zero : i32) outs(%empty : {sums}) -> {sums}
  %sums = linalg.generic {{indexing_maps = [affine_map<({domain}) -> ({domain})>, affine_map<({domain}) -> ({kept})>],
      iterator_types = [{kinds}]}} ins(%w : {given}) outs(%begun : {sums}) {{
  ^bb0(%element: {weight.dtype}, %sum: i32):
    %wide = arith.extsi %element : {weight.dtype} to i32
    %next = arith.addi %sum, %wide : i32
    linalg.yield %next : i32
  }} -> {sums}
  %times = linalg.generic {{indexing_maps = [affine_map<({every}) -> ({every})>, affine_map<({every}) -> ({every})>],
      iterator_types = [{parallel}]}} ins(%sums : {sums}) outs(%empty : {sums}) {{
  ^bb0(%sum: i32, %old: i32):
    %product = arith.muli %sum, %factor : i32
    linalg.yield %product : i32
  }} -> {sums}
  %space = tensor.empty() : {self.operand.tensor}
  %packed = linalg.pack %times padding_value(%zero : i32) outer_dims_perm = {order}
    inner_dims_pos = [{axes.index(self.packing.axis)}] inner_tiles = [{self.packing.width}] into %space
    : {sums} -> {self.operand.tensor}
  return %packed : {self.operand.tensor}
}}
"""
        return Preparation(self.operand, (weight.name,), text)

    def vector(self, code: KernelBuilder, outer: Mapping[str, Value], first: Value, u: int) -> Value:
        """Those of a vector of a panel.

        Args:
            first: column of the panel.
        """
        return code.load(code.memory[self.operand.name], self._at(code, outer, first, u * code.lanes))

    def scalar(self, code: KernelBuilder, outer: Mapping[str, Value], first: Value, i: int) -> Value:
        """That of a row of a tile, in all lanes.

        Args:
            first: row of the tile.
        """
        return code.broadcast(code.scalar(code.memory[self.operand.name], self._at(code, outer, first, i)))

    def of_row(self, code: KernelBuilder, outer: Mapping[str, Value], row: Value) -> Value:
        """That of any row, in all lanes."""
        before = code.mul(self.packing.number(code, outer, code.index(0)), self.packing.width)
        return code.broadcast(code.scalar(code.memory[self.operand.name], code.add(before, row)))

    def _at(self, code: KernelBuilder, outer: Mapping[str, Value], first: Value, n: int) -> Value:
        return code.add(code.mul(self.packing.number(code, outer, first), self.packing.width), n)
