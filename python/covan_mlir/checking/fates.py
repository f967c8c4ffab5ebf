"""Checks fates: against what sites are claimed to perform, and against the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from covan_mlir.checking.history import vanished
from covan_mlir.checking.source_system import SourceSystem, State
from covan_mlir.checking.verdict import Counterexample
from covan_mlir.prov import weak_bisimulation

if TYPE_CHECKING:
    from covan_mlir.checking.subject import Subject
    from covan_mlir.provenance.model import Action, Fate, Kind, Part
    from covan_mlir.provenance.program_graph import ProgramGraph

_PHASE = "fates"
_STRENGTH: tuple[Kind, ...] = ("dispatched", "folded", "merged", "view", "dead")


def check_fates(subject: Subject, source: SourceSystem, graph: ProgramGraph) -> list[Counterexample]:
    """What is wrong with the fates; nothing if they hold.

    Args:
        source: with the parts that give back an operand known.
        graph: the final program.
    """
    return list(_Fates(subject, source, graph).check())


class _Fates:
    def __init__(self, subject: Subject, source: SourceSystem, graph: ProgramGraph) -> None:
        self.lineage = lineage = subject.lineage
        self.words = subject.words
        self.source = source
        self.performed = _sites((site.id, site.parts) for site in lineage.sites)
        self.viewed = _sites((site.id, site.views) for site in lineage.sites)
        self.folded = _sites((site.id, site.folds) for site in lineage.sites)
        self.decided = vanished(lineage)
        self.last = lineage.history[-1][0] if lineage.history else ""
        # Work without a command of its own: moves, where whoever computes a value writes it straight to its place.
        placed = {site.node for site in lineage.sites}
        moves = [node for index, node in enumerate(graph.nodes) if index not in placed]
        self.in_place = {part for node in moves for part in (*node.evidence, *node.all_states)} - self.performed.keys()

    def check(self) -> Iterator[Counterexample]:
        lineage = self.lineage
        for index, part in sorted(lineage.parts.items()):
            fate = lineage.part_fates.get(index)
            why = "has no fate" if fate is None else self._part(part, fate) or self._decided(part, fate)
            if why:
                unnamed = set(self.performed.get(index, ())).difference(fate.sites if fate else ())
                site = min(unnamed) if len(unnamed) == 1 else None  # that claims the part, against its fate
                yield self._example(part, f"{self.words.part(index)} {why}", site)
        if any(index not in lineage.part_fates for index in lineage.parts):
            return
        for action, fate in zip(lineage.actions, lineage.fates, strict=False):
            if why := self._action(action, fate):
                yield Counterexample(_PHASE, f"{self.words.action(action.id)} {why}", actions=(action.name,))
        for action in lineage.actions[len(lineage.fates) :]:
            yield Counterexample(_PHASE, f"{self.words.action(action.id)} has no fate", actions=(action.name,))

    def _part(self, part: Part, fate: Fate) -> str:
        """What is wrong with the fate of a part, or an empty string."""
        if fate.twin is not None and fate.kind != "merged":
            return f"is said to be {fate.kind}, but to have a twin as well"
        if fate.kind == "dead":
            return "is said to be dead, but the results need it" if self._needs(part) else self._at(fate, ())
        if part.id not in self.source.live:
            return f"is said to be {fate.kind}, but nobody needs it"
        performed = self.performed.get(part.id, ())
        if fate.kind == "dispatched":
            return self._at(fate, performed) if performed else "is said to be dispatched, but no site performs it"
        if performed:
            return f"is said to be {fate.kind}, but {self.words.sites(performed)} performs it"
        if fate.kind == "merged":
            return self._merged(part, fate)
        if fate.kind == "folded":
            if not self.source.constant[part.id]:
                return "is said to be folded, but depends on the arguments"
            return self._at(fate, self.folded.get(part.id) or self._of_readers(part.id))
        if part.view or part.id in self.source.identity or part.id in self.in_place:
            return self._at(fate, self._seen(part))
        return "is said to be a view, but its operator makes another value"

    def _needs(self, part: Part) -> bool:
        """Whether the results need a part, or a site has it for what gives back another value all the same."""
        if part.id not in self.source.live:
            return False
        placed = part.id in self.performed or part.id in self.viewed or part.id in self.folded
        return part.view or placed or part.id in self.source.needed

    def _seen(self, part: Part) -> Sequence[int]:
        """Where a view is: at those who index by it, or where what it views is, or at its readers."""
        seen = {*self.viewed.get(part.id, ()), *self.folded.get(part.id, ())}
        fates = self.lineage.part_fates
        seen = seen or {site for read in part.inputs for site in fates[read].sites}
        return sorted(seen) or self._of_readers(part.id)

    def _decided(self, part: Part, fate: Fate) -> str:
        """What is wrong with the step that is said to have decided: after it no operation carried the part any more."""
        step = self.last if fate.kind == "dispatched" else self.decided.get(part.id, self.last)
        return "" if fate.decided_by == step else f"is said to be decided by {fate.decided_by}, but {step} did"

    def _action(self, action: Action, fate: Fate) -> str:
        """What is wrong with the fate of an action: it has the strongest of its parts, and the sites of all."""
        fates = self.lineage.part_fates
        rules = self._rewritten.get(action.id, ())
        if fate.rewritten_by != tuple(dict.fromkeys(rules)):
            told, known = (", ".join(names) or "no rule" for names in (fate.rewritten_by, dict.fromkeys(rules)))
            return f"is said to be rewritten by {told}, but {known} did"
        of_parts = [fates[part.id] for part in action.parts]
        if not of_parts:
            return self._without_parts(action, fate)
        kind = min((part.kind for part in of_parts), key=_STRENGTH.index)
        strongest = [part for part in of_parts if part.kind == kind]
        sites = sorted({site for part in of_parts for site in part.sites})
        if fate.kind != kind or list(fate.sites) != sites:
            told = f"{fate.kind} at {self.words.sites(fate.sites)}"
            return f"is said to be {told}, but its parts make it {kind} at {self.words.sites(sites)}"
        twins = {owner for part in strongest if part.twin is not None for owner in self.lineage.parts[part.twin].owners}
        if (fate.twin is None) != (not twins) or (fate.twin is not None and fate.twin not in twins):
            return "is said to have the value of another action than its parts have"
        steps = {part.decided_by for part in strongest}
        return "" if fate.decided_by in steps else f"is said to be decided by {fate.decided_by}, unlike its parts"

    def _without_parts(self, action: Action, fate: Fate) -> str:
        """Decompositions left nothing of it: it gives back what it is given, or nobody needs it."""
        kinds = {"view", "merged"} if action.live else {"dead"}
        if action.translated and action.live and not action.inputs:  # translation knew its value
            kinds.add("folded")
        given = action.inputs[:1] if action.live else ()
        sites = {site for read in given for site in self.lineage.fates[read].sites}
        by = "superoptimise" if fate.rewritten_by else "decompose"
        if fate.kind not in kinds or set(fate.sites) != sites or fate.decided_by != by:
            told = f"is said to be {fate.kind} at {self.words.sites(fate.sites)}"
            return f"{told}, but decompositions left nothing of it: it is {' or '.join(sorted(kinds))}"
        if fate.kind == "merged" and (fate.twin is None or fate.twin not in action.inputs):
            return "is said to be merged, but not with what it is given"
        if fate.kind != "merged" and fate.twin is not None:
            return f"is said to be {fate.kind}, but to have a twin as well"
        return "" if fate.kind != "view" or action.view or not given else "is said to be a view, but is none"

    def _merged(self, part: Part, fate: Fate) -> str:
        twin = fate.twin
        if twin is None or twin not in self.lineage.parts:
            return "is said to be merged, but with nothing that is known"
        if twin == part.id:
            return "is said to be merged, but with itself"
        if not self._equal(part.id, twin):
            return f"is said to have the value of {self.words.part(twin)}, which has another value"
        # What gives back an operand is one with that where it is read; an equal of another part is where that is.
        gives_back = part.id in self.source.identity and twin != part.twin
        seen = self.viewed.get(part.id) if gives_back else None
        return self._at(fate, seen or self.lineage.part_fates[twin].sites or self._of_readers(part.id))

    def _at(self, fate: Fate, sites: Sequence[int] | None) -> str:
        expected = sorted(set(sites or ()))
        if list(fate.sites) == expected:
            return ""
        return f"is said to be at {self.words.sites(fate.sites)}, not at {self.words.sites(expected)}"

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

    @cached_property
    def _rewritten(self) -> dict[int, list[str]]:
        """The rules by which actions were rewritten, in their order."""
        rules: dict[int, list[str]] = {}
        for step in self.lineage.substitution.steps if self.lineage.substitution is not None else ():
            for action in step.actions:
                rules.setdefault(action, []).append(step.rule)
        return rules

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
        kernel = "" if site is None else self.lineage.sites[site].kernel
        return Counterexample(_PHASE, why, site, (self.lineage.actions[part.action].name,), kernel)


def _sites(parts_of: Iterable[tuple[int, Iterable[int]]]) -> dict[int, tuple[int, ...]]:
    """The sites of each part, given the parts of each site."""
    sites: dict[int, list[int]] = {}
    for site, parts in parts_of:
        for part in parts:
            sites.setdefault(part, []).append(site)
    return {part: tuple(ids) for part, ids in sites.items()}
