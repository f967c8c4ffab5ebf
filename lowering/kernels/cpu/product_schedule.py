"""How a sum of products is laid out on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule
from covan_mlir.lowering.kernels.cpu.packed_weight import PackedWeight
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.word_factors import WordFactors
from covan_mlir.lowering.kernels.cpu.word_offsets import Offsets


@dataclass(frozen=True)
class ProductSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        rows, vectors: of the register tile.
        group: rows that a workgroup computes.
        depth: positions of the first contracted axis in a panel.
        packed: the weight is packed ahead of time: panels, which are staged else, or what is read as scalars. Of one
            whose steps are floats by groups, these are the blocks (`narrow_weight`).
        words: several elements are multiplied at a time (`words`).
        tail: of the last columns, so many that would fill a small part of a vector are in no panel (`column_tail`).
    """

    rows: int
    vectors: int
    group: int
    depth: int
    packed: bool = False
    words: bool = False
    tail: int = 0

    def packed_panels(self, product: Product) -> PackedWeight | None:
        """How what is read as vectors is packed."""
        narrow = None if self.words else product.narrow
        weight = product.weight if narrow is None else narrow.weight
        if not self.packed or weight is None:
            return None
        width = self.vectors * self.lanes
        packing = PackedWeight(product.chain, weight, product.outer, product.lane, product.contracted, width)
        if narrow is not None:
            return replace(packing, nibbles=narrow.nibbles, signed=narrow.signed)
        factors = WordFactors.of(product) if self.words else None
        return packing if factors is None else replace(packing, words=factors.words, along=product.contracted[-1])

    def packed_scales(self, product: Product) -> PackedWeight | None:
        """How what groups of steps stand for is packed; None: there are none."""
        narrow = product.narrow
        if not self.packed or narrow is None or narrow.scale is None:
            return None
        width, groups = self.vectors * self.lanes, product.contracted[:1]
        return PackedWeight(product.chain, narrow.scale, product.outer, product.lane, groups, width)

    def packed_zeros(self, product: Product) -> PackedWeight | None:
        """How what is taken off steps is packed; None: nothing is."""
        narrow = product.narrow
        if not self.packed or self.words or narrow is None or narrow.zeros is None:
            return None
        width = self.vectors * self.lanes
        groups = product.contracted[:1] if product.contracted[0] in narrow.zeros.axes else ()
        return PackedWeight(product.chain, narrow.zeros, product.outer, product.lane, groups, width)

    def packed_scalars(self, product: Product) -> PackedWeight | None:
        """How what is read as scalars is packed."""
        factors = WordFactors.of(product) if self.words else None
        weight = product.scalar_weight if factors is None else factors.scalars if factors.by_rows else None
        if not self.packed or weight is None:
            return None
        packing = PackedWeight(product.chain, weight, product.outer, product.rows[0], product.contracted, self.rows)
        return packing if factors is None else replace(packing, words=factors.words, along=product.contracted[-1])

    def offsets(self, product: Product) -> Offsets | None:
        """What sums begin with; None: numbers are multiplied as they are."""
        factors = WordFactors.of(product) if self.words else None
        packing = self.packed_panels(product) or self.packed_scalars(product)
        if factors is None or not factors.offset or packing is None:
            return None
        return Offsets(packing, factors.offset)
