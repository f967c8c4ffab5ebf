"""``linalg-integer-products``: products of numbers that stand for steps of scales are products of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg

from covan_mlir.passes.framework.index_values import dimension
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.quantized.steps import Steps, composed, steps_of
from covan_mlir.passes.quantized.sums import (
    MATRICES,
    Loops,
    computed,
    is_weight,
    loops_of,
    map_of,
    read_by_it_alone,
    sizes_of,
    steps_laid_out,
    stood_for,
    taken_apart,
    weights_of,
    widened,
    zeros,
)
from covan_mlir.passes.raising.windows import affine_maps, loop_of

_CHANNELWISE = frozenset({"linalg.depthwise_conv_2d_nchw_chw", "linalg.depthwise_conv_1d_ncw_cw"})
"""Convolutions of each channel by itself."""
_OF_CHANNELS = frozenset({"linalg.conv_2d_nchw_fchw", "linalg.conv_2d_ngchw_gfchw", "linalg.conv_1d_ncw_fcw"})
_CONVOLUTIONS = _OF_CHANNELS | _CHANNELWISE
_PRODUCTS = _CONVOLUTIONS | MATRICES
_WORD = 4
"""Steps that are multiplied at a time."""
_ROWS = 2
"""Of a weight whose results are no product's columns, at least."""
_TAPS = 64
"""Of a window over one channel, at most."""
_LARGEST = 2**31
_STEP = 255 * 128
"""The largest product of two steps."""


@dataclass(frozen=True)
class LinalgIntegerProducts:
    """Multiplies steps of 8 bits in place of what they stand for, where the second factor is a weight.

    Sums of products of steps are exact in 32 bits, and machines multiply four of them at a time. What both factors'
    steps stand for is multiplied with the sums.

    Before::

        %a = linalg.generic ins(%p : tensor<5x8xi8>) { uitofp, subf 121.0, mulf 0.03 }          # one op each
        %b = linalg.generic ins(%q, %scales : tensor<8x16xi8>, tensor<16xf32>) { sitofp, mulf }
        %0 = linalg.matmul ins(%a, %b : tensor<5x8xf32>, tensor<8x16xf32>) outs(%zeros)

    After::

        %s = linalg.generic ins(%p, %q : tensor<5x8xi8>, tensor<8x16xi8>) { extui, subi 121, extsi, muli, addi }
        %0 = linalg.generic ins(%s, %scales : tensor<5x16xi32>, tensor<16xf32>) { sitofp, mulf 0.03, mulf }

    So do convolutions, padded with the step that stands for 0. What is multiplied is no rounded float any more: the
    result differs by what rounding did before.

    Options:
        lanes: sums that the machine adds at a time: of windows over one channel, vectors of as many words hold what
            is shown for them, or they stay as they are
    """

    name: ClassVar[str] = "linalg-integer-products"
    op_name: ClassVar[str | None] = "func.func"

    lanes: int = 16

    def run(self, op: ir.Operation) -> None:
        rewriter: Rewriter | None = None
        weights = weights_of(op)
        for product in visited([view for block in op.regions[0] for view in block]):
            if product.name not in _PRODUCTS:
                continue
            loops = loops_of(product) or _windowed(product)
            if loops is None:
                continue
            first, second = (steps_of(operand) for operand in list(product.operands)[:2])
            if first is None or second is None or not is_weight(second.source, weights):
                continue
            if not self._fits(product, loops, first, second):
                continue
            rewriter = rewriter or Rewriter(op)
            _multiply(product, loops, first, second, rewriter)

    def _fits(self, product: ir.Operation, loops: list[Loops], first: Steps, second: Steps) -> bool:
        """Whether the steps can be multiplied a word at a time."""
        sizes = sizes_of(product, loops)
        summed = [loop for loop in sizes if loop not in loops[2]]
        if None in loops[2] or not summed or any(one.between or one.in_runs or one.zeros for one in (first, second)):
            return False
        if product.name in _CHANNELWISE:
            reads = self._reads_vectors(product, loops, sizes) and min(sizes.values()) > 0 and not first.factors
            taps = prod(sizes[loop] for loop in summed)
            return reads and taps <= _TAPS and second.signed and not second.zero and not first.transposed
        deep = next(loop for loop in loops[0] if loop in summed) if None in loops[0] else summed[0]
        assert deep is not None
        if prod(sizes[loop] for loop in summed if loop != deep) * sizes[deep] * _STEP >= _LARGEST:
            return False
        if sizes[deep] < 1 or (sizes[deep] % _WORD and None not in loops[0]):
            return False
        along = [loop for factor in first.factors for loop in composed(factor, loops[0])]
        along += [loop for factor in second.factors for loop in composed(factor, loops[1])]
        if deep in along or first.transposed or not second.signed or second.zero:
            return False
        if None in loops[0]:  # it slides
            (filters,) = (loop for loop in loops[2] if loop in loops[1] and loop not in loops[0])
            assert filters is not None
            return min(sizes.values()) > 0 and sizes[filters] >= _ROWS and not first.factors
        if first.padded or len(summed) > 1:
            return False
        last = loops[2][-1]
        assert last is not None
        if last in loops[1]:  # vectors of the weight's columns
            return sizes[last] > 0 and last not in loops[0] and loops[0][-1] == deep
        rows = [loop for loop in loops[1] if loop is not None and loop != deep]
        return len(rows) == 1 and sizes[rows[0]] >= _ROWS and loops[0][-1] == last

    def _reads_vectors(self, product: ir.Operation, loops: list[Loops], sizes: dict[int, int]) -> bool:
        """Whether a vector of as many bytes as a sum's vectors have holds a word of a window's row for each sum."""
        (image, *_) = affine_maps(product) or [()]
        steps = {loop_of(axis): step for axis, step in image[-1].terms}
        counts = {loop: self.lanes if loop in loops[2] else min(_WORD, sizes[loop]) for loop in steps}
        return sum((counts[loop] - 1) * step for loop, step in steps.items()) < self.lanes * _WORD


def _windowed(product: ir.Operation) -> list[Loops] | None:
    """The loops of a convolution; None of a dimension along which it slides."""
    maps = affine_maps(product) if product.name in _CONVOLUTIONS else None
    if maps is None:
        return None
    return [[loop_of(one.axis) if one.axis is not None else None for one in positions] for positions in maps]


def _multiply(product: ir.Operation, loops: list[Loops], first: Steps, second: Steps, rewriter: Rewriter) -> None:
    gone, left = read_by_it_alone(product, (first, second))
    with rewriter.replacing(*gone, product, copies=left) as new:
        begun, result = product.operands[2], loops[2]
        sums = _summed(product, (first, second), loops)
        place = {loop: k for k, loop in enumerate(result) if loop is not None}
        factors = [
            (taken_apart(factor), [None if loop is None else place[loop] for loop in composed(factor, own)])
            for one, own in ((first, loops[0]), (second, loops[1]))
            for factor in one.factors
        ]
        new.results(stood_for(sums, (first.scale, second.scale), factors, begun))


def _summed(product: ir.Operation, factors: tuple[Steps, Steps], loops: Sequence[Loops]) -> Any:
    """Sums of products of steps, of 32 bits."""
    count = len({loop for along in loops for loop in along if loop is not None})
    maps = [map_of(count, along) for along in loops]
    if None in loops[0]:
        maps = [ir.AffineMapAttr(one).value for one in linalg.get_indexing_maps(product)]
    kinds = ["parallel" if loop in loops[2] else "reduction" for loop in range(count)]
    begun, wide = product.operands[2], ir.IntegerType.get_signless(32)

    def body(first: Any, second: Any, total: Any) -> Any:
        terms = [widened(one, value, wide) for one, value in zip(factors, (first, second), strict=True)]
        return arith.AddIOp(total, arith.MulIOp(*terms).result).result

    into = zeros([dimension(begun, k) for k in range(len(loops[2]))], wide)
    return computed([steps_laid_out(one) for one in factors], into, maps, kinds, body)
