"""What of a product can be multiplied a word at a time, and how words are read where they are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Input
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, address
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.words import BF16, INTEGER_SUMS, Words, fitting
from covan_mlir.lowering.kernels.dense.chain import is_unsigned, without_zero


@dataclass(frozen=True)
class WordFactors:
    """The factors of a product whose elements can be multiplied a word at a time, as they are in memory.

    Of integers one is a weight with a sign.

    Attributes:
        scalars: elements of a word of it are next to each other, in memory or where it is packed.
        vectors: those of it are, too, or lie in rows of the lanes' axis, one behind the other.
        words: what is multiplied.
        by_rows: of integers, the weight is read as scalars, and packed by their rows.
        signed: of integers, what is no weight has a sign.
        zero: what is taken off each of its numbers before it is multiplied.
    """

    scalars: Input
    vectors: Input
    words: Words
    by_rows: bool = False
    signed: bool = False
    zero: int = 0

    @property
    def offset(self) -> int:
        """What is multiplied too much of each number that is no weight's."""
        return self.words.excess(signed=self.signed, zero=self.zero)

    @property
    def turned(self) -> bool:
        """Whether numbers that are no weight's are taken for others."""
        return self.words.turns(signed=self.signed)

    @staticmethod
    def of(product: Product) -> WordFactors | None:
        """None: they cannot."""
        exprs, zeros = zip(*map(without_zero, (product.scalars, product.vectors)), strict=True)
        scalars, vectors = map(product.input_of, exprs)
        if scalars is None or vectors is None:
            return None
        last = product.contracted[-1]
        sums, size = computed(product.step.dtype), product.chain.sizes[last]
        signs = [not is_unsigned(one) for one in exprs]
        words: Words | None = BF16
        if sums == INTEGER_SUMS:
            words = fitting(product.words, signed=signs[0 if product.weight is not None else 1])
        if words is None or sums != words.sums or size is None or size % words.count:
            return None
        if any(one.dtype != words.element or one.name in product.chain.windowed for one in (scalars, vectors)):
            return None
        if not words.integers:
            beside = scalars.axes[-1] == last and vectors.axes[-1] in (last, product.lane)
            return WordFactors(scalars, vectors, words) if beside else None
        if product.weight is not None:
            fits = scalars.axes[-1] == last and signs[1] and not zeros[1]
            return WordFactors(scalars, vectors, words, signed=signs[0], zero=zeros[0]) if fits else None
        weight = product.packable(exprs[0], exprs[1])
        fits = weight is not None and len(product.rows) == 1 and product.rows[0] in weight.axes
        if not fits or not signs[0] or zeros[0] or vectors.axes[-1] != product.lane:
            return None
        return WordFactors(scalars, vectors, words, by_rows=True, signed=signs[1], zero=zeros[1])

    def scalar(self, code: KernelBuilder, sizes: Mapping[str, Size], index: Mapping[str, Value]) -> Value:
        """A word in all lanes, read where it is in memory."""
        at, _ = address(code, self.scalars.axes, sizes, Position(index, None))
        return self.words.in_all_lanes(code, code.memory[self.scalars.name], at, turned=self.turned)

    def added(self, code: KernelBuilder, sums: Value, scalars: Value, vectors: Value) -> Value:
        """Sums, with all products of each word."""
        first, second = (vectors, scalars) if self.by_rows else (scalars, vectors)
        return self.words.added(code, sums, first, second)
