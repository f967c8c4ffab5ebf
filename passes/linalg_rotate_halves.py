"""``linalg-rotate-halves``: a tensor's halves, exchanged and one of them negated, are one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, tensor

from covan_mlir.passes.framework.generics import in_place
from covan_mlir.passes.framework.index_values import IndexValue, dimension, value_of
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.framework.rewriter import Rewriter


@dataclass(frozen=True)
class LinalgRotateHalves:
    """Makes an element-wise op of what rotary embeddings do to halves of the last dimension: ``cat(-x2, x1)``.

    IREE does so, too, and gives the op the location of what it reads, with all that a kernel performs that gives it.

    Before::

        %x1 = tensor.extract_slice %x[0, 0] [5, 4] [1, 1]
        %x2 = tensor.extract_slice %x[0, 4] [5, 4] [1, 1]
        %n = linalg.generic ins(%x2) { arith.negf }
        %y = tensor.concat dim(1) %n, %x1

    After::

        %h = tensor.expand_shape %x [[0], [1, 2]] output_shape [5, 2, 4]
        %g = linalg.generic outs(%e : tensor<5x2x4xf32>) { (i, j, k): %h[i, 1 - j, k], negated where j is 0 }
        %y = tensor.collapse_shape %g [[0], [1, 2]]
    """

    name: ClassVar[str] = "linalg-rotate-halves"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        rewriter: Rewriter | None = None
        for concat in visited([view for block in op.regions[0] for view in block]):
            pieces = _pieces(concat)
            if pieces is None:
                continue
            rewriter = rewriter or Rewriter(op)
            source, sizes, going = pieces[0].operands[0], _sizes(pieces[0]), [concat]
            for dim, k in _dims(pieces):
                with rewriter.replacing(dim, reason="a size that is known") as new:
                    new.results(value_of(sizes[k]))
            for piece in reversed(pieces):  # readers first
                if all(use.owner.operation in going for use in piece.results[0].uses):
                    going.insert(0, piece)
            with rewriter.replacing(*going, copies=[piece for piece in pieces if piece not in going]) as new:
                new.results(_rotated(source, sizes, concat.results[0].type))


def _pieces(concat: ir.Operation) -> list[ir.Operation] | None:
    """The halves' slices and the negation of the second, if that is what is put together."""
    if concat.name != "tensor.concat" or len(concat.operands) != 2:
        return None
    negated, first = (_maker(value) for value in concat.operands)
    if negated is None or first is None or not _negates(negated):
        return None
    second = _maker(negated.operands[0])
    source = first.operands[0] if first.name == _SLICE else None
    if second is None or second.name != _SLICE or source is None or second.operands[0] != source:
        return None
    joined: Any = concat.results[0].type
    *before, last = list(joined.shape)
    dim = ir.IntegerAttr(concat.attributes["dim"]).value
    if dim != len(before) or last < 0 or last % 2 or source.type.shape[dim] != last:
        return None
    sizes = _sizes(first)
    alike = sizes == _sizes(second) and sizes[-1] == last // 2
    starts = _starts(first), _starts(second)
    if alike and starts == ([0] * (dim + 1), [0] * dim + [last // 2]):
        return [first, second, negated]
    return None


_SLICE = "tensor.extract_slice"


def _maker(value: ir.Value) -> ir.Operation | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def _starts(cut: ir.Operation) -> list[int] | None:
    """Where a slice begins, as far as that is known; None of one with gaps."""
    if any(stride != 1 for stride in ir.DenseI64ArrayAttr(cut.attributes["static_strides"])):
        return None
    return list(ir.DenseI64ArrayAttr(cut.attributes["static_offsets"]))


def _sizes(cut: ir.Operation) -> list[IndexValue]:
    """Sizes of a slice whose beginning is known."""
    known = list(ir.DenseI64ArrayAttr(cut.attributes["static_sizes"]))
    values = iter(list(cut.operands)[1:])
    return [next(values) if size < 0 else size for size in known]


def _dims(pieces: Sequence[ir.Operation]) -> list[tuple[ir.Operation, int]]:
    """Who asks for the sizes of pieces, and for which."""
    asking = []
    for piece in pieces:
        for use in piece.results[0].uses:
            reader = use.owner.operation
            number = _maker(reader.operands[1]) if reader.name == "tensor.dim" else None
            if number is not None and number.name == "arith.constant":
                asking.append((reader, ir.IntegerAttr(number.attributes["value"]).value))
    return asking


def _negates(op: ir.Operation) -> bool:
    """Whether an op negates each element of a tensor, and does nothing else."""
    if not in_place(op) or len(op.operands) != 2 or len(op.results) != 1:
        return False
    block = op.regions[0].blocks[0]
    inside = [view.operation for view in block]
    return (
        [inner.name for inner in inside] == ["arith.negf", "linalg.yield"]
        and inside[0].operands[0] == block.arguments[0]
        and inside[1].operands[0] == inside[0].results[0]
    )


def _rotated(source: Any, half: Sequence[IndexValue], joined: Any) -> Any:
    """The tensor with its halves exchanged, the one that comes first negated.

    Args:
        half: sizes of a half.
        joined: type of the result; it may be shorter than the source in other dimensions than the last.
    """
    *before, last = half
    element = source.type.element_type
    rows = [[k] for k in range(len(before))] + [[len(before), len(before) + 1]]

    def apart(kind: Any) -> Any:
        return ir.RankedTensorType.get([*list(kind.shape)[:-1], 2, last], element)

    whole = apart(source.type)
    of_source = [value_of(dimension(source, k)) for k, size in enumerate(whole.shape[:-2]) if size < 0]
    halves = tensor.ExpandShapeOp(whole, source, rows, of_source, list(whole.shape)).result
    empty = tensor.EmptyOp([*before, 2, last], element).result
    depth = len(half) + 1
    maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(ir.AffineMap.get_identity(depth))])
    loops = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * depth)
    generic = linalg.GenericOp([apart(joined)], [], [empty], maps, loops)
    block = generic.regions[0].blocks.append(element, arg_locs=[ir.Location.current])
    with ir.InsertionPoint(block):
        at = [linalg.IndexOp(k).result for k in range(depth)]
        one = arith.ConstantOp(ir.IndexType.get(), 1).result
        other = arith.SubIOp(one, at[-2]).result
        taken = tensor.ExtractOp(halves, [*at[:-2], other, at[-1]]).result
        second = arith.CmpIOp(arith.CmpIPredicate.eq, other, one).result
        linalg.YieldOp([arith.SelectOp(second, arith.NegFOp(taken).result, taken).result])
    return tensor.CollapseShapeOp(joined, generic.results[0], rows).result
