"""What a kernel's loop nest is without its numbers: what templates say of schedules, and what sketches stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Loops = Literal["rows", "tiles", "rolling"]
"""Sweeps over rows, one after the other; tiles of the results around register tiles; one loop over what is reduced in
which all reductions roll along, each repaired where one that it depends on changes."""


@dataclass(frozen=True)
class Structure:
    """The structure of a loop nest.

    Attributes:
        loops: of what kind they are.
        algorithm: ``winograd``: by minimal filtering; else as the chain says.
        cached: inputs that go through scratch, in alphabetical order.
        packed: weights that are held in another form, which is computed ahead of time, in alphabetical order.
        held: accumulators are in scratch between blocks of what is reduced, or before results are made of them.
        factored: reductions have partial results: of each lane, or of parts of what is reduced, in workgroups of their
            own; these are merged at last.
    """

    loops: Loops = "tiles"
    algorithm: Literal["direct", "winograd"] = "direct"
    cached: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    held: bool = False
    factored: Literal["", "lanes", "parts"] = ""

    def covers(self, other: Structure) -> bool:
        """Whether another one is this one with no more in scratch: which of the inputs that may be there are is a
        number like others."""
        same = (self.loops, self.algorithm, self.packed, self.held, self.factored)
        return same == (other.loops, other.algorithm, other.packed, other.held, other.factored) and {*other.cached} <= {
            *self.cached
        }

    def __str__(self) -> str:
        words: list[str] = [self.loops]
        words += [self.algorithm] if self.algorithm != "direct" else []
        words += [f"{name} in scratch" for name in self.cached]
        words += [f"{name} packed" for name in self.packed]
        words += ["accumulators in scratch"] if self.held else []
        words += [f"partial results of {self.factored}"] if self.factored else []
        return ", ".join(words)
