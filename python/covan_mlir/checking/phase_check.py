"""The check of one phase: is the program, as it was observed then, what the source is?

Of the final program it is asked under what the lineage says of its sites; of earlier phases, and of what is no site,
nothing is said but where operations come from.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from covan_mlir.checking import joins, merged_values
from covan_mlir.checking.program_system import Claim, Loss
from covan_mlir.checking.source_system import SourceSystem
from covan_mlir.checking.verdict import Check, Counterexample
from covan_mlir.prov import reflect, weak_bisimulation
from covan_mlir.provenance.phases import PROGRAM
from covan_mlir.provenance.program_graph import NodeResult, ProgramNode, Unknown

if TYPE_CHECKING:
    from covan_mlir.checking.program_system import ProgramSystem
    from covan_mlir.checking.subject import Subject
    from covan_mlir.provenance.model import Site
    from covan_mlir.provenance.phases import Phase

_NUMBERS = ("flow.tensor.load", "tensor.extract", "arith.")
"""What gives a number to the program, and what computes with such. Sizes are numbers that no node reads."""
_NO_TORCH = "parts that are said to give back their input were not run: torch is not installed"


class PhaseCheck:
    """The check of one phase.

    Attributes:
        claims: what is said of each node; None of nothing.
        source: with the parts that give back an operand known.
    """

    def __init__(self, subject: Subject, phase: Phase) -> None:
        self.subject = subject
        self.lineage = subject.lineage
        self.words = subject.words
        self.step = phase.step
        self.graph = phase.graph
        self.wrong: list[Counterexample] = []
        self.missing: list[str] = []
        self.sites: Mapping[int, Sequence[Site]] = _by_node(self.lineage.sites) if self.step == PROGRAM else {}
        self.claims: list[Claim | None] = [None] * len(self.graph.nodes)
        for node, sites in self.sites.items():
            self.claims[node] = self._site_claim(sites)
        self.source = self._source()

    def check(self, start: float) -> Check:
        """The outcome; ``start`` is when the work on this phase began."""
        final = self.step == PROGRAM
        program = self._read(final)
        verdict = weak_bisimulation(
            reflect(self.source.coalgebra(program.aside)[0]).system, reflect(program.coalgebra()).system
        )
        identities = self.subject.identities
        kept = identities.kept if identities else lambda part: None
        for node, part, why in joins.unfitting(self.source, self.graph, kept):
            self._wrong(self._site(node), [part], f"{self.words.part(part)} {why}", node)
        self.wrong += [self._loss(loss) for loss in program.losses]
        self._unread(program)
        if final:
            self._check_surplus(program)
            self._check_left_out(program)
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

    def _read(self, final: bool) -> ProgramSystem:
        """The program as a system. What is lost of a part that gives back another operand, nobody needs."""
        program = merged_values.read(self.source, self.graph, self.claims, aside=final)  # before, it may be dead code
        identities, known = self.subject.identities, self.source.identity
        asked = {loss.part for loss in program.losses} & self.lineage.parts.keys() - known.keys() if identities else ()
        kept = {part: position for part in asked if identities and (position := identities.kept(part)) is not None}
        if not kept:
            return program
        self.source = self.subject.source({**known, **kept})
        return merged_values.read(self.source, self.graph, self.claims, aside=final)

    def _source(self) -> SourceSystem:
        """With the parts that no node performs because they give back an operand: found out by running them."""
        plain = self.subject.source()
        parts, identities = self.lineage.parts, self.subject.identities
        aliases = {index: 0 for index, part in parts.items() if part.alias}
        claimed = {part for claim in self.claims if claim is not None for part in (*claim.performed, *claim.folded)}
        done = set(claimed)
        for claim, node in zip(self.claims, self.graph.nodes, strict=True):
            if claim is None:
                done |= parts.keys() & {*node.evidence, *node.all_states}
        values = set(map(plain.twin, done))
        asked = [
            part
            for part in sorted(plain.live)
            if not parts[part].view
            and (plain.twin(part) not in values or (part not in claimed and self._is_given_back(part)))
        ]
        if identities is None:
            if asked:
                self.missing.append(_NO_TORCH)
            return self.subject.source(aliases)
        kept = {part: position for part in asked if (position := identities.kept(part)) is not None}
        return self.subject.source(kept | aliases)

    def _is_given_back(self, part: int) -> bool:
        """Whether a part is said to be what it is given; another of the same value may be computed elsewhere."""
        fate = self.lineage.part_fates.get(part)
        return fate is not None and fate.kind == "merged" and fate.twin in self.lineage.parts[part].inputs

    def _site_claim(self, sites: Sequence[Site]) -> Claim:
        first = sites[0]
        for site in sites[1:]:
            if (site.parts, site.views, site.folds) != (first.parts, first.views, first.folds):
                other = self.words.site(first.id)
                self._wrong(site.id, site.parts, f"says something else than {other}, a command of the same work")
        return Claim(first.parts, frozenset(first.views), frozenset(first.folds))

    def _check_left_out(self, program: ProgramSystem) -> None:
        """Whether the sites claim what the program's operations name there, if it fits: also a share of a part."""
        bare = merged_values.read(self.source, self.graph, [None] * len(self.graph.nodes), aside=True)
        for node, sites in self.sites.items():
            site = sites[0]
            # A number that is computed says where pieces begin: a view, whatever else is done there.
            parts = self.source.parts
            numbers = [part for part in site.views if part in parts and "[" not in "".join(parts[part].types)]
            claimed = set(map(self.source.twin, (*site.parts, *site.folds, *numbers)))
            named = (part for part in program.reading.evidence(node) if self.source.twin(part) not in claimed)
            unclaimed = sorted(part for part in named if bare.performs(node, part))
            if unclaimed:
                self._wrong(site.id, unclaimed, f"performs what its trace leaves out: {self.words.parts(unclaimed)}")
            through = sorted(program.left_out(node) - {*unclaimed})
            if through:
                why = f"indexes by, or reads the constants, {self.words.parts(through)}, which it does not name"
                self._wrong(site.id, through, why)

    def _check_surplus(self, program: ProgramSystem) -> None:
        """Claims that lie not between a node's states, and twins of what is claimed that do."""
        for node, part in sorted(program.unclaimed):
            why = f"computes the value of {self.words.part(part)}, which its trace leaves out"
            self._wrong(self._site(node), [part], why, node)
        for node, claim in enumerate(self.claims):
            work = sorted(part for part in claim.viewed if self._is_work(part)) if claim is not None else []
            if work:
                why = f"said to be viewed, but their operators make other values: {self.words.parts(work)}"
                self._wrong(self._site(node), work, why, node)
        owned = {node for node in program.reading.data if not self.graph.nodes[node].hands_on_pieces}
        for node, claim in enumerate(self.claims):
            if claim is None:
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
                    why = f"not between what it is given and what it gives: {self.words.parts(sorted(extra))}"
                    self._wrong(self._site(node), extra, f"said to be {what}, but {why}", node)

    def _is_work(self, part: int) -> bool:
        """Whether a part is no view and, as far as can be found out, does not give back an operand."""
        identities = self.subject.identities
        known = identities is not None and part in self.lineage.parts and not self.lineage.parts[part].view
        return known and identities is not None and identities.kept(part) is None

    def _unread(self, program: ProgramSystem) -> None:
        """A share of the work on a part that others do as well is read by somebody, unless they do that share too: what
        may fail (an index that is out of range) stays behind where a copy of it is fused. A view is no work: what is
        written over it, whatever it was, asks for its sizes alone."""
        nodes = self.graph.nodes
        if program.open or any(isinstance(v, Unknown) for node in nodes for v in node.inputs):
            return
        values = [program.reading.stored(v) for node in nodes for v in node.inputs] + [*self.graph.results]
        values += self.graph.globals.values()
        read = {value.node for value in map(program.reading.stored, values) if isinstance(value, NodeResult)}
        done = {part for node in read for part in nodes[node].evidence} - self._with_unread_results()
        again = _first_alike(nodes)
        replaced = {again[node] for node in read}
        for index, node in enumerate(nodes):
            worked = {part for part in done.intersection(node.evidence) if not self.source.parts[part].view}
            shares = sorted(worked & self.source.needed)
            aside = index in program.reading.data or node.op.startswith(_NUMBERS)
            if index not in read and node.outputs and shares and not aside and again[index] not in replaced:
                why = f"nobody reads what it computes for {self.words.parts(shares)}"
                self._wrong(self._site(index), shares, why, index)

    def _with_unread_results(self) -> set[int]:
        """Parts that give several results, some of which nobody reads: nor, before it is removed, their code."""
        taken: dict[int, int] = {}
        for index in self.source.live:
            part = self.lineage.parts[index]
            if part.op == "operator.getitem":
                taken[part.inputs[0]] = taken.get(part.inputs[0], 0) + 1
        return {index for index, part in self.lineage.parts.items() if len(part.types) > max(1, taken.get(index, 0))}

    def _loss(self, loss: Loss) -> Counterexample:
        value = self.words.operand(loss.operand)
        parts = [loss.part] if loss.part >= 0 else []
        parts += [int(loss.operand[1])] if loss.operand[0] == "p" else []
        if loss.node < 0:
            why = f"the program returns {value} as result {-1 - loss.node}, which nothing in it gives"
        elif loss.late:
            why = f"{self.words.part(loss.part)} reads {value}, which is performed only afterwards"
        elif loss.part >= 0:
            why = f"{self.words.part(loss.part)} reads {value}, which is neither performed here nor given"
        else:
            why = f"it gives {value}, which it does not perform"
        return self._example(self._site(loss.node), parts, why, loss.node)

    def _wrong(self, site: int | None, parts: Iterable[int], why: str, node: int = -1) -> None:
        self.wrong.append(self._example(site, parts, why, node))

    def _example(self, site: int | None, parts: Iterable[int], why: str, node: int) -> Counterexample:
        where = f"{self._place(node)}: " if site is None and node >= 0 else ""
        return self.subject.example(self.step, where + why, site, parts)

    def _site(self, node: int) -> int | None:
        return self.sites[node][0].id if node in self.sites else None

    def _place(self, node: int) -> str:
        site = self._site(node)
        return self.words.site(site) if site is not None else self.words.node(self.graph, node)


def _first_alike(nodes: Sequence[ProgramNode]) -> list[int]:
    """Of each node, the first that does the same work on the same values, under the same names."""
    first: dict[tuple[object, ...], int] = {}
    alike: list[int] = []
    for index, node in enumerate(nodes):
        known = [
            NodeResult(alike[value.node], value.result)
            if isinstance(value, NodeResult) and value.node < index
            else value
            for value in node.inputs
        ]
        work = (node.op, node.phase, tuple(known), node.evidence, node.outputs)
        alike.append(first.setdefault(work if node.op else (index,), index))
    return alike


def _by_node(sites: Iterable[Site]) -> Mapping[int, list[Site]]:
    by_node: dict[int, list[Site]] = {}
    for site in sites:
        if site.node is not None:
            by_node.setdefault(site.node, []).append(site)
    return by_node
