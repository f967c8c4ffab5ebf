"""The rows of a workgroup that share what their loop streams, and the scratch that it has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.evaluator import Position, Result

Known = list[dict[str, Result]]
"""What is known of the rows, per row."""


@dataclass(frozen=True)
class SharedRows:
    """The rows of a workgroup: all that share their keys, and the part of the loop that it runs.

    Attributes:
        position: on the axes that a workgroup has one position of.
        free: of each row, its position on the other axes.
        part: number of the part.
        begin: first position of the loop in the part.
    """

    code: KernelBuilder
    position: Mapping[str, Value]
    free: tuple[Mapping[str, int], ...]
    part: Value
    begin: Value | int

    def at(
        self, r: int, lane: str | None, known: Mapping[str, Result], valid: Value | None = None, **index: Value
    ) -> Position:
        """The row ``r``, at positions on further axes."""
        row_index = {axis: self.code.index(n) for axis, n in self.free[r].items()}
        return Position({**self.position, **row_index, **index}, lane, valid, known)


@dataclass(frozen=True)
class LoopBlock:
    """Consecutive positions of the loop, and what is known of each row there."""

    start: Value
    count: Value | int
    known: Known


@dataclass(frozen=True)
class RowScratch:
    """Memory of a workgroup's own, by the names of what it holds.

    Attributes:
        positions: per row and position of a block: elements and the parts that accumulators of features read.
        features: accumulators, per row and feature.
    """

    positions: Mapping[str, Value]
    features: Mapping[str, Value]
