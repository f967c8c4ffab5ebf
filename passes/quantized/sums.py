"""Sums of products of steps in place of what they stand for: the loops of a product, the ops that replace it, and what
is done to the sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, tensor

from covan_mlir.dialects.arguments import read_arguments
from covan_mlir.passes.framework.index_values import dimension, pad
from covan_mlir.passes.framework.views import laid_out
from covan_mlir.passes.quantized.steps import PAD, Factor, Steps, is_whole_number, maker
from covan_mlir.passes.raising.windows import affine_maps

MATRICES = frozenset({"linalg.matmul", "linalg.batch_matmul"})

Loops = list[int | None]
"""The loop that indexes each dimension of a tensor; None of one position."""


def weights_of(function: ir.Operation) -> set[Any]:
    """The arguments of a function that are weights."""
    arguments = function.regions[0].blocks[0].arguments
    return {argument for argument, facts in zip(arguments, read_arguments(function), strict=True) if facts.weight}


def is_weight(value: Any, arguments: set[Any]) -> bool:
    """Whether a tensor is one of those arguments, or a constant."""
    op = maker(value)
    return value in arguments if op is None else op.name == "arith.constant"


def loops_of(product: ir.Operation) -> list[Loops] | None:
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


def sizes_of(product: ir.Operation, loops: Sequence[Loops]) -> dict[int, int]:
    """Of each loop; negative where it is known at run time only."""
    return {
        loop: size
        for operand, along in zip(product.operands, loops, strict=True)
        for loop, size in zip(along, operand.type.shape, strict=True)
        if loop is not None
    }


def read_by_it_alone(product: ir.Operation, factors: Sequence[Steps]) -> tuple[list[ir.Operation], list[ir.Operation]]:
    """-> (ops of the factors that nobody else reads, the others), each once."""
    gone: list[ir.Operation] = []
    left: list[ir.Operation] = []
    for one in factors:
        for op in reversed(one.ops):
            alone = all(use.owner.operation in (product, *gone) for use in op.results[0].uses)
            (gone if alone else left).append(op)
    return list(dict.fromkeys(reversed(gone))), list(dict.fromkeys(left))


def steps_laid_out(steps: Steps) -> Any:
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


def taken_apart(factor: Factor) -> Any:
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


def zeros(sizes: Sequence[Any], kind: Any) -> Any:
    """A tensor of them."""
    zero = ir.FloatAttr.get(kind, 0.0) if isinstance(kind, ir.FloatType) else ir.IntegerAttr.get(kind, 0)
    empty = tensor.EmptyOp(list(sizes), kind).result
    return linalg.fill(arith.ConstantOp(kind, zero).result, outs=[empty])


def map_of(loops: int, along: Sequence[int | None]) -> ir.AffineMap:
    """From so many loops to a tensor's positions."""
    zero = ir.AffineConstantExpr.get(0)
    return ir.AffineMap.get(loops, 0, [zero if loop is None else ir.AffineDimExpr.get(loop) for loop in along])


def computed(
    operands: Sequence[Any],
    into: Any,
    maps: Sequence[ir.AffineMap],
    kinds: Sequence[str],
    body: Callable[..., Any],
) -> Any:
    """The result of an op.

    Args:
        maps: of the operands, and of what it is computed into.
        kinds: of its loops.
        body: what it gives for an element of each.
    """
    iterators = [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
    attributes = ir.ArrayAttr.get([ir.AffineMapAttr.get(one) for one in maps]), ir.ArrayAttr.get(iterators)
    generic = linalg.GenericOp([into.type], list(operands), [into], *attributes)
    types = [value.type.element_type for value in (*operands, into)]
    block = generic.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
    with ir.InsertionPoint(block):
        linalg.YieldOp([body(*block.arguments)])
    return generic.results[0]


def widened(steps: Steps, value: Any, kind: Any) -> Any:
    """A step as an integer of more bits, less its zero point."""
    wide = (arith.ExtSIOp if steps.signed else arith.ExtUIOp)(kind, value).result
    if steps.between is not None:
        low, high = (arith.ConstantOp(kind, bound).result for bound in steps.between)
        wide = arith.MinSIOp(arith.MaxSIOp(wide, low).result, high).result
    return arith.SubIOp(wide, arith.ConstantOp(kind, steps.zero).result).result if steps.zero else wide


def stood_for(
    sums: Any, scales: Sequence[float], factors: Sequence[tuple[Any, Sequence[int | None]]], begun: Any
) -> Any:
    """What sums of products of steps stand for.

    Args:
        scales: numbers that each is multiplied with.
        factors: tensors of such, and which of the result's dimensions theirs go along.
        begun: what the product was added to.
    """
    rank, kind = begun.type.rank, begun.type.element_type
    into = tensor.EmptyOp([dimension(begun, k) for k in range(rank)], kind).result
    added = [] if is_whole_number(begun, 0.0) else [begun]
    whole = ir.AffineMap.get_identity(rank)
    maps = [whole, *(map_of(rank, along) for _, along in factors), *([whole] * len(added)), whole]
    operands = [sums, *(value for value, _ in factors), *added]

    def body(total: Any, *rest: Any) -> Any:
        number = total if total.type == kind else arith.SIToFPOp(kind, total).result
        # One by one: a product of two constants would be rounded to another one.
        for factor in (*(_narrowed(scale, kind) for scale in scales if scale != 1), *rest[: len(factors)]):
            number = arith.MulFOp(number, factor).result
        for other in rest[len(factors) : -1]:
            number = arith.AddFOp(other, number).result
        return number

    return computed(operands, into, maps, ["parallel"] * rank, body)


def _narrowed(number: float, kind: Any) -> Any:
    """A number of the program's in the type of the result."""
    double = ir.F64Type.get()
    constant = arith.ConstantOp(double, number).result
    return constant if kind == double else arith.TruncFOp(kind, constant).result
