"""How a sum of products is laid out on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.dense import DenseSchedule


@dataclass(frozen=True)
class ProductSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        rows, vectors: of the register tile.
        group: rows that a workgroup computes.
        depth: positions of the first contracted axis in a panel.
        packed: panels are packed ahead of time; else they are staged.
        pairs: bfloat16 is multiplied two by two (`pairs`).
        tail: of the last columns, so many that would fill a small part of a vector are in no panel (`column_tail`).
    """

    rows: int
    vectors: int
    group: int
    depth: int
    packed: bool = False
    pairs: bool = False
    tail: int = 0
