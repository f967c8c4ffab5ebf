"""Panels of a weight that is packed ahead of time: a product reads them in place and in order, each once for a register
tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, Position, Result, VectorEvaluator, widen
from covan_mlir.lowering.kernels.cpu.narrow_weight import NarrowWeight
from covan_mlir.lowering.kernels.cpu.packed_weight import PackedWeight
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.register_tile import Place


@dataclass(frozen=True)
class PackedPanel:
    """The panels of a weight, in memory.

    Attributes:
        narrow: what makes floats of them, if they are steps.
        zeros: of such, how what is taken off them is packed; None: nothing is.
    """

    code: KernelBuilder
    product: Product
    packing: PackedWeight
    evaluator: VectorEvaluator
    narrow: NarrowWeight | None = None
    zeros: PackedWeight | None = None

    def fill(
        self, outer: Mapping[str, Value], first: Value, valid: Sequence[Value | None], start: Value, count: Size
    ) -> Callable[[int, Place, int], Value]:
        """See `Panel`; there is nothing to stage."""
        code, packing, product, narrow = self.code, self.packing, self.product, self.narrow
        memory = code.memory[packing.operand.name]
        zeros = self._zeros(outer, first, len(valid), start)
        base = packing.begin(code, outer, first, start)
        step = packing.words.count if packing.words is not None else 1

        def vector(u: int, place: Place, tap: int) -> Value:
            at = code.add(base, code.mul(packing.position(code, place), packing.pitch), u * step * code.lanes)
            if narrow is not None:
                steps, dtype = code.load(memory, at), computed(product.step.dtype)
                if packing.nibbles:
                    value = narrow.half_as_floats(code, steps, tap, dtype)
                else:
                    value = narrow.as_floats(code, steps, dtype)
                return code.op("subf", value, zeros[u]) if zeros else value
            if packing.words is not None:
                return packing.words.load(code, memory, at)

            def there(_: Position) -> Result:
                return Lanes(widen(code, code.load(memory, at), packing.weight.dtype))

            reading = self.evaluator.reading({packing.weight.name: there})
            return reading.vector(product.vectors, Position({}, product.lane))

        return vector

    def _zeros(self, outer: Mapping[str, Value], first: Value, vectors: int, start: Value) -> list[Value]:
        """What is taken off the steps of a block, by vector."""
        code, packing = self.code, self.zeros
        if packing is None or self.narrow is None:
            return []
        memory, dtype = code.memory[packing.operand.name], computed(self.product.step.dtype)
        base = packing.begin(code, outer, first, start if packing.contracted else code.index(0))
        loaded = (code.load(memory, code.add(base, u * code.lanes)) for u in range(vectors))
        return [self.narrow.zeros_as_floats(code, one, dtype) for one in loaded]

    def asker(
        self, outer: Mapping[str, Value], first: Value, start: Value, count: Size, tile: Value, tiles: int
    ) -> Callable[[Place], None]:
        """See `Panel`."""
        code, packing = self.code, self.packing
        memory, each = code.memory[packing.operand.name], -(-packing.pitch // tiles)
        share = code.mul(code.mul(tile, count), self.product.count(self.product.contracted[1:]))
        base = code.add(packing.begin(code, outer, code.add(first, packing.width), start), code.mul(share, each))

        def ask(place: Place) -> None:
            code.prefetch(memory, code.add(base, code.mul(packing.position(code, place), each)), near=False)

        return ask
