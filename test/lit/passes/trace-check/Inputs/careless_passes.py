"""Passes that go around the rewriter, each losing provenance in its own way."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir


@dataclass(frozen=True)
class DropsPass:
    """Builds the new op at the wrong place."""

    name: ClassVar[str] = "test-drops"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        first, second = [view.operation for view in list(op.regions[0].blocks[0].operations)[:2]]
        second.location = first.location


@dataclass(frozen=True)
class InventsPass:
    """Says that an op does what nobody asked for."""

    name: ClassVar[str] = "test-invents"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        first = op.regions[0].blocks[0].operations[0].operation
        new = ir.Location.name("prov:5:mul", context=op.context)
        first.location = ir.Location.fused([first.location, new], context=op.context)


@dataclass(frozen=True)
class ForgetsPass:
    """Builds an op and does not say why."""

    name: ClassVar[str] = "test-forgets"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        first = op.regions[0].blocks[0].operations[0].operation
        with ir.InsertionPoint(first), ir.Location.file("pass.py", 1, 0, op.context):
            ir.Operation.create("arith.negf", operands=list(first.operands), results=[first.results[0].type])
