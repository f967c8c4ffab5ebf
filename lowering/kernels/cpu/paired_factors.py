"""What of a product can be multiplied in pairs, and how pairs are read where they are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Input
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, address
from covan_mlir.lowering.kernels.cpu.pairs import PAIR, in_all_lanes
from covan_mlir.lowering.kernels.cpu.product_roles import Product


@dataclass(frozen=True)
class Pairs:
    """The factors of a product whose elements can be multiplied in pairs, as they are in memory.

    Attributes:
        scalars: pairs of it are next to each other.
        vectors: pairs of it are, too, or lie in rows of the lanes' axis, one behind the other.
    """

    scalars: Input
    vectors: Input

    @staticmethod
    def of(product: Product) -> Pairs | None:
        """None: they cannot."""
        scalars, vectors = product.input_of(product.scalars), product.input_of(product.vectors)
        last = product.contracted[-1]
        size = product.chain.sizes[last]
        if scalars is None or vectors is None or computed(product.step.dtype) != "f32" or size is None or size % PAIR:
            return None
        if any(value.dtype != "bf16" or value.name in product.chain.windowed for value in (scalars, vectors)):
            return None
        beside = scalars.axes[-1] == last and vectors.axes[-1] in (last, product.lane)
        return Pairs(scalars, vectors) if beside else None


def scalar(code: KernelBuilder, factor: Input, sizes: Mapping[str, Size], index: Mapping[str, Value]) -> Value:
    """A pair in all lanes, read where it is in memory."""
    at, _ = address(code, factor.axes, sizes, Position(index, None))
    return in_all_lanes(code, code.memory[factor.name], at)
