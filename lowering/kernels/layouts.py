"""How weights lie in memory that kernels read, and matches whose schedules read them as they lie already.

Versions of one program for other sizes share their weights, so a version's kernels read what another version's do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import Cost, IllegalScheduleError, Match, Schedule
from covan_mlir.lowering.source_lines import SourceLines

LAYOUTS = "covan.layouts"
"""Attribute of a module: the layouts that its kernels are to read, as JSON."""


def layouts(chain: Chain, match: Match[Any], schedule: Schedule) -> tuple[str, ...]:
    """Those of the weights that a kernel reads: names of what prepares them, or types of those that it reads as they
    are."""
    prepared = match.prepared(schedule)
    laid_out = {source for preparation in prepared for source in preparation.sources}
    as_they_are = [value for value in chain.inputs if value.weight and value.name not in laid_out]
    return tuple(sorted({*(preparation.symbol for preparation in prepared), *plain(chain, as_they_are)}))


def plain(chain: Chain, weights: Iterable[Input]) -> list[str]:
    """The layouts of weights that are read as they are."""
    return ["x".join([*(str(chain.sizes[axis]) for axis in value.axes), value.dtype]) for value in weights]


@dataclass(frozen=True, eq=False)
class Held(Match[Any]):
    """A match with those of its schedules that read weights in given layouts.

    Attributes:
        match: with all of them.
    """

    chain: Chain
    match: Match[Any]
    held: frozenset[str]

    @cached_property
    def _schedules(self) -> list[Any]:
        return [schedule for schedule in self.match.schedules() if self._reads(schedule)]

    def _reads(self, schedule: Any) -> bool:
        return self.held.issuperset(layouts(self.chain, self.match, schedule))

    def schedules(self) -> Iterable[Any]:
        """See `Match`. There may be none."""
        return self._schedules

    def predict(self, schedule: Any) -> float:
        """See `Match`."""
        return self.match.predict(schedule)

    def emit(self, schedule: Any, name: str, lines: SourceLines) -> Executable | Refusal:
        """See `Match`."""
        return self.match.emit(schedule, name, lines)

    def prepared(self, schedule: Any) -> Any:
        """See `Match`."""
        return self.match.prepared(schedule)

    def cost(self, schedule: Any) -> Cost:
        """See `Match`."""
        return self.match.cost(schedule)

    def structure(self, schedule: Any) -> Structure | None:
        """See `Match`."""
        return self.match.structure(schedule)

    def sampled(self, structure: Structure, random: Random) -> Any:
        """See `Match`."""
        schedule = self.match.sampled(structure, random)
        return schedule if schedule is not None and self._reads(schedule) else None

    def read(self, fields: Mapping[str, Any]) -> Any:
        """See `Match`."""
        schedule = self.match.read(fields)
        if not self._reads(schedule):
            raise IllegalScheduleError("it reads weights in another layout than the program's other versions do")
        return schedule
