"""Concatenations of slices that are read with another axis, one slice written behind the other.

IREE takes an axis of one element that a concatenation is read with to what is concatenated. A slice with more axes than
what it is a slice of is no operation, and compilation ends::

    %s = extract_slice %x[3] : <6> to <1>                   %s = extract_slice %x[3] : <6> to <1>
    %c = concat %s, %t : <2>                        =>      %c = insert_slice %t into (insert_slice %s into %empty)[1]
    %e = expand_shape %c : <2> into <2x1>                   %e = expand_shape %c : <2> into <2x1>
"""

from __future__ import annotations

from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import tensor

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_CONCAT = "tensor.concat"
_EXPAND = "tensor.expand_shape"
_SLICE = "tensor.extract_slice"
_VIEWS = frozenset({_EXPAND, "tensor.collapse_shape"})


def write(state: PipelineState) -> None:
    """The step, before IREE's dispatch creation, that writes such concatenations piece by piece."""
    with state.session.context:
        for op in marks.walk(state.module.operation, _CONCAT):
            kinds = [value.type for value in (*op.operands, *op.results)]
            if (
                all(kind.has_static_shape for kind in kinds)
                and any(use.owner.name == _EXPAND for use in op.results[0].uses)
                and any(map(_is_slice, op.operands))
            ):
                _write(op)


def _is_slice(value: Any) -> bool:
    """Whether a value is a slice, or a view of one."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in _VIEWS:
        value = value.owner.operands[0]
    return not isinstance(value.owner, ir.Block) and value.owner.name == _SLICE


def _write(op: Any) -> None:
    kind, dim = op.results[0].type, ir.IntegerAttr(op.attributes["dim"]).value
    first = 0
    with op.location, ir.InsertionPoint(op):
        joined = tensor.empty(kind.shape, kind.element_type)
        for piece in op.operands:
            offsets = [first if axis == dim else 0 for axis in range(kind.rank)]
            sizes, strides = piece.type.shape, [1] * kind.rank
            joined = tensor.insert_slice(piece, joined, [], [], [], offsets, sizes, strides)
            first += sizes[dim]
    op.results[0].replace_all_uses_with(joined)
    op.erase()
