"""Checks a lineage instead of trusting it: is the compiled program, as the lineage describes it, the source model?

For every phase that was observed, and for the final program, source and program are read as systems of states
(`covan_mlir.checking.source_system`, `covan_mlir.checking.program_system`), their executions made explicit (action
reflection), and compared by weak bisimulation up to what the lineage claims of each node. Claims about the final
program are those of the sites; in earlier phases they are what the relation finds for each operation. Fates are checked
against the claims and against the source (`covan_mlir.checking.fates`). What each site's own code computes is evaluated
beside the operators that it is said to perform (`covan_mlir.checking.operators`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from covan_mlir.checking.fates import check_fates
from covan_mlir.checking.operators import check_operators
from covan_mlir.checking.program_system import Claim, Loss, ProgramSystem
from covan_mlir.checking.source_system import PartCall, SourceSystem
from covan_mlir.checking.verdict import Check, Counterexample, Outcome, Verification
from covan_mlir.prov import reflect, weak_bisimulation
from covan_mlir.provenance.collector import uncollected
from covan_mlir.provenance.merged import supplemented
from covan_mlir.provenance.phases import PROGRAM, Phase
from covan_mlir.provenance.program_graph import ProgramGraph
from covan_mlir.provenance.relation import Region, Source, relate

if TYPE_CHECKING:
    from covan_mlir.frontend.identity import Identities
    from covan_mlir.provenance.model import LineageData, Site

_NO_TORCH = "parts that are said to give back their input were not run: torch is not installed"


def verify(lineage: LineageData) -> Verification:
    """Check all of a lineage. Never raises for a wrong one: that is what the result says."""
    if not lineage.phases or not lineage.actions:
        return Verification((Check(PROGRAM, "incomplete", missing=("the program was compiled without provenance",)),))
    with uncollected():
        return Verification(tuple(_checks(lineage)))


def _checks(lineage: LineageData) -> list[Check]:
    identities = _identities(lineage)
    calls: dict[int, PartCall] = {}
    checks: list[Check] = []
    before: ProgramGraph | None = None
    for phase in lineage.phases:
        start = time.perf_counter()
        if phase.graph is before and phase.step != PROGRAM:  # the step changed nothing: what was found holds
            checks.append(_again(checks[-1], phase.step))
            continue
        examiner = _Examiner(lineage, phase, identities, calls)
        checks.append(examiner.check(start))
        before = phase.graph
    start = time.perf_counter()
    wrong = check_fates(lineage, examiner.source, examiner.claims)
    missing = tuple({reason for check in checks[-1:] for reason in check.missing})
    outcome: Outcome = "no" if wrong else "incomplete" if missing else "yes"
    checks.append(
        Check("fates", outcome, counterexamples=tuple(wrong), missing=missing, seconds=time.perf_counter() - start)
    )
    checks.append(check_operators(lineage, examiner.graph, [claim.performed for claim in examiner.claims]))
    return checks


def _again(check: Check, step: str) -> Check:
    wrong = tuple(replace(example, phase=step) for example in check.counterexamples)
    return replace(check, phase=step, counterexamples=wrong, seconds=0.0)


def _identities(lineage: LineageData) -> Identities | None:
    try:
        from covan_mlir.frontend.identity import Identities
    except ImportError:
        return None
    return Identities(lineage.parts)


class _Examiner:
    """The check of one phase."""

    def __init__(
        self, lineage: LineageData, phase: Phase, identities: Identities | None, calls: dict[int, PartCall]
    ) -> None:
        self.lineage = lineage
        self.step = phase.step
        self.wrong: list[Counterexample] = []
        self.missing: list[str] = []
        parts = lineage.parts
        self.sites = _by_node(lineage.sites) if self.step == PROGRAM else {}
        identity = identities or (lambda part: False)
        if self.step == PROGRAM:  # supplemented when it was traced: its sites are to be checked against that
            self.graph, regions = phase.graph, relate(Source(parts), phase.graph, identity)
        else:
            self.graph, regions = supplemented(Source(parts), phase.graph, lineage.results, identity)
        self.claims = [
            Claim(tuple(sorted(region.performed)), frozenset(region.viewed), frozenset(region.folded))
            for region in regions
        ]
        if self.step == PROGRAM:
            for node, sites in self.sites.items():
                self.claims[node] = self._site_claim(sites)
                self._check_named(node, sites[0], regions[node])
            self._check_unplaced()
        constant = identities.constant if identities else lambda part: None
        plain = SourceSystem(parts, lineage.results, {}, constant, calls)
        self.source = SourceSystem(parts, lineage.results, self._gives_back(plain, identities), constant, calls)

    def check(self, start: float) -> Check:
        """The outcome; ``start`` is when the work on this phase began."""
        program = ProgramSystem(self.source, self.graph, self.claims)
        right, _ = program.coalgebra(aside=self.step == PROGRAM)  # before, it may be dead code
        left, _ = self.source.coalgebra(program.aside)
        verdict = weak_bisimulation(reflect(left).system, reflect(right).system)
        self.wrong += [self._loss(loss) for loss in program.losses]
        self._check_surplus(program)
        play = "" if verdict else str(verdict.distinction)
        if not verdict and not self.wrong:
            self.wrong.append(Counterexample(self.step, play.splitlines()[0] if play else "the two systems differ"))
        for node in sorted(program.open):
            what = f"{self._place(node)} reads values that are" if node >= 0 else f"result {-1 - node} is"
            self.missing.append(f"{what} not known, as in the body of a loop")
        return Check(
            self.step,
            "no" if self.wrong else "incomplete" if self.missing else "yes",
            related=len(verdict.relation),
            states=verdict.left.states + verdict.right.states,
            counterexamples=tuple(self.wrong),
            missing=tuple(self.missing),
            play=play,
            seconds=time.perf_counter() - start,
        )

    def _gives_back(self, source: SourceSystem, identities: Identities | None) -> dict[int, int]:
        """Parts that no node performs because they give back an operand, and which one: found out by running them."""
        parts = self.lineage.parts
        done = {part for claim in self.claims for part in (*claim.performed, *claim.folded)}
        done |= {parts[part].twin for part in done}
        asked = [p for p in sorted(source.live - done) if not parts[p].view and parts[p].twin not in done]
        if identities is None:
            if asked:
                self.missing.append(_NO_TORCH)
            return {}
        return {part: kept for part in asked if (kept := identities.kept(part)) is not None}

    def _site_claim(self, sites: Sequence[Site]) -> Claim:
        first = sites[0]
        for site in sites:
            if (site.parts, site.views, site.folds) != (first.parts, first.views, first.folds):
                self._wrong(
                    site.id, site.parts, f"says something else than site {first.id}, a command of the same work"
                )
            self._check_trace(site)
        return Claim(first.parts, frozenset(first.views), frozenset(first.folds))

    def _check_trace(self, site: Site) -> None:
        """Whether the actions of a trace are those of the parts, in an order in which they can be performed."""
        parts = self.lineage.parts
        of_parts = {parts[part].action for part in site.parts}
        for action in sorted(of_parts.symmetric_difference(site.trace)):
            name = self.lineage.actions[action].name
            named = "in the trace, but no part of it is performed"
            why = named if action in site.trace else "not in the trace, but parts of it are performed"
            self.wrong.append(Counterexample(self.step, f"{name} is {why}", site.id, (name,)))
        position = {action: index for index, action in enumerate(site.trace)}
        if len(position) < len(site.trace):
            self._wrong(site.id, (), "the trace names an action twice")
        for part in site.parts:
            for before in self._performed_before(site, part):
                first, then = parts[before].action, parts[part].action
                if first != then and position.get(first, -1) > position.get(then, len(position)):
                    names = (self.lineage.actions[first].name, self.lineage.actions[then].name)
                    why = f"{names[1]} comes before {names[0]} in the trace, but depends on it"
                    self.wrong.append(Counterexample(self.step, why, site.id, names))

    def _check_named(self, node: int, site: Site, region: Region) -> None:
        """Whether the site claims what the program's operations name there, if it fits: also a share of a part."""
        claimed = {*site.parts, *site.views, *site.folds}
        unclaimed = sorted(region.performed.intersection(self.graph.nodes[node].evidence) - claimed)
        if unclaimed:
            self._wrong(site.id, unclaimed, f"performs what its trace leaves out: {self._names(unclaimed)}")

    def _performed_before(self, site: Site, part: int) -> set[int]:
        """Performed parts that a part reads, views and constants between them aside."""
        performed = set(site.parts)
        before: set[int] = set()
        seen: set[int] = set()
        stack = list(self.lineage.parts[part].inputs)
        between = {*site.views, *site.folds}
        while stack:
            index = stack.pop()
            if index in performed:
                before.add(index)
            elif index in between and index not in seen:
                seen.add(index)
                stack += self.lineage.parts[index].inputs
        return before

    def _check_unplaced(self) -> None:
        """Work that the compiler added after dispatches were formed has no place in the graph: it may be said to hold
        constants, and no more."""
        constant = Source(self.lineage.parts).constant
        for site in self.lineage.sites:
            if site.node is not None:
                continue
            varying = [part for part in site.folds if not constant.get(part, False)]
            if varying:
                self._wrong(
                    site.id, varying, f"said to be folded, but depends on the arguments: {self._names(varying)}"
                )
            if site.trace or site.parts or site.views:
                self.missing.append(
                    f"site {site.id} ({site.kernel}) was added after dispatches were formed: its trace is its location"
                )

    def _check_surplus(self, program: ProgramSystem) -> None:
        """Claims that lie not between a node's states."""
        owned = {node for node in program.data if not self.graph.nodes[node].hands_on_pieces}
        for node, claim in enumerate(self.claims):
            if self.step != PROGRAM and node not in program.read_nodes:
                continue
            shape = self.graph.nodes[node].all_states
            for what, parts in (
                ("performed", claim.performed),
                ("viewed", claim.viewed - shape),
                ("folded", claim.folded),
            ):
                extra = [p for p in parts if p in self.lineage.parts and not program.reached(node, p)]
                # The location of a piece that is moved may be that of whoever asked for it.
                if extra and (what == "performed" or node in program.read_nodes or node in owned):
                    why = "not between what it is given and what it gives"
                    self._wrong(self._site(node), extra, f"said to be {what}, but {why}: {self._names(extra)}", node)

    def _loss(self, loss: Loss) -> Counterexample:
        value = self.source.operand_name(loss.operand)
        parts = [loss.part] if loss.part >= 0 else []
        parts += [int(loss.operand[1])] if loss.operand[0] == "p" else []
        if loss.node < 0:
            why = f"the program returns {value} as result {-1 - loss.node}, which no node gives"
        elif loss.late:
            why = f"{self._names(parts[:1])} reads {value}, which is performed only afterwards"
        elif loss.part >= 0:
            why = f"{self._names(parts[:1])} reads {value}, which is neither performed here nor given"
        else:
            why = f"it gives {value}, which it does not perform"
        return self._example(self._site(loss.node), parts, why, loss.node)

    def _wrong(self, site: int | None, parts: Iterable[int], why: str, node: int = -1) -> None:
        self.wrong.append(self._example(site, parts, why, node))

    def _example(self, site: int | None, parts: Iterable[int], why: str, node: int) -> Counterexample:
        known = self.lineage.parts
        actions = dict.fromkeys(self.lineage.actions[known[p].action].name for p in parts if p in known)
        where = f"{self._place(node)}: " if site is None and node >= 0 else ""
        return Counterexample(self.step, where + why, site, tuple(actions))

    def _site(self, node: int) -> int | None:
        return self.sites[node][0].id if node in self.sites else None

    def _place(self, node: int) -> str:
        site = self._site(node)
        return f"site {site}" if site is not None else f"node {node} ({self.graph.nodes[node].op or 'dispatch'})"

    def _names(self, parts: Sequence[int]) -> str:
        names = [f"{self.lineage.parts[p].name} ({self.lineage.parts[p].op})" for p in parts[:3]]
        more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
        return f"{', '.join(names)}{more}"


def _by_node(sites: Iterable[Site]) -> Mapping[int, list[Site]]:
    by_node: dict[int, list[Site]] = {}
    for site in sites:
        if site.node is not None:
            by_node.setdefault(site.node, []).append(site)
    return by_node
