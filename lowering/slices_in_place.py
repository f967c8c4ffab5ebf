"""Pieces of a concatenation that do not lie one behind the other in memory: columns, a stack along an inner dimension.

IREE copies each of them to where it belongs, by a dispatch of its own. What alone is copied is written there by whom
computes it::

    %y = dispatch(%x) { %v = f(load %x); store %v, %out }         %z = dispatch(%x, %t) {
    %z = dispatch(%y, %t) { store (load %y), %t[0, 64] }     =>     %v = f(load %x); store %v, %t[0, 64]
                                                                  }

It is done on IREE's ``flow`` dialect, while dispatches are regions, and where what is written into is new memory:
nothing that is read is written. Only element-wise work is moved (gathers, broadcasts and transpositions are): IREE
writes its results into any slice. Pieces that are runs of bytes are in place already
(`covan_mlir.lowering.concatenations`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_REGION = "flow.dispatch.workgroups"
_LOAD = "iree_tensor_ext.dispatch.tensor.load"
_STORE = "iree_tensor_ext.dispatch.tensor.store"
_EMPTY = frozenset({"flow.tensor.empty", "tensor.empty"})
_RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape", "tensor.empty"})


def write(state: PipelineState) -> None:
    """The step, after IREE's dispatch creation, that has the dispatches of a module write where they are copied to."""
    with state.session.context:
        for op in list(marks.walk(state.module.operation, _REGION)):
            copy = _copy_of(op)
            if copy is not None and _is_new(copy.target) and _is_elementwise(copy.source):
                _merge(copy)


@dataclass(frozen=True)
class _Copy:
    """A dispatch that only copies.

    Attributes:
        source: the dispatch whose only result it copies, and nobody else reads.
        target: what it copies into.
        store: the operation that does.
    """

    op: Any
    source: Any
    target: Any
    store: Any


def _copy_of(op: Any) -> _Copy | None:
    """What a dispatch copies, if it does nothing else, and all of one result of another."""
    if not _is_plain(op) or len(op.operands) != 2 or len(op.results) != 1:
        return None
    value, target = op.operands
    source = value.owner
    body = [view.operation for view in op.regions[0].blocks[0]]
    if isinstance(source, ir.Block) or [inner.name for inner in body] != [_LOAD, _STORE, "flow.return"]:
        return None
    load, store, _ = body
    read, written = op.regions[0].blocks[0].arguments
    if load.operands[0] != read or store.operands[0] != load.results[0] or store.operands[1] != written:
        return None
    if (
        len(list(load.operands)) > 1
        or len(list(store.operands)) > 2
        or load.results[0].type != value.type
        or len(list(value.uses)) != 1
        or len(source.results) != 1
    ):
        return None
    return _Copy(op, source, target, store)


def _is_plain(op: Any) -> bool:
    """Whether a dispatch is a region of sizes that are all known."""
    if op.name != _REGION:
        return False
    kinds = [value.type for value in (*op.operands, *op.results)]
    if not all(isinstance(kind, ir.RankedTensorType) and kind.has_static_shape for kind in kinds):
        return False
    workload, _, *sizes = op.attributes["operandSegmentSizes"]
    return not workload and not any(sizes)


def _is_new(value: Any) -> bool:
    """Whether a value is new memory, into which other pieces may have been copied."""
    while not isinstance(value.owner, ir.Block) and len(list(value.uses)) == 1:
        op = value.owner
        if op.name in _EMPTY:
            return True
        if op.name != _REGION or "tied_operands" not in op.attributes or len(op.results) != 1:
            return False
        (number,) = (ir.IntegerAttr(each).value for each in op.attributes["tied_operands"])
        if number < 0:
            return False
        value = op.operands[number]
    return False


def _is_elementwise(op: Any) -> bool:
    """Whether a dispatch computes its results element by element, and writes nothing but one result, at once."""
    if not _is_plain(op) or ("tied_operands" in op.attributes and _ties(op)):
        return False
    block = op.regions[0].blocks[0]
    written = block.arguments[len(op.operands)]
    stores = [use.owner for use in written.uses]
    if len(stores) != 1 or stores[0].name != _STORE or stores[0].operands[0].type != op.results[0].type:
        return False
    computes = False
    for view in block:
        inner = view.operation
        if inner.name == "linalg.generic":
            if any("parallel" not in str(kind) for kind in inner.attributes["iterator_types"]):
                return False
            computes = True
        elif inner.name not in (_LOAD, _STORE, "flow.return", *_RESHAPES) and not inner.name.startswith("arith."):
            return False
    return computes


def _ties(op: Any) -> bool:
    return any(ir.IntegerAttr(number).value >= 0 for number in op.attributes["tied_operands"])


def _merge(copy: _Copy) -> None:
    """Has the dispatch whose result is copied write it where it is copied to."""
    source, op = copy.source, copy.op
    operands = [*source.operands, copy.target]
    location = source.location  # its work: what is in place needs none
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([0, len(operands), 0, 0])
    attributes["tied_operands"] = ir.ArrayAttr.get([ir.IntegerAttr.get(ir.IndexType.get(), len(operands) - 1)])
    with location, ir.InsertionPoint(op):
        merged = ir.Operation.create(_REGION, [op.results[0].type], operands, attributes=attributes, regions=2)
    for mine, theirs in zip(merged.regions, source.regions, strict=True):
        for block in list(theirs.blocks):
            block.append_to(mine)
    body = merged.regions[0].blocks[0]
    before = body.arguments[len(source.operands)]
    (store,) = (use.owner for use in before.uses)
    written = body.add_argument(copy.store.operands[1].type, location)
    with ir.InsertionPoint(store):
        moved = copy.store.clone()
        moved.operands[0], moved.operands[1] = store.operands[0], written
    store.erase()
    body.erase_argument(len(source.operands))
    op.results[0].replace_all_uses_with(merged.results[0])
    op.erase()
    source.erase()
