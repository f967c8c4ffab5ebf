"""``linalg-rematerialize``: what an operation shares with another one's preparations, it has itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.prov_locations import TraceReader, rewrite_locations
from covan_mlir.passes.framework.place import visited

_COPIES = frozenset({"tensor.pad", "linalg.broadcast", "linalg.transpose"})
_RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape"})
_WIDENS = "arith.extf"


@dataclass(frozen=True)
class LinalgRematerialize:
    """Takes apart what common subexpression elimination made one: paddings, broadcasts and copies in more bits.

    Two convolutions of one image pad it alike. One padding is left, which is a share of the first convolution as its
    location says, and which a chain for the second one takes in with it. It costs nothing there: each has its own.

    Before::

        %p = tensor.pad %x ... loc("conv")
        %0 = linalg.conv_2d_nchw_fchw ins(%p, %v) ... loc("conv")
        %1 = linalg.conv_2d_nchw_fchw ins(%p, %w) ... loc("conv_1")

    After::

        %p = tensor.pad %x ... loc("conv")
        %0 = linalg.conv_2d_nchw_fchw ins(%p, %v) ... loc("conv")
        %q = tensor.pad %x ... loc("conv_1")
        %1 = linalg.conv_2d_nchw_fchw ins(%q, %w) ... loc("conv_1")

    What is a call of its own, as ``F.pad`` is, and ``repeat`` in another shape, stays one. IREE makes one of what no
    kernel took in.
    """

    name: ClassVar[str] = "linalg-rematerialize"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        reader = TraceReader()
        # From the last one on: what prepares a copy's operand is to be its own as well.
        for block in op.regions[0]:
            for copy in visited(reversed(list(block))):
                if _is_copy(copy):
                    _split(copy, reader)


def _is_copy(op: ir.Operation) -> bool:
    """Whether an operation gives elements of what it reads, in other places, perhaps in more bits."""
    if op.name in _COPIES:
        return True
    if op.name != "linalg.generic" or len(op.operands) != 2 or len(op.results) != 1:
        return False
    if any("parallel" not in str(kind) for kind in op.attributes["iterator_types"]):
        return False
    block = op.regions[0].blocks[0]
    *body, end = (view.operation for view in block)
    given = block.arguments[0]
    if [inner.name for inner in body] == [_WIDENS] and body[0].operands[0] == given:
        given = body[0].results[0]
    elif body:
        return False
    return bool(end.operands[0] == given)


def _split(op: ir.Operation, reader: TraceReader) -> None:
    """Gives those readers of a copy their own whose share it is not, if it is the share of another one."""
    own = reader.ids(op.location)
    theirs = {other: reader.ids(other.location) for other in _readers(op)}
    others = [other for other, ids in theirs.items() if ids and not own & ids]
    if not _prepares(op, own, reader):  # a call of its own, whether it is returned or not
        return
    for other in others:
        with ir.InsertionPoint(other):
            copy = op.clone()
        _locate(copy, other.location)
        _reads_instead(other, op.results[0], copy.results[0])


def _prepares(op: ir.Operation, own: frozenset[int], reader: TraceReader) -> bool:
    """Whether a copy, perhaps in another shape, is read by more work of the part that it is of."""
    for other in _readers(op):
        if own & reader.ids(other.location) and (other.name not in _RESHAPES or _prepares(other, own, reader)):
            return True
    return False


def _readers(op: ir.Operation) -> list[ir.Operation]:
    return list({_beside(use.owner.operation, op): None for use in op.results[0].uses})


def _beside(reader: ir.Operation, op: ir.Operation) -> ir.Operation:
    """The operation beside another one that a reader is, or is in the body of: a gather takes elements there."""
    while reader.block != op.block:
        reader = reader.parent.operation
    return reader


def _reads_instead(reader: ir.Operation, value: ir.Value, other: ir.Value) -> None:
    """Has an operation, and what is in it, read another value."""
    for number, operand in enumerate(reader.operands):
        if operand == value:
            reader.operands[number] = other
    for region in reader.regions:
        for block in region:
            for inner in block:
                _reads_instead(inner.operation, value, other)


def _locate(op: ir.Operation, location: ir.Location) -> None:
    rewrite_locations(op, lambda _: location)
