"""Checks fates: against what sites are claimed to perform, and against the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from covan_mlir.checking.program_system import Claim
from covan_mlir.checking.source_system import SourceSystem, State
from covan_mlir.checking.verdict import Counterexample
from covan_mlir.prov import weak_bisimulation
from covan_mlir.provenance.fates import action_fates
from covan_mlir.provenance.model import Fate

if TYPE_CHECKING:
    from covan_mlir.provenance.model import LineageData, Part

_PHASE = "fates"


def check_fates(lineage: LineageData, source: SourceSystem, claims: Sequence[Claim]) -> list[Counterexample]:
    """What is wrong with the fates; nothing if they hold.

    Args:
        source: with the parts that give back an operand known.
        claims: of the nodes of the final program.
    """
    return list(_Fates(lineage, source, claims).check())


class _Fates:
    def __init__(self, lineage: LineageData, source: SourceSystem, claims: Sequence[Claim]) -> None:
        self.lineage = lineage
        self.source = source
        self.performed = _sites((site.id, site.parts) for site in lineage.sites)
        self.viewed = _sites((site.id, site.views) for site in lineage.sites)
        self.folded = _sites((site.id, site.folds) for site in lineage.sites)
        # Work without a command of its own: moves, where whoever computes a value writes it straight to its place.
        self.in_place = {part for claim in claims for part in claim.performed} - self.performed.keys()

    def check(self) -> Iterator[Counterexample]:
        lineage = self.lineage
        for index, part in sorted(lineage.parts.items()):
            fate = lineage.part_fates.get(index)
            why = "has no fate" if fate is None else self._part(part, fate)
            if why:
                unnamed = set(self.performed.get(index, ())).difference(fate.sites if fate else ())
                site = min(unnamed) if len(unnamed) == 1 else None  # that claims the part, against its fate
                yield self._example(part, f"{part.name} ({part.op}) {why}", site)
        if any(index not in lineage.part_fates for index in lineage.parts):
            return
        expected = action_fates(lineage.actions, lineage.part_fates)
        for action, fate, follows in zip(lineage.actions, lineage.fates, expected, strict=False):
            if (fate.kind, fate.sites, fate.twin) != (follows.kind, follows.sites, follows.twin):
                why = f"{action.name} is said to be {_told(fate)}, but its parts make it {_told(follows)}"
                yield Counterexample(_PHASE, why, actions=(action.name,))
        for action in lineage.actions[len(lineage.fates) :]:
            yield Counterexample(_PHASE, f"{action.name} has no fate", actions=(action.name,))

    def _part(self, part: Part, fate: Fate) -> str:
        """What is wrong with the fate of a part, or an empty string."""
        if fate.kind == "dead":
            return "is said to be dead, but the results need it" if part.id in self.source.live else self._at(fate, ())
        if part.id not in self.source.live:
            return f"is said to be {fate.kind}, but nobody needs it"
        performed = self.performed.get(part.id, ())
        if fate.kind == "dispatched":
            return self._at(fate, performed) if performed else "is said to be dispatched, but no site performs it"
        if performed:
            return f"is said to be {fate.kind}, but {_these(performed)} it"
        if fate.kind == "merged":
            return self._merged(part, fate)
        if fate.kind == "folded":
            if not self.source.source.constant[part.id]:
                return "is said to be folded, but depends on the arguments"
            return self._at(fate, self.folded.get(part.id) or self._of_readers(part.id))
        if part.view or part.id in self.source.identity or part.id in self.in_place:
            return ""
        return "is said to be a view, but its operator makes another value"

    def _merged(self, part: Part, fate: Fate) -> str:
        twin = fate.twin
        if twin is None or twin not in self.lineage.parts:
            return "is said to be merged, but with nothing that is known"
        if not self._equal(part.id, twin):
            return f"is said to have the value of {self.lineage.parts[twin].name}, which has another value"
        # What gives back an operand is one with that where it is read; an equal of another part is where that is.
        gives_back = part.id in self.source.identity and twin != part.twin
        return self._at(fate, self.viewed.get(part.id) if gives_back else None, twin)

    def _at(self, fate: Fate, sites: Sequence[int] | None, twin: int | None = None) -> str:
        if not sites and twin is not None:
            sites = self.lineage.part_fates[twin].sites
        return (
            ""
            if set(fate.sites) == set(sites or ())
            else f"is said to be at {list(fate.sites)}, not at {list(sites or ())}"
        )

    def _of_readers(self, part: int) -> tuple[int, ...]:
        """Where those are that read a part: a constant that became part of another one is where that is."""
        fates = self.lineage.part_fates
        return tuple({site for reader in self._readers.get(part, ()) for site in fates[reader].sites})

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        """The parts that read a part, those that nobody needs aside."""
        readers: dict[int, list[int]] = {}
        for part in self.lineage.parts.values():
            if self.lineage.part_fates[part.id].kind != "dead":
                for read in part.inputs:
                    readers.setdefault(read, []).append(part.id)
        return readers

    def _equal(self, left: int, right: int) -> bool:
        classes, number = self._classes
        return classes[number["p", left]] == classes[number["p", right]]

    @cached_property
    def _classes(self) -> tuple[Sequence[int], dict[State, int]]:
        """The source's values up to weak bisimilarity: equal ones unfold to the same term."""
        system, number = self.source.coalgebra(among=self.lineage.parts)
        relation = weak_bisimulation(system, system).relation
        return relation.left.tolist(), number

    def _example(self, part: Part, why: str, site: int | None) -> Counterexample:
        return Counterexample(_PHASE, why, site, (self.lineage.actions[part.action].name,))


def _sites(parts_of: Iterable[tuple[int, Iterable[int]]]) -> dict[int, tuple[int, ...]]:
    """The sites of each part, given the parts of each site."""
    sites: dict[int, list[int]] = {}
    for site, parts in parts_of:
        for part in parts:
            sites.setdefault(part, []).append(site)
    return {part: tuple(ids) for part, ids in sites.items()}


def _told(fate: Fate) -> str:
    where = f" at sites {list(fate.sites)}" if fate.sites else ""
    return f"{fate.kind}{where}"


def _these(sites: Sequence[int]) -> str:
    return f"site {sites[0]} performs" if len(sites) == 1 else f"sites {list(sites)} perform"
