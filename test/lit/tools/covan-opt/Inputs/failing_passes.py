"""Passes that fail, each in its own way."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.passes.framework.interface import PassFailure


@dataclass(frozen=True)
class RaisesPass:
    """Has a bug."""

    name: ClassVar[str] = "test-raises"
    op_name: ClassVar[str | None] = None

    def run(self, op: ir.Operation) -> None:
        raise ValueError("the user's bug")


@dataclass(frozen=True)
class RefusesPass:
    """Cannot do its work, and says why and where."""

    name: ClassVar[str] = "test-refuses"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        terminator = op.regions[0].blocks[0].operations[0]
        raise PassFailure("this return is not to our liking", terminator.location)


@dataclass(frozen=True)
class BreaksPass:
    """Leaves IR that does not verify."""

    name: ClassVar[str] = "test-breaks"
    op_name: ClassVar[str | None] = "func.func"

    count: int = 1
    names: tuple[str, ...] = ()

    def run(self, op: ir.Operation) -> None:
        op.regions[0].blocks[0].operations[0].operation.erase()
