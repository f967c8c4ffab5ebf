"""What of a product can be multiplied a word at a time, and how words are read where they are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Input
from covan_mlir.fred.expression import Apply, Const, Expr
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, address
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.words import BF16, I8, OFFSET, Words

_UNSIGNED = "arith.extui"


@dataclass(frozen=True)
class WordFactors:
    """The factors of a product whose elements can be multiplied a word at a time, as they are in memory.

    Attributes:
        scalars: elements of a word of it are next to each other.
        vectors: those of it are, too, or lie in rows of the lanes' axis, one behind the other. It has a sign.
        words: what is multiplied.
        signed: scalars are of 8 bits with a sign.
        zero: what is taken off each scalar before it is multiplied.
    """

    scalars: Input
    vectors: Input
    words: Words
    signed: bool = False
    zero: int = 0

    @property
    def offset(self) -> int:
        """What is multiplied too much of each scalar."""
        return self.zero + (OFFSET if self.signed else 0)

    @staticmethod
    def of(product: Product) -> WordFactors | None:
        """None: they cannot."""
        factor, zero = _without_zero(product.scalars)
        scalars, vectors = product.input_of(factor), product.input_of(product.vectors)
        if scalars is None or vectors is None:
            return None
        last = product.contracted[-1]
        sums, size = computed(product.step.dtype), product.chain.sizes[last]
        words = next((one for one in (BF16, I8) if one.element == vectors.dtype and one.sums == sums), None)
        if words is None or size is None or size % words.count:
            return None
        if any(one.dtype != words.element or one.name in product.chain.windowed for one in (scalars, vectors)):
            return None
        signs = [not (isinstance(one, Apply) and one.op == _UNSIGNED) for one in (factor, product.vectors)]
        beside = scalars.axes[-1] == last and vectors.axes[-1] in (last, product.lane)
        if not beside or not signs[1]:
            return None
        return WordFactors(scalars, vectors, words, words is I8 and signs[0], zero)

    def scalar(self, code: KernelBuilder, sizes: Mapping[str, Size], index: Mapping[str, Value]) -> Value:
        """A word in all lanes, read where it is in memory."""
        at, _ = address(code, self.scalars.axes, sizes, Position(index, None))
        return self.words.in_all_lanes(code, code.memory[self.scalars.name], at, signed=self.signed)


def _without_zero(factor: Expr) -> tuple[Expr, int]:
    """A factor without the integer that is taken off it, and that."""
    if isinstance(factor, Apply) and factor.op == "arith.subi" and isinstance(zero := factor.args[1], Const):
        return factor.args[0], int(zero.value)
    return factor, 0
