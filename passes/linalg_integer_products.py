"""``linalg-integer-products``: products of numbers that stand for steps of scales are products of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, tensor

from covan_mlir.dialects.arguments import read_arguments
from covan_mlir.passes.framework.index_values import dimension, pad
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.framework.views import TRANSPOSE, laid_out
from covan_mlir.passes.quantized.steps import PAD, Factor, Steps, composed, is_whole_number, maker, steps_of
from covan_mlir.passes.raising.windows import affine_maps, loop_of

_CHANNELWISE = frozenset({"linalg.depthwise_conv_2d_nchw_chw", "linalg.depthwise_conv_1d_ncw_cw"})
"""Convolutions of each channel by itself."""
_OF_CHANNELS = frozenset({"linalg.conv_2d_nchw_fchw", "linalg.conv_2d_ngchw_gfchw", "linalg.conv_1d_ncw_fcw"})
_CONVOLUTIONS = _OF_CHANNELS | _CHANNELWISE
_PRODUCTS = _CONVOLUTIONS | {"linalg.matmul", "linalg.batch_matmul"}
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
        weights = {
            argument
            for argument, facts in zip(op.regions[0].blocks[0].arguments, read_arguments(op), strict=True)
            if facts.weight
        }
        for product in visited([view for block in op.regions[0] for view in block]):
            if product.name not in _PRODUCTS:
                continue
            loops = _loops(product) or _windowed(product)
            if loops is None:
                continue
            first, second = (steps_of(operand) for operand in list(product.operands)[:2])
            if first is None or second is None or not _is_weight(second.source, weights):
                continue
            if not self._fits(product, loops, first, second):
                continue
            rewriter = rewriter or Rewriter(op)
            _multiply(product, loops, first, second, rewriter)

    def _fits(self, product: ir.Operation, loops: list[Loops], first: Steps, second: Steps) -> bool:
        """Whether the steps can be multiplied a word at a time."""
        sizes = _sizes(product, loops)
        summed = [loop for loop in sizes if loop not in loops[2]]
        if None in loops[2] or not summed:
            return False
        if product.name in _CHANNELWISE:
            reads = self._reads_vectors(product, loops, sizes) and min(sizes.values()) > 0 and not first.factors
            taps = prod(sizes[loop] for loop in summed)
            return reads and taps <= _TAPS and second.signed and not second.zero and not _moved(first)
        deep = next(loop for loop in loops[0] if loop in summed) if None in loops[0] else summed[0]
        assert deep is not None
        if prod(sizes[loop] for loop in summed if loop != deep) * sizes[deep] * _STEP >= _LARGEST:
            return False
        if sizes[deep] < 1 or (sizes[deep] % _WORD and None not in loops[0]):
            return False
        along = [loop for factor in first.factors for loop in composed(factor, loops[0])]
        along += [loop for factor in second.factors for loop in composed(factor, loops[1])]
        if deep in along or _moved(first) or not second.signed or second.zero:
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


Loops = list[int | None]
"""The loop that indexes each dimension of a tensor; None of one position."""


def _loops(product: ir.Operation) -> list[Loops] | None:
    """Those of the factors and the result of an op that multiplies at the loops' own positions, or of a convolution by
    single points."""
    maps = affine_maps(product)
    if maps is None:
        return None
    sizes = {
        position.axis: size
        for operand, positions in zip(product.operands, maps, strict=True)
        for position, size in zip(positions, operand.type.shape, strict=True)
        if position.axis is not None
    }
    kept = {position.axis for position in maps[2]}
    points = {axis for axis, size in sizes.items() if size == 1 and axis not in kept}
    numbers = {position.axis: n for n, position in enumerate(maps[2]) if position.axis is not None}
    loops: list[Loops] = []
    for positions in maps:
        loops.append([])
        for position in positions:
            terms = [term for term in position.terms if term[0] not in points]
            if position.offset or len(terms) > 1 or any(step != 1 for _, step in terms):
                return None
            loops[-1].append(numbers.setdefault(terms[0][0], len(numbers)) if terms else None)
    return loops


def _windowed(product: ir.Operation) -> list[Loops] | None:
    """Those of a convolution; None of a dimension along which it slides."""
    maps = affine_maps(product) if product.name in _CONVOLUTIONS else None
    if maps is None:
        return None
    return [[loop_of(one.axis) if one.axis is not None else None for one in positions] for positions in maps]


def _sizes(product: ir.Operation, loops: Sequence[Loops]) -> dict[int, int]:
    """Of each loop; negative where it is known at run time only."""
    return {
        loop: size
        for operand, along in zip(product.operands, loops, strict=True)
        for loop, size in zip(along, operand.type.shape, strict=True)
        if loop is not None
    }


def _moved(steps: Steps) -> bool:
    """Whether dimensions change places."""
    return any(view.name == TRANSPOSE for view in steps.views)


def _is_weight(value: Any, arguments: set[Any]) -> bool:
    op = maker(value)
    return value in arguments if op is None else op.name == "arith.constant"


def _multiply(product: ir.Operation, loops: list[Loops], first: Steps, second: Steps, rewriter: Rewriter) -> None:
    gone, left = _read_by_it_alone(product, (first, second))
    with rewriter.replacing(*gone, product, copies=left) as new:
        steps = [_laid_out(one) for one in (first, second)]
        begun, result = product.operands[2], loops[2]
        sizes = [dimension(begun, k) for k in range(len(result))]
        sums = _summed(product, steps, (first, second), loops, _filled(sizes))
        operands = [sums]
        along: list[list[int | None]] = [[*range(len(result))]]
        place = {loop: k for k, loop in enumerate(result) if loop is not None}
        for one, own in ((first, loops[0]), (second, loops[1])):
            for factor in one.factors:
                operands.append(_apart(factor))
                along.append([None if loop is None else place[loop] for loop in composed(factor, own)])
        if not is_whole_number(begun, 0.0):
            operands.append(begun)
            along.append([*range(len(result))])
        new.results(_scaled(operands, along, first, second, begun))


def _read_by_it_alone(product: ir.Operation, factors: Sequence[Steps]) -> tuple[list[ir.Operation], list[ir.Operation]]:
    """-> (ops of the factors that nobody else reads, the others), each once."""
    gone: list[ir.Operation] = []
    left: list[ir.Operation] = []
    for one in factors:
        for op in reversed(one.ops):
            alone = all(use.owner.operation in (product, *gone) for use in op.results[0].uses)
            (gone if alone else left).append(op)
    return list(dict.fromkeys(reversed(gone))), list(dict.fromkeys(left))


def _laid_out(steps: Steps) -> Any:
    """The steps, in the order and the shape of what they stand for."""
    value = steps.source
    for view in steps.views:
        if view.name == PAD:
            around = ir.IntegerAttr.get(value.type.element_type, _held(steps.zero))
            low, high = (list(ir.DenseI64ArrayAttr(view.attributes[name])) for name in ("static_low", "static_high"))
            value = pad(value, low, high, around)
        else:
            value = laid_out(value, [view])
    return value


def _apart(factor: Factor) -> Any:
    """A factor with the dimensions that it is taken apart into."""
    if not factor.parts:
        return factor.value
    sizes = [size for part in factor.parts for size in part]
    numbers = iter(range(len(sizes)))
    groups = [[next(numbers) for _ in part] for part in factor.parts]
    kind = ir.RankedTensorType.get(sizes, factor.value.type.element_type)
    return tensor.ExpandShapeOp(kind, factor.value, groups, [], sizes).result


def _held(step: int) -> int:
    """A step as the integer with a sign that has its bits."""
    return step - 256 if step > 127 else step


def _filled(sizes: Sequence[Any]) -> Any:
    """Zeros of 32 bits."""
    wide = ir.IntegerType.get_signless(32)
    empty = tensor.EmptyOp(list(sizes), wide).result
    return linalg.fill(arith.ConstantOp(wide, 0).result, outs=[empty])


def _generic(operands: Sequence[Any], into: Any, maps: Sequence[ir.AffineMap], kinds: Sequence[str]) -> Any:
    """An op with an empty body, and that."""
    iterators = [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
    attributes = ir.ArrayAttr.get([ir.AffineMapAttr.get(one) for one in maps]), ir.ArrayAttr.get(iterators)
    generic = linalg.GenericOp([into.type], list(operands), [into], *attributes)
    types = [value.type.element_type for value in (*operands, into)]
    return generic, generic.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))


def _map(loops: int, along: Sequence[int | None]) -> ir.AffineMap:
    zero = ir.AffineConstantExpr.get(0)
    return ir.AffineMap.get(loops, 0, [zero if loop is None else ir.AffineDimExpr.get(loop) for loop in along])


def _summed(
    product: ir.Operation, steps: Sequence[Any], factors: Sequence[Steps], loops: Sequence[Loops], zeros: Any
) -> Any:
    """Sums of products of steps."""
    count = len({loop for along in loops for loop in along if loop is not None})
    dims = [_map(count, along) for along in loops]
    if None in loops[0]:
        dims = [ir.AffineMapAttr(one).value for one in linalg.get_indexing_maps(product)]
    kinds = ["parallel" if loop in loops[2] else "reduction" for loop in range(count)]
    generic, block = _generic(steps, zeros, dims, kinds)
    with ir.InsertionPoint(block):
        wide = zeros.type.element_type
        *narrow, total = block.arguments
        widened = [
            (arith.ExtSIOp if one.signed else arith.ExtUIOp)(wide, value).result
            for one, value in zip(factors, narrow, strict=True)
        ]
        terms = [
            arith.SubIOp(value, arith.ConstantOp(wide, one.zero).result).result if one.zero else value
            for one, value in zip(factors, widened, strict=True)
        ]
        linalg.YieldOp([arith.AddIOp(total, arith.MulIOp(*terms).result).result])
    return generic.results[0]


def _scaled(
    operands: Sequence[Any], along: Sequence[Sequence[int | None]], first: Steps, second: Steps, begun: Any
) -> Any:
    """What sums of products of steps stand for.

    Args:
        operands: the sums, factors, and what is added to.
        along: which of the result's dimensions each of their dimensions goes along.
    """
    rank, kind = begun.type.rank, begun.type.element_type
    into = tensor.EmptyOp([dimension(begun, k) for k in range(rank)], kind).result
    maps = [_map(rank, dims) for dims in along]
    generic, block = _generic(operands, into, [*maps, ir.AffineMap.get_identity(rank)], ["parallel"] * rank)
    with ir.InsertionPoint(block):
        sums, *rest, _ = block.arguments
        number = arith.SIToFPOp(kind, sums).result
        # One by one: a product of two constants would be rounded to another one.
        scales = [_narrowed(scale, kind) for scale in (first.scale, second.scale) if scale != 1]
        count = len(first.factors) + len(second.factors)
        for factor in (*scales, *rest[:count]):
            number = arith.MulFOp(number, factor).result
        for other in rest[count:]:
            number = arith.AddFOp(other, number).result
        linalg.YieldOp([number])
    return generic.results[0]


def _narrowed(number: float, kind: Any) -> Any:
    """A number of the program's in the type of the result."""
    double = ir.F64Type.get()
    constant = arith.ConstantOp(double, number).result
    return constant if kind == double else arith.TruncFOp(kind, constant).result
