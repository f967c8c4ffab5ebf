"""Sums of products of integers of 8 bits with a weight, a word of four at a time
(`covan_mlir.lowering.kernels.cpu.words`). The nest is that of all products; panels are packed ahead of time, and sums,
which are exact, are of one block::

    for outer axes, group of rows, panel of columns:             a workgroup each
        for rows of the group, a register tile at a time:
            tile[rows, vectors] = 0, or -128 * sums of the panel's columns
            for words of the contracted axes:
                tile[rows, vectors] += word(i, k) . panel[k, :]
        y[i, j] = f(sums)

Where the results' last axis is not the weight's (a convolution by single points), the weight is read as scalars and
packed by their rows, and panels are staged: as many rows as a word has numbers, interleaved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.product import scratch
from covan_mlir.lowering.kernels.cpu.product_roles import product_of
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.register_tile import register_tiles
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import GROUPS, TILES, ProductMatch
from covan_mlir.lowering.kernels.cpu.word_factors import WordFactors
from covan_mlir.lowering.kernels.cpu.words import integer_words
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Preparation, Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import ChainKind, Template

_WORD = 4
"""Bytes of a word, and of a sum."""


@dataclass(frozen=True)
class IntegerProductMatch(ProductMatch):
    """A chain that is a sum of products of integers."""

    def legal(self) -> Iterator[ProductSchedule]:
        """See `DenseMatch`."""
        machine, product = self.target.machine, self.task
        lanes = machine.lanes("f32")
        rows, depth = product.count(product.rows), product.sizes[product.contracted[0]]
        for (height, vectors), largest in combinations(register_tiles(machine.registers, TILES), GROUPS):
            count = -(-rows // height)
            group = -(-count // -(-rows // largest)) * height
            schedule = ProductSchedule(lanes, height, vectors, group, depth, packed=True, words=True)
            # Panels may be padded: nothing else multiplies words, and so they are faster than what multiplies bytes.
            if scratch(product, schedule) * _WORD <= machine.stack:
                yield schedule

    def prepared(self, schedule: ProductSchedule) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        offsets = schedule.offsets(self.task)
        return super().prepared(schedule) + (() if offsets is None else (offsets.preparation,))


@register
class IntegerProductTemplate(Template[CpuTarget, ProductSchedule]):
    """A sum of products of integers of 8 bits with a weight."""

    name: ClassVar[str] = "integer_product"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("rows", "products")

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> IntegerProductMatch | Refusal:
        """See `Template`."""
        words = integer_words(target.machine)
        if not words:
            return Refusal("the machine does not multiply integers of 8 bits a word at a time")
        try:
            product = product_of(chain, words=words)
        except UnsupportedError as error:
            return Refusal(str(error))
        factors = WordFactors.of(product)
        if factors is None or (product.weight is None and not factors.by_rows):
            return Refusal("its factors are not multiplied a word at a time")
        if unknown := [axis for axis in product.contracted if chain.sizes[axis] is None]:
            return Refusal(f"the sizes of {', '.join(unknown)} are only known at run time")
        match = IntegerProductMatch(product, target)
        return match if match.ranked else Refusal("no panel of it fits into a stack frame")
