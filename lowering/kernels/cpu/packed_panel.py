"""Panels that are packed ahead of time: of weights, which a product reads as vectors.

::

    packed[outer, panel, k, vectors * lanes] = b[outer, j, k]       # zeros beyond the last column

A product reads them in place and in order, each once for a register tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from covan_mlir.fred.chain import Input
from covan_mlir.lowering.kernels.cpu import pairs
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, Position, Result, VectorEvaluator, widen
from covan_mlir.lowering.kernels.cpu.pairs import PAIR
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.register_tile import Place
from covan_mlir.lowering.kernels.kernel import Operand, Preparation

PADDING = 0.05
"""Of a packed weight's elements, the most that may be zeros beyond the last column."""


@dataclass(frozen=True)
class Packing:
    """How a weight is packed.

    Attributes:
        width: columns of a panel.
        pairs: elements of two positions lie next to each other, of one column after the other.
    """

    product: Product
    weight: Input
    width: int
    pairs: bool

    @staticmethod
    def of(product: Product, schedule: ProductSchedule) -> Packing | None:
        """That of a schedule, or None if it packs nothing."""
        if not schedule.packed:
            return None
        assert product.weight is not None
        return Packing(product, product.weight, schedule.vectors * schedule.lanes, schedule.pairs)

    @property
    def outer(self) -> tuple[str, ...]:
        """The outer axes that the weight has."""
        return tuple(axis for axis in self.product.outer if axis in self.weight.axes)

    @property
    def panels(self) -> int:
        """Panels for one position on the outer axes."""
        return -(-self.product.sizes[self.product.lane] // self.width)

    @property
    def padding(self) -> float:
        """Zeros, per element of the weight."""
        columns = self.product.sizes[self.product.lane]
        return self.panels * self.width / columns - 1

    @property
    def operand(self) -> Operand:
        """What the kernel reads."""
        product = self.product
        before, contracted = (tuple(product.sizes[axis] for axis in axes) for axes in (self.outer, product.contracted))
        shape = (*before, self.panels, *contracted, self.width)
        if self.pairs:
            shape = (*before, self.panels, *contracted[:-1], contracted[-1] // PAIR, self.width, PAIR)
        return Operand(f"{self.weight.name}.packed", shape, self.weight.dtype)

    @property
    def preparation(self) -> Preparation:
        """What packs the weight."""
        product, axes, dtype = self.product, self.weight.axes, self.weight.dtype
        given = f"tensor<{'x'.join([*(str(product.sizes[axis]) for axis in axes), dtype])}>"
        packed = self.operand.tensor
        order = [axes.index(axis) for axis in (*self.outer, product.lane, *product.contracted)]
        inner, tiles = [axes.index(product.lane)], [self.width]
        if self.pairs:
            inner, tiles = [*inner, axes.index(product.contracted[-1])], [*tiles, PAIR]
        text = f"""func.func private @packed(%w: {given}) -> {packed} {{
  %zero = arith.constant 0.0 : {dtype}
  %empty = tensor.empty() : {packed}
  %packed = linalg.pack %w padding_value(%zero : {dtype}) outer_dims_perm = {order}
    inner_dims_pos = {inner} inner_tiles = {tiles} into %empty : {given} -> {packed}
  return %packed : {packed}
}}
"""
        return Preparation(self.operand, (self.weight.name,), text)


@dataclass(frozen=True)
class PackedPanel:
    """The panels of a weight, in memory."""

    code: KernelBuilder
    packing: Packing
    evaluator: VectorEvaluator

    def fill(
        self, outer: Mapping[str, Value], first: Value, valid: Sequence[Value | None], start: Value, count: Size
    ) -> Callable[[int, Place, int], Value]:
        """See `Panel`; there is nothing to stage."""
        code, packing = self.code, self.packing
        product, memory = packing.product, code.memory[packing.operand.name]
        base = self._base(outer, first, start)
        step = PAIR if packing.pairs else 1

        def vector(u: int, place: Place, tap: int) -> Value:
            at = code.add(base, code.mul(self._position(place), packing.width), u * step * code.lanes)
            if packing.pairs:
                return pairs.load(code, memory, at)

            def there(_: Position) -> Result:
                return Lanes(widen(code, code.load(memory, at), packing.weight.dtype))

            reading = self.evaluator.reading({packing.weight.name: there})
            return reading.vector(product.vectors, Position({}, product.lane))

        return vector

    def asker(
        self, outer: Mapping[str, Value], first: Value, start: Value, count: Size, tile: Value, tiles: int
    ) -> Callable[[Place], None]:
        """See `Panel`."""
        code, packing = self.code, self.packing
        memory, each = code.memory[packing.operand.name], -(-packing.width // tiles)
        share = code.mul(
            code.mul(tile, count), prod(packing.product.sizes[axis] for axis in packing.product.contracted[1:])
        )
        base = code.add(self._base(outer, code.add(first, packing.width), start), code.mul(share, each))

        def ask(place: Place) -> None:
            code.prefetch(memory, code.add(base, code.mul(self._position(place), each)), near=False)

        return ask

    def _base(self, outer: Mapping[str, Value], first: Value, start: Value) -> Value:
        """Where a block begins.

        Args:
            first: column of its panel.
            start: of the first contracted axis.
        """
        code, packing, product = self.code, self.packing, self.packing.product
        panel, _ = code.divmod(first, packing.width)
        flat: Value = code.index(0)
        for axis in packing.outer:
            flat = code.add(code.mul(flat, product.sizes[axis]), outer[axis])
        flat = code.add(code.mul(flat, packing.panels), panel)
        flat = code.add(code.mul(flat, product.sizes[product.contracted[0]]), start)
        inner = prod(product.sizes[axis] for axis in product.contracted[1:])
        return code.mul(flat, inner * packing.width)

    def _position(self, place: Place) -> Value:
        """Of what is contracted, counted through from the block's first."""
        code, product = self.code, self.packing.product
        position: Value = code.index(0)
        for n, axis in enumerate(product.contracted):
            position = code.add(code.mul(position, product.sizes[axis] if n else 1), place[axis])
        return position
