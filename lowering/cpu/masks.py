"""Which positions of the loop a mask leaves out entirely: derived from the chain's expressions."""

from __future__ import annotations

from collections.abc import Mapping

from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.cpu.emit import Code, Value
from covan_mlir.lowering.cpu.roles import Roles


class Span:
    """The part of the loop that a group of rows has to run."""

    def __init__(self, fusion: Fusion, found: Roles, sizes: Mapping[str, int]) -> None:
        self.sizes, self.stream = sizes, found.stream

    def bounds(self, code: Code, first: Mapping[str, Value], last: Value) -> tuple[Value | int, Value | int]:
        """-> (first position, one after the last)."""
        return 0, self.sizes[self.stream]
