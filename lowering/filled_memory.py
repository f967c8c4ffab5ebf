"""Constants of one number that are written into, as memory that is filled: concatenations with zeros.

IREE computes ahead of time what it can of a concatenation: a whole tensor, in which the constant pieces are. Where that
is one number, it fills memory with it when the program runs, and says nowhere whose work that is::

    %0 = util.global.load @zeros                        %e = tensor.empty()
    %1 = tensor.insert_slice %x into %0[1]      =>      %0 = linalg.fill ins(%zero) outs(%e)
                                                        %1 = tensor.insert_slice %x into %0[1]
"""

from __future__ import annotations

from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, linalg, tensor

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_LOAD = "util.global.load"
_INSERT = "tensor.insert_slice"


def fill(state: PipelineState) -> None:
    """The step, after global optimization, that fills memory at the location of who writes into it."""
    with state.session.context:
        numbers = {
            ir.StringAttr(op.attributes["sym_name"]).value: number
            for op in marks.walk(state.module.operation, "util.global")
            if op.name == "util.global" and (number := _number(op)) is not None
        }
        for op in marks.walk(state.module.operation, _INSERT):
            load = op.operands[1].owner
            if isinstance(load, ir.Block) or load.name != _LOAD or not _is_static(op.operands[1].type):
                continue
            number = numbers.get(ir.FlatSymbolRefAttr(load.attributes["global"]).value)
            if number is not None:
                op.operands[1] = _filled(op, number)


def _number(op: Any) -> Any:
    """The number that all elements of a global are, for good."""
    held = op.attributes.get("initial_value", None)
    if "is_mutable" in op.attributes or not isinstance(held, ir.DenseElementsAttr) or not held.is_splat:
        return None
    return held.get_splat_value()


def _is_static(kind: Any) -> bool:
    return isinstance(kind, ir.RankedTensorType) and kind.has_static_shape


def _filled(op: Any, number: Any) -> Any:
    kind = op.operands[1].type
    with op.location, ir.InsertionPoint(op):
        value = arith.ConstantOp(kind.element_type, number).result
        return linalg.fill(value, outs=[tensor.empty(kind.shape, kind.element_type)])
