"""Which products IREE lays out anew: its data tiling packs operands into tiles, and unpacks the result.

IREE takes all products, or those that carry its hint if any operation of a function has one. Laying out costs a pass
over each value that is not known when the program is loaded; it pays where each element is then used often enough. And
weights that stay outside the program stay where they are: packed, they would be held twice.
"""

from __future__ import annotations

from math import prod
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import linalg

from covan_mlir.lowering import marks
from covan_mlir.lowering.kernels.reductions.profitability import USES
from covan_mlir.lowering.pipeline import PipelineState

HINT = "iree.opt.data_tiling"
"""IREE's attribute of operations that data tiling is for."""

_MANY = 1 << 12  # taken for a size that is known at run time only
_VIEWS = frozenset({"tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "flow.tensor.reshape"})
_CONSTANTS = frozenset({"arith.constant", "util.global.load"})
_PARAMETER = "flow.tensor.constant"


def hint(state: PipelineState) -> None:
    """The step, after global optimization, that hints at the products of a module of IREE's that are to be tiled."""
    with state.session.context:
        unit = ir.UnitAttr.get()
        for function in state.module.operation.regions[0].blocks[0]:
            if not function.operation.regions:
                continue
            function.operation.attributes[HINT] = unit  # that there is one: else IREE would take all
            for op in marks.walk(function.operation, "linalg."):
                if pays(op):
                    op.attributes[HINT] = unit


def pays(op: Any) -> bool:
    """Whether an operation of linalg is a product that IREE can tile, and that gets faster by it."""
    if not linalg.isa_contraction_op(op):
        return False
    dims = linalg.infer_contraction_dimensions(op)
    if dims is None or len(dims.k) != 1 or max(len(dims.batch), len(dims.m), len(dims.n)) > 1:
        return False
    origins = [_origin(operand) for operand in op.operands[:2]]
    if _PARAMETER in origins:
        return False
    laid_out = [
        operand for operand, origin in zip(op.operands, (*origins, ""), strict=True) if origin not in _CONSTANTS
    ]
    return _multiply_adds(op) >= USES * sum(prod(_sizes(value)) for value in laid_out)


def _multiply_adds(op: Any) -> int:
    """Of a contraction: the product of its loops' extents."""
    extents: dict[int, int] = {}
    for operand, indexing in zip(op.operands, linalg.get_indexing_maps(op), strict=True):
        for expr, size in zip(ir.AffineMapAttr(indexing).value.results, _sizes(operand), strict=True):
            extents[ir.AffineDimExpr(expr).position] = size
    return prod(extents.values())


def _sizes(value: Any) -> list[int]:
    kind = ir.RankedTensorType(value.type)
    return [_MANY if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank)]


def _origin(value: Any) -> str:
    """The name of the operation that gives a value, views of it aside; empty of an argument."""
    owner = value.owner
    while not isinstance(owner, ir.Block) and owner.name in _VIEWS:
        owner = owner.operands[0].owner
    return "" if isinstance(owner, ir.Block) else str(owner.name)
