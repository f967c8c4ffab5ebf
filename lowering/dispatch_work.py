"""What a dispatch does, read of the locations of the operations in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering import marks

# Operations that say nothing about what is computed: their locations name whoever made them, often another action's.
SILENT = frozenset(
    {
        "arith.constant",
        "linalg.yield",
        "linalg.index",
        "linalg.fill",
        "tensor.empty",
        "tensor.dim",
        "flow.return",
        "flow.dispatch.workgroups",
        "flow.dispatch.tie_shape",
        "scf.yield",
        "affine.apply",
    }
)
_SILENT_DIALECTS = ("iree_tensor_ext.", "iree_encoding.", "util.", "hal.")


class Performed:
    """What a dispatch does, by the locations of the operations in it that compute.

    Args:
        varies: whether an argument lies behind an operand of the dispatch.

    Attributes:
        ids: ids in those locations.
        data: those of them that only such operations name behind which no argument lies: indices, masks. Of what picks
            elements by such indices the picking is work.
    """

    def __init__(self, dispatch: Any, read: TraceReader, varies: Callable[[Any], bool]) -> None:
        self._read = read
        self._checks = _checks(dispatch)
        self._varying: set[Any] = set()
        self._computing: dict[bool, set[int]] = {True: set(), False: set()}
        self._moving: dict[bool, set[int]] = {True: set(), False: set()}
        block = dispatch.regions[0].blocks[0]
        first = ir.DenseI32ArrayAttr(dispatch.attributes["operandSegmentSizes"])[0]  # behind the workload
        for operand, argument in zip(list(dispatch.operands)[first:], block.arguments, strict=False):
            if "<writeonly:" not in str(argument.type) and varies(operand):
                self._varying.add(argument)
        for view in block:
            self._visit(view.operation)
        computing = self._computing[True] | self._computing[False]
        moving = self._moving[True] | self._moving[False]
        own = read.ids(dispatch.location)
        places = not moving and all(_is_silent(view) or _is_number(view) for view in block)
        # Numbers say where a piece is put, and not who puts it there.
        self.ids = frozenset(own) if own and places else frozenset(computing or moving or own)
        varying = self._computing[True] | self._moving[True]
        self.data = self._computing[False] - varying if self._computing[True] else frozenset[int]()

    def _visit(self, op: Any) -> bool:
        """Reads one operation and those in it; whether its results vary with the arguments."""
        varies = any(operand in self._varying for operand in op.operands)
        for region in op.regions:
            for block in region:
                for number, argument in enumerate(block.arguments):
                    if op.operands[number] in self._varying if op.name == "linalg.generic" else varies:
                        self._varying.add(argument)
                inner = [self._visit(view.operation) for view in block]
                varies = varies or any(inner)
        if varies:
            self._varying.update(op.results)
        if not _is_silent(op) and op not in self._checks:
            self._note(op, varies)
        return varies

    def _note(self, op: Any, varies: bool) -> None:
        ids = self._read.ids(op.location)
        # The payload of a generic speaks for itself; a generic that only moves data has none.
        payload = op.name == "linalg.generic" and any(
            inner.operation.name not in SILENT for inner in op.regions[0].blocks[0]
        )
        if payload or op.name.startswith("tensor."):
            self._moving[varies].update(ids)
        else:
            self._computing[varies].update(ids)


def _is_silent(op: Any) -> bool:
    """Whether an operation's location says nothing about what is computed."""
    name = op.operation.name
    return name in SILENT or name.startswith(_SILENT_DIALECTS)


def _is_number(op: Any) -> bool:
    """Whether an operation computes numbers, of numbers."""
    values = (*op.operation.operands, *op.operation.results)
    return op.operation.name.startswith("arith.") and all("tensor<" not in str(value.type) for value in values)


def _checks(dispatch: Any) -> set[Any]:
    """The assertions in a dispatch and of what only they read: code generation drops them.

    An assertion about an operand may end up in the dispatch that gives it, which does none of the operation's work.
    """
    checking: set[Any] = set()
    stack: list[Any] = list(marks.walk(dispatch, "cf.assert"))
    while stack:
        op = stack.pop()
        if op in checking:
            continue
        checking.add(op)
        for operand in op.operands:
            owner = operand.owner
            if not isinstance(owner, ir.Block) and all(
                use.owner.operation in checking for result in owner.results for use in result.uses
            ):
                stack.append(owner)
    return checking
