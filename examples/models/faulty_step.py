"""A fault to look for: a step of a compilation that gets one subtraction wrong (docs/comparing.md)."""

from __future__ import annotations

from typing import Any


def adds(state: Any) -> None:
    """After ``torch-to-linalg``: the first subtraction of the program adds."""
    import torch_mlir.ir as ir

    subtractions: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "arith.subf":
            subtractions.append(op)
        return ir.WalkResult.ADVANCE

    state.module.operation.walk(visit)
    op = subtractions[0]
    with ir.InsertionPoint(op), op.location:
        other = ir.Operation.create("arith.addf", results=[op.results[0].type], operands=list(op.operands))
    op.results[0].replace_all_uses_with(other.results[0])
    op.erase()
