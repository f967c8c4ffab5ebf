"""Schedules of chains whose products meet in tiles."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule


@dataclass(frozen=True)
class SharedTileSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        height: rows of a register tile.
        vectors: vectors of a register tile.
        rows: rows of a tile in scratch, a multiple of ``height``.
        columns: its columns, a multiple of ``height`` and of ``lanes``.
    """

    height: int
    vectors: int
    rows: int
    columns: int
