"""What kernels read and write begins where they can: what begins elsewhere is copied.

IREE hands a dispatch the bytes where they are, rows of a tensor or a piece of a concatenation. Its own code is told
where they begin; a kernel of ours was compiled for places that are a multiple of some bytes away from the beginning of
an allocation::

    %r = slice %x[5]           %r = slice %x[5]             %y = @kernel(%x)           %y = @kernel(%x)
    %y = @kernel(%r)      =>   %c = dispatch @copy(%r)      %z = update %y, %t[3]  =>  %c = dispatch @copy(%y)
                               %y = @kernel(%c)                                        %z = update %c, %t[3]

A copy is a dispatch of IREE's, which it neither removes nor merges. It is done on IREE's ``flow`` dialect, while
dispatches are regions. On CPUs kernels take any element's place, and nothing is copied.
"""

from __future__ import annotations

from math import prod
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState, Run
from covan_mlir.machine.elements import bits

_DISPATCH = "flow.dispatch"
_SLICE = "flow.tensor.slice"
_UPDATE = "flow.tensor.update"
_RESHAPE = "flow.tensor.reshape"


def copied(alignment: int) -> Run:
    """The step, after IREE's dispatch creation, for kernels whose operands begin at multiples of so many bytes."""

    def copy(state: PipelineState) -> None:
        with state.session.context:
            for op in marks.walk(state.module.operation, _DISPATCH):
                if op.name == _DISPATCH:
                    _read(op, alignment)
                    _written(op, alignment)

    return copy


def _read(op: Any, alignment: int) -> None:
    """Has a kernel read copies of slices that begin elsewhere."""
    for number, value in enumerate(op.operands):
        piece = value
        while not isinstance(piece.owner, ir.Block) and piece.owner.name in (_RESHAPE, _SLICE):
            if piece.owner.name == _SLICE and not _begins_at(piece.owner, alignment):
                op.operands[number] = _copy(value, op, piece.owner.location)
                break
            piece = piece.owner.operands[0]


def _written(op: Any, alignment: int) -> None:
    """Has copies of a kernel's results put into slices that begin elsewhere."""
    pending = list(op.results)
    while pending:
        value = pending.pop()
        for use in list(value.uses):
            user = use.owner
            if user.name == _RESHAPE:
                pending.extend(user.results)
            elif user.name == _UPDATE and _parts(user)[3][0] == value and not _begins_at(user, alignment):
                user.operands[use.operand_number] = _copy(value, user, user.location)


def _begins_at(op: Any, alignment: int) -> bool:
    """Whether the slice that an operation takes, or writes, is known to begin at a multiple of so many bytes."""
    (whole,), _, starts, *_ = _parts(op)
    shape = whole.type.shape
    for axis, start in enumerate(starts):
        inner = shape[axis + 1 :]
        if any(size < 0 for size in inner):
            return False
        step = prod(inner) * bits(str(whole.type.element_type)) // 8
        number = _number(start)
        if step % alignment and (number is None or number * step % alignment):
            return False
    return True


def _parts(op: Any) -> list[list[Any]]:
    """The operands of an operation, by what they are for: the whole, its sizes, and where the slice begins; behind
    these are those of its length, or what is written there."""
    values = list(op.operands)
    parts: list[list[Any]] = []
    for count in op.attributes["operandSegmentSizes"]:
        parts.append(values[:count])
        values = values[count:]
    return parts


def _number(value: Any) -> int | None:
    if isinstance(value.owner, ir.Block) or not isinstance(value.owner.opview, arith.ConstantOp):
        return None
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


def _copy(value: Any, before: Any, location: Any) -> Any:
    """A dispatch that copies a value, ahead of an operation."""
    whole = f"offsets = [{', '.join('0' for _ in value.type.shape)}], sizes = {value.type.shape}"
    whole += f", strides = [{', '.join('1' for _ in value.type.shape)}]"
    kind = value.type
    read, written = (f"!iree_tensor_ext.dispatch.tensor<{how}:{kind}>" for how in ("readonly", "writeonly"))
    module = ir.Module.parse(f"""
      util.func private @copy(%value: {kind}) -> {kind} {{
        %copy = flow.dispatch.workgroups(%value) : ({kind}) -> {kind} = (%from: {read}, %to: {written}) {{
          %all = iree_tensor_ext.dispatch.tensor.load %from, {whole} : {read} -> {kind}
          iree_tensor_ext.dispatch.tensor.store %all, %to, {whole} : {kind} -> {written}
          flow.return
        }} count() -> (index, index, index) {{
          %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice()
          flow.return %x, %y, %z : index, index, index
        }}
        util.return %copy : {kind}
      }}""")
    template = module.body.operations[0].regions[0].blocks[0].operations[0].operation
    with ir.InsertionPoint(before):
        copy = template.clone()
    copy.operands[0] = value
    copy.location = location
    for inner in marks.walk(copy, ""):
        inner.location = location
    return copy.results[0]
