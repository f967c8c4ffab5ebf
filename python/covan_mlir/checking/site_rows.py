"""Checks what the lineage says of sites besides what they perform: traces, inputs, kernels, when they run, commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from covan_mlir.checking.verdict import Counterexample
from covan_mlir.provenance.program_graph import NodeResult, ProgramGraph, Unknown

if TYPE_CHECKING:
    from covan_mlir.checking.subject import Subject
    from covan_mlir.provenance.model import Site

_PHASE = "sites"
_MOVES = frozenset({"copy", "fill"})
_PUT = "flow.tensor.update"
"""Writes a piece into the first of what it is given."""


def check_sites(subject: Subject, graph: ProgramGraph) -> tuple[list[Counterexample], list[str]]:
    """What is wrong with the sites, given the graph of the final program; and what could not be checked."""
    sites = _Sites(subject, graph)
    return list(sites.check()), sites.missing


class _Sites:
    def __init__(self, subject: Subject, graph: ProgramGraph) -> None:
        self.subject = subject
        self.lineage = subject.lineage
        self.words = subject.words
        self.graph = graph
        self.missing: list[str] = []
        self.performed = {part for site in self.lineage.sites if site.node is not None for part in site.parts}
        self.constant = subject.source().constant
        self.kernels = {node.op for node in graph.nodes if node.kind == "dispatch"}
        self.by_node: dict[int, list[int]] = {}
        for site in self.lineage.sites:
            if site.node is not None:
                self.by_node.setdefault(site.node, []).append(site.id)

    def check(self) -> Iterator[Counterexample]:
        for site in self.lineage.sites:
            yield from self._trace(site)
            yield from self._folded(site)
            if (site.kernel in _MOVES) != (site.kind == "transfer"):
                yield self._wrong(site, f"said to be a {site.kind}, but its kernel to be {site.kernel}")
            yield from self._unplaced(site) if site.node is None else self._placed(site, site.node)
        yield from self._commands()

    def _trace(self, site: Site) -> Iterator[Counterexample]:
        """Whether the actions of a trace are those of the parts, in an order in which they can be performed."""
        parts, actions = self.lineage.parts, self.lineage.actions
        of_parts = {action for part in site.parts for action in parts[part].owners}
        for action in sorted(of_parts.symmetric_difference(site.trace)):
            in_it = "in the trace, but no part of it is performed"
            why = in_it if action in site.trace else "not in the trace, but parts of it are performed"
            yield self._wrong(site, f"{self.words.action(action)} is {why}", actions[action].name)
        position = {action: index for index, action in enumerate(site.trace)}
        if len(position) < len(site.trace):
            yield self._wrong(site, "the trace names an action twice")
        for columns in (site.parts, site.views, site.folds):
            if len(set(columns)) < len(columns):
                yield self._wrong(site, "it names a part twice")
        for part in site.parts:
            for before in self._performed_before(site, part):
                first, then = parts[before].owners, parts[part].owners
                body = actions[parts[part].action].body
                if body and parts[before].name.startswith(f"{body}."):
                    continue  # the work of who takes the function, done in it (`ledger_rows`)
                if set(first).isdisjoint(then) and all(
                    position.get(one, -1) > position.get(other, len(position)) for one in first for other in then
                ):
                    names = (actions[first[0]].name, actions[then[0]].name)
                    why = f"{names[1]} comes before {names[0]} in the trace, but depends on it"
                    yield self._wrong(site, why, *names)

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

    def _folded(self, site: Site) -> Iterator[Counterexample]:
        varying = [part for part in site.folds if not self.constant[part]]
        if varying:
            why = f"said to be folded, but depends on the arguments: {self.words.parts(varying)}"
            yield self._wrong(site, why, *self.words.actions(varying))
        parts = self.lineage.parts
        performed = {parts[part].twin for part in site.parts}
        if computed := [part for part in site.folds if parts[part].twin in performed]:
            why = f"said to be folded, but this computes its value: {self.words.parts(computed)}"
            yield self._wrong(site, why, *self.words.actions(computed))

    def _unplaced(self, site: Site) -> Iterator[Counterexample]:
        """Work that the compiler added after dispatches were formed has no place in the graph: it may be said to hold
        constants, and no more."""
        elsewhere = [part for part in site.parts if part in self.performed]
        if elsewhere:
            why = f"only gets memory ready, but is said to perform what others do: {self.words.parts(elsewhere)}"
            yield self._wrong(site, why, *self.words.actions(elsewhere))
        elif site.parts:
            place = self.words.site(site.id)
            self.missing.append(f"{place} was added after dispatches were formed: its trace is its location")
        if site.views:
            yield self._wrong(site, "said to index by views, but it has no place in the program")
        if site.inputs:
            yield self._wrong(site, f"said to read {self.words.sites(site.inputs)}, but it has no place in the program")
        if site.kernel in self.kernels:
            yield self._wrong(site, "said to have no place in the program, but it runs a kernel of the program's")

    def _placed(self, site: Site, index: int) -> Iterator[Counterexample]:
        node = self.graph.nodes[index]
        if site.phase != node.phase:
            when = {"init": "when the program is loaded", "call": "at each call"}
            yield self._wrong(site, f"said to run {when[site.phase]}, but it runs {when[node.phase]}")
        read = self._reads(index)
        if set(site.inputs) != read and Unknown() not in node.inputs:
            why = f"said to read {self.words.sites(site.inputs)}, but it reads {self.words.sites(sorted(read))}"
            yield self._wrong(site, why)
        if node.kind == "dispatch" and site.kernel != node.op and not self._moves(site, index):
            yield self._wrong(site, f"said to run the kernel {site.kernel}, but it runs {node.op}")
        elif node.kind == "transfer" and site.kernel in self.kernels:
            yield self._wrong(site, f"said to run the kernel {site.kernel}, but it only moves data")

    def _moves(self, site: Site, index: int) -> bool:
        """Whether a site may be the copy that a dispatch is, or that goes before it, as in a loop."""
        others = (self.lineage.sites[other].kernel for other in self.by_node[index])
        op = self.graph.nodes[index].op
        return site.kernel in _MOVES and ("memcpy" in op or op in others)

    def _reads(self, index: int, *, before: bool = True, pieces: bool = True) -> set[int]:
        """The sites whose results a node reads, through nodes that are no sites; ``before``: also what they gave in an
        iteration before; ``pieces``: also those that wrote other pieces of what it writes one of."""
        sites: set[int] = set()
        seen: set[int] = set()
        stack = [index]
        while stack:
            reader = stack.pop()
            node = self.graph.nodes[reader]
            piece = not pieces and reader == index and node.op == _PUT
            for value in node.inputs[1 if piece else 0 :]:
                # What a later node gives is what it gave at the call before, or in the iteration: state.
                last = index if before else reader
                if isinstance(value, NodeResult) and value.node < last and value.node not in seen:
                    seen.add(value.node)
                    sites.update(self.by_node.get(value.node, ()))
                    if value.node not in self.by_node:
                        stack.append(value.node)
        return sites

    def _commands(self) -> Iterator[Counterexample]:
        """Each dispatch is one command of the program, and the commands of a buffer are in program order. Copies and
        fills need none: constants are read from the file, and what is copied once may be moved ahead."""
        runs = Counter(site for commands in self.lineage.commands for site in commands if site is not None)
        for site in self.lineage.sites:
            if runs[site.id] > 1 or (site.kind == "dispatch" and not runs[site.id]):
                often = f"{runs[site.id]} of them are" if runs[site.id] else "none of them is"
                yield self._wrong(site, f"it is one command of the program, but {often} said to be it")
        for commands in self.lineage.commands:
            order = [site for site in commands if site is not None]
            for first, second in pairwise(order):
                if first > second:
                    where = self.words.site(second)
                    yield self._wrong(self.lineage.sites[first], f"said to run before {where}, but comes after it")
            yield from self._unseparated(commands)

    def _unseparated(self, commands: Sequence[int | None]) -> Iterator[Counterexample]:
        """Between two dispatches of which one reads the other there is a command that waits."""
        running: set[int] = set()
        for site in commands:
            if site is None:
                running.clear()
            elif (known := self.lineage.sites[site]).kind == "dispatch":
                read_now = set(known.inputs)
                if known.node is not None:  # pieces of one thing that are filled do not wait for each other
                    read_now &= self._reads(known.node, before=False, pieces=False)
                if read := sorted(running & read_now):
                    yield self._wrong(known, f"said not to wait for {self.words.sites(read)}, which it reads")
                running.add(site)

    def _wrong(self, site: Site, why: str, *actions: str) -> Counterexample:
        return Counterexample(_PHASE, why, site.id, actions, site.kernel)
