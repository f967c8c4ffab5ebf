"""Arguments stay as the caller gave them.

IREE takes an argument that is read for the last time for memory of its own: what is written into a tensor is written
into the caller's. Something that reads the argument at the end of the function makes IREE write into a copy. What the
program changes on purpose is left alone: its new value goes to the same place anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState, Run

_IMPORT = "hal.tensor.import"
_COPY = "flow.tensor.update"
_VIEWS = frozenset({"flow.tensor.reshape", "flow.tensor.bitcast", "tensor.cast"})
_CONTROL = ("scf.", "cf.")


def keep(changed: tuple[int, ...]) -> Run:
    """The step, after IREE's flow phase, for a program that changes some of its parameters."""

    def run(state: PipelineState) -> None:
        with state.session.context as context, ir.Location.unknown():
            context.get_dialect_descriptor("util")
            for function in marks.walk(state.module.operation, "util.func"):
                if function.regions and function.regions[0].blocks:
                    _protect(function, changed)

    return run


def _protect(function: Any, changed: tuple[int, ...]) -> None:
    blocks = list(function.regions[0].blocks)
    ends = [list(block)[-1].operation for block in blocks]
    returns = [op for op in ends if op.name == "util.return"]
    for position, argument in enumerate(blocks[0].arguments):
        for use in list(argument.uses):
            if use.owner.operation.name != _IMPORT:
                continue
            value = use.owner.operation.results[0]
            # Memory of the caller's cannot be copied into, whoever it is for.
            if any(op.name == _COPY or position not in changed for op in _writers(value)):
                for op in returns:
                    with ir.InsertionPoint(op):
                        ir.Operation.create("util.optimization_barrier", [value.type], [value])


def _writers(value: Any) -> Iterator[Any]:
    """Operations that may write into a value, in whatever shape."""
    for use in value.uses:
        owner, place = use.owner.operation, use.operand_number
        if owner.name in _VIEWS:
            yield from _writers(owner.results[0])
        elif owner.name.startswith(_CONTROL):
            yield owner
        elif owner.name == _COPY:
            if place == 0:
                yield owner
        elif "tied_operands" in owner.attributes and owner.name.startswith("flow."):
            yield owner
