"""The rows that a workgroup computes side by side, and the scratch tiles that it has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.expression import Expr
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.evaluator import Position, Result
from covan_mlir.lowering.kernels.cpu.staging import Staging
from covan_mlir.lowering.kernels.cpu.tiles import ScratchTile

Known = list[dict[str, Result]]
"""What is known of a group's rows, per vector of them."""


@dataclass(frozen=True)
class RowGroup:
    """Some vectors of rows, next to each other along the lane axis.

    Attributes:
        position: on the axes that a workgroup has one position of.
        first: the first row.
        valid: per vector a mask of the rows that exist; None for all.
    """

    code: KernelBuilder
    lane: str
    position: Mapping[str, Value]
    first: Value
    valid: tuple[Value | None, ...]

    @property
    def vectors(self) -> int:
        """How many vectors of rows there are."""
        return len(self.valid)

    def at(self, u: int, known: Mapping[str, Result], **index: Value) -> Position:
        """The vector ``u`` of rows, at positions on further axes."""
        rows = self.code.add(self.first, u * self.code.lanes)
        return Position({**self.position, **index, self.lane: rows}, self.lane, self.valid[u], known)


@dataclass(frozen=True)
class PackedTile:
    """What a contraction needs of the rows alone, ``expr``, per position on the contracted axis."""

    tile: ScratchTile
    expr: Expr
    axis: str


@dataclass(frozen=True)
class GroupTiles:
    """Scratch of a group of rows, by the names of what it holds.

    Attributes:
        elements: per position of a block: what depends on no statistic.
        inputs: per position of a block: inputs that are transposed there.
        parts: per position of a block: what the accumulators of features read besides.
        features: accumulators, per feature.
        packed: per contracted position.
        staging: for inputs that are widened.
    """

    elements: Mapping[str, ScratchTile]
    inputs: Mapping[str, ScratchTile]
    parts: Mapping[str, ScratchTile]
    features: Mapping[str, ScratchTile]
    packed: Mapping[str, PackedTile]
    staging: Staging
