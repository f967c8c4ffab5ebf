"""Element-wise operations that read at strides, behind a convolution: as slices at strides.

IREE drops the loops over a window of one element, as some poolings have, and what is left reads every other element by
its map::

    %1 = linalg.generic {(d0, d1) -> (d0, d1 * 2)}           %e = tensor.extract_slice %x[0, 0] [4, 4] [1, 2]
             ins(%x : tensor<4x8xf32>)                  =>   %1 = linalg.generic {(d0, d1) -> (d0, d1)}
             outs(%0 : tensor<4x4xf32>)                               ins(%e) outs(%0)

A convolution whose result it takes as well becomes one dispatch with it. IREE gives that convolution the dimensions
back that its own form needs, moves the reshape behind it past the element-wise operation, which such a map forbids, and
refuses what is left: a result that no workgroup owns. Nowhere else are there slices: each may become a copy.
"""

from __future__ import annotations

from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, tensor

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_MAPS = "indexing_maps"
_CONVOLUTIONS = ("linalg.conv", "linalg.depthwise_conv")
_RESHAPES = frozenset({"tensor.expand_shape", "tensor.collapse_shape"})
_DYNAMIC = ir.ShapedType.get_dynamic_size()


def cut(state: PipelineState) -> None:
    """The step, after IREE's global optimization, that takes strides out of the maps of element-wise operations."""
    with state.session.context:
        for op in marks.walk(state.module.operation, "linalg.generic"):
            if not _reduces(op) and any(map(_takes_convolution, (op, *_readers(op)))):
                _cut(op)


def _readers(op: Any) -> list[Any]:
    """The element-wise operations that read an operation's results: they become one with it."""
    users = [use.owner.operation for result in op.results for use in result.uses]
    return [user for user in users if user.name == "linalg.generic" and not _reduces(user)]


def _takes_convolution(op: Any) -> bool:
    """Whether an operation reads what a convolution gives."""
    return any(map(_is_of_convolution, op.operands))


def _reduces(op: Any) -> bool:
    """Whether an operation of linalg has loops that its results have not."""
    if "iterator_types" not in op.attributes:
        return bool(op.name.startswith(_CONVOLUTIONS))
    return any("parallel" not in str(kind) for kind in op.attributes["iterator_types"])


def _is_of_convolution(value: Any) -> bool:
    """Whether a value is what sums of windows, or of anything else, give, perhaps in another shape."""
    owner = value.owner
    while not isinstance(owner, ir.Block) and owner.name in _RESHAPES:
        owner = owner.operands[0].owner
    return not isinstance(owner, ir.Block) and owner.name.startswith("linalg.") and _reduces(owner)


def _cut(op: Any) -> None:
    maps = [ir.AffineMapAttr(each).value for each in op.attributes[_MAPS]]
    loops = {  # an operand and its dimension that each loop goes along
        expr.position: (operand, place)
        for operand, indexing in zip(op.operands, maps, strict=True)
        for place, expr in enumerate(indexing.results)
        if isinstance(expr, ir.AffineDimExpr)
    }
    for number, value in enumerate(list(op.operands)[: len(op.operands) - len(op.results)]):
        strides = [_stride(expr) for expr in maps[number].results]
        axes = {axis for axis, stride in strides if stride > 1}
        if not axes or not axes <= loops.keys():
            continue
        # At nobody's location: the slice is no value of the operation that reads it.
        with ir.Location.unknown(), ir.InsertionPoint(op):
            op.operands[number] = _slice(
                value, [(loops[axis], stride) if stride > 1 else None for axis, stride in strides]
            )
        exprs = [
            ir.AffineDimExpr.get(axis) if stride > 1 else expr
            for (axis, stride), expr in zip(strides, maps[number].results, strict=True)
        ]
        maps[number] = ir.AffineMap.get(maps[number].n_dims, maps[number].n_symbols, exprs)
    op.attributes[_MAPS] = ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps])


def _stride(expr: Any) -> tuple[int, int]:
    """The loop that a dimension is read along and the step, for ``d1 * 2``; no step for anything else."""
    if isinstance(expr, ir.AffineMulExpr):
        loop, factor = expr.lhs, expr.rhs
        if isinstance(loop, ir.AffineDimExpr) and isinstance(factor, ir.AffineConstantExpr):
            return loop.position, factor.value
    return -1, 0


def _slice(value: Any, dimensions: list[tuple[tuple[Any, int], int] | None]) -> Any:
    """A value's every so manieth elements, as many as the dimension of another operand has; of others all."""
    kind = value.type
    sizes: list[int] = []
    dynamic: list[Any] = []
    for place, along in enumerate(dimensions):
        source, dimension = (value, place) if along is None else along[0]
        size = source.type.shape[dimension]
        if size < 0:
            dynamic.append(tensor.DimOp(source, arith.ConstantOp(ir.IndexType.get(), dimension)).result)
        sizes.append(_DYNAMIC if size < 0 else size)
    steps = [1 if along is None else along[1] for along in dimensions]
    result = ir.RankedTensorType.get(sizes, kind.element_type)
    return tensor.extract_slice(result, value, [], dynamic, [], [0] * len(sizes), sizes, steps)
