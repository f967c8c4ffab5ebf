"""Schedules: how a chain is laid out on a machine. Data; the generator decides nothing that stands here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shape = Literal["rows", "columns", "queries", "keys"]
"""Which shape of code: lanes along a reduced trailing axis; lanes along a kept axis; lanes along the rows of a chain
with contractions (many rows); lanes along the contracted axes (few rows)."""


@dataclass(frozen=True)
class Schedule:
    """A schedule.

    Attributes:
        lane: axis that vector lanes run along.
        stream: axis that is swept.
        parallel: axes whose positions are distributed over workgroups, with the number of positions of each.
        lanes: elements per register.
        vectors: registers along the lane axis in a register tile.
        unroll: positions of the other axis in a register tile.
        block: positions of the streamed axis per step; the scratch tiles are this long.
        keep: values that are written to scratch where they are first computed, instead of computed again.
        nontemporal: outputs bypass the caches.
    """

    shape: Shape
    lane: str
    stream: str
    parallel: tuple[tuple[str, int], ...]
    lanes: int
    vectors: int
    unroll: int
    block: int
    keep: tuple[str, ...] = ()
    nontemporal: bool = False
