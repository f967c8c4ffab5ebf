"""What reads a tensor comes behind what is written into it, unless the written value needs it.

IREE writes in place where no operation behind the write reads the tensor, and then orders operations by the values that
they hand on alone: one that read the tensor before may come to stand behind the write, and reads what was written.
Behind the write from the beginning, it has IREE write into a copy::

    %a = dispatch @reads(%x)                           %y = dispatch @computes(%x)
    %y = dispatch @computes(%x)                =>      %z = flow.tensor.update %y, %x[1, 0]
    %z = flow.tensor.update %y, %x[1, 0]               %a = dispatch @reads(%x)

It is done on IREE's ``flow`` dialect, block by block. Order alone changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_UPDATE = "flow.tensor.update"
_VIEWS = frozenset({"flow.tensor.reshape", "flow.tensor.bitcast", "tensor.cast"})
_LOAD = "flow.tensor.load"
"""Waits for the device: a size that is computed is read so, and what comes behind it is of that size."""
_MOVED = ("flow.", "tensor.", "arith.", "hal.tensor.export")
"""What may change places: it does nothing but give values."""


def put_behind(state: PipelineState) -> None:
    """The step, after IREE's flow phase."""
    with state.session.context:
        for function in marks.walk(state.module.operation, "util.func"):
            for block in function.regions[0].blocks if function.regions else ():
                for written, target in list(_writes(block)):
                    _put_behind(block, written, target)


def _writes(block: Any) -> Iterator[tuple[Any, Any]]:
    """Operations of a block that may write in place, and the tensor that each writes into."""
    for view in block:
        op = view.operation
        if op.name == _UPDATE:
            yield op, op.operands[0]
        elif op.name.startswith("flow.") and "tied_operands" in op.attributes:
            first = _tied_from(op)
            for number in op.attributes["tied_operands"]:
                if (place := ir.IntegerAttr(number).value) >= 0:
                    yield op, op.operands[first + place]


def _tied_from(op: Any) -> int:
    """Where the operands begin that results may be tied to: a dispatch's workload comes before."""
    if "operandSegmentSizes" not in op.attributes or op.name != "flow.dispatch":
        return 0
    return int(next(iter(op.attributes["operandSegmentSizes"])))


def _put_behind(block: Any, written: Any, target: Any) -> None:
    readers = {op for op in _readers(_origin(target)) if op != written}
    if not readers:
        return
    operations = [view.operation for view in block]
    before = operations[: operations.index(written)]
    needed = _needed(written, set(before))
    late: list[Any] = []
    moved: set[Any] = set()
    for op in before:
        if op not in needed and (op in readers or any(_owner(value) in moved for value in op.operands)):
            if not op.name.startswith(_MOVED) or op.name == _LOAD:
                return  # what it does keeps its place, and what it reads has to come before
            late.append(op)
            moved.add(op)
    last = written
    for op in late:
        op.move_after(last)
        last = op


def _readers(value: Any) -> Iterator[Any]:
    """Who reads a value, in whatever shape."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in _VIEWS:
            yield from _readers(op.results[0])
        else:
            yield op


def _origin(value: Any) -> Any:
    """What a value is in another shape."""
    while (op := _owner(value)) is not None and op.name in _VIEWS:
        value = op.operands[0]
    return value


def _needed(op: Any, among: set[Any]) -> set[Any]:
    """What an operation is computed from."""
    needed: set[Any] = set()
    waiting = [op]
    while waiting:
        for value in waiting.pop().operands:
            owner = _owner(value)
            if owner in among and owner not in needed:
                needed.add(owner)
                waiting.append(owner)
    return needed


def _owner(value: Any) -> Any:
    """The operation that gives a value; None for an argument of a block."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else getattr(owner, "operation", owner)
