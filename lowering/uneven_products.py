"""Sums of products of which one factor has fewer axes than the sum has: ``(x * w).sum()`` with one weight a column.

IREE's vectorizer takes such a sum for a contraction, and its verifier refuses that: an axis that is summed must be one
of both factors. A zero that is added to each product hides it, which without fast math is not taken away, and does not
change the sum; whole numbers are multiplied by the negative factor, and subtracted from zero.
"""

from __future__ import annotations

from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, linalg

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState


def hide(state: PipelineState) -> None:
    """The step, after IREE's flow phase, that hides the products of a module of IREE's."""
    with state.session.context:
        for op in list(marks.walk(state.module.operation, "linalg.generic")):
            if _is_uneven(op):
                _hide(op)


def _is_uneven(op: Any) -> bool:
    """Whether more than one axis is summed, and one of them is not an axis of all operands."""
    kinds = [str(kind) for kind in op.attributes["iterator_types"]]
    summed = {axis for axis, kind in enumerate(kinds) if "reduction" in kind}
    if len(summed) < 2 or len(op.operands) < 3:
        return False
    inputs = list(linalg.get_indexing_maps(op))[: len(op.operands) - len(op.results)]
    return any(not summed <= _axes(indexing) for indexing in inputs)


def _axes(indexing: Any) -> set[int]:
    """The loops of an operand that goes along with them."""
    results = ir.AffineMapAttr(indexing).value.results
    return {expr.position for expr in results if isinstance(expr, ir.AffineDimExpr)}


def _hide(op: Any) -> None:
    block = op.regions[0].blocks[0]
    sums = {block.arguments[len(op.operands) - len(op.results) + place] for place in range(len(op.results))}
    for view in list(block):
        product = view.operation
        if product.name not in _OTHERWISE:
            continue
        for use in list(product.results[0].uses):
            total = use.owner
            if total.name in ("arith.addf", "arith.addi") and sums.intersection(total.operands):
                with ir.InsertionPoint(total), product.location:
                    total.operands[use.operand_number] = _OTHERWISE[product.name](product)


def _with_zero(product: Any) -> Any:
    zero = arith.ConstantOp(product.results[0].type, 0.0).result
    return arith.AddFOp(product.results[0], zero).result


def _negative_twice(product: Any) -> Any:
    left, right = product.operands
    zero = arith.ConstantOp(product.results[0].type, 0).result
    return arith.SubIOp(zero, arith.MulIOp(left, arith.SubIOp(zero, right).result).result).result


_OTHERWISE = {"arith.mulf": _with_zero, "arith.muli": _negative_twice}
"""The same number, but the result of no multiplication."""
