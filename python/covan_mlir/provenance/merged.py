"""Values that were merged into others: equal operations of which the compiler kept one, with one location.

When two parts of the source need the same value inside (a layer norm's variance and the layer norm itself both take
``x - mean``), common subexpression elimination keeps one operation and forgets the other's location. Data flow still
tells: a node reads a value that no part of it can use, and lacks one that nobody gives. Where the node that gives the
unused value could have computed the missing one, that is what it gives, too. The graph is supplemented before it is
related to the source; what is claimed of the program (sites, fates) is not touched, so a false claim stays one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import JOINS
from covan_mlir.provenance.data_nodes import data_nodes, readers, renamed, stored
from covan_mlir.provenance.program_graph import (
    Argument,
    Constant,
    Definition,
    Definitions,
    Global,
    NodeResult,
    ProgramGraph,
)
from covan_mlir.provenance.relation import Identity, Region, Source, relate
from covan_mlir.provenance.shared import apportion

_MOST = 100  # nodes that one part becomes


def supplemented(
    source: Source, graph: ProgramGraph, results: Sequence[Operand], identity: Identity
) -> tuple[ProgramGraph, list[Region]]:
    """The graph with the values that were merged into others, and the region of each of its nodes.

    Args:
        results: what the program returns, in order.
    """
    graph = renamed(graph, source.independent)
    regions = relate(source, graph, identity)
    while True:
        gives = _Search(source, graph, results, regions, identity).run()
        if not gives:
            named = _named_by_readers(source, graph, regions)
            regions = regions if named is graph else relate(source, named, identity)
            apportion(source, named, results, regions)
            return named, regions
        graph = _giving(graph, gives)
        regions = relate(source, graph, identity)


def _named_by_readers(source: Source, graph: ProgramGraph, regions: Sequence[Region]) -> ProgramGraph:
    """The graph in which data at the location of somebody else is also named after those who read it: after the only
    part that a reader performs, where its location names none of those."""
    data = data_nodes(graph)
    of_readers = readers(graph, data)
    nodes = list(graph.nodes)
    for index in data:
        node, region = nodes[index], regions[index]
        if node.hands_on_pieces or any(source.independent[p] for p in region.performed | region.folded):
            continue
        names = set(region.performed)
        for reader in of_readers[index] - data:
            work = {p for p in regions[reader].performed if not source.independent[p]}
            if len(work) == 1 and work.isdisjoint(node.evidence):
                names |= work
        if names and names != set(node.evidence):
            nodes[index] = replace(node, evidence=tuple(sorted(names)))
    return graph if nodes == list(graph.nodes) else replace(graph, nodes=tuple(nodes))


def _giving(graph: ProgramGraph, gives: Mapping[NodeResult, set[int]]) -> ProgramGraph:
    """The graph in which some results compute more parts."""
    nodes = list(graph.nodes)
    for value, parts in gives.items():
        node = nodes[value.node]
        outputs: list[Definitions] = list(node.outputs)
        outputs[value.result] = (*outputs[value.result], Definition("compute", tuple(sorted(parts))))
        evidence = tuple(sorted({*node.evidence, *parts}))
        nodes[value.node] = replace(node, outputs=tuple(outputs), evidence=evidence)
    return replace(graph, nodes=tuple(nodes))


class _Search:
    """One round: what the gaps of the regions tell."""

    def __init__(
        self,
        source: Source,
        graph: ProgramGraph,
        results: Sequence[Operand],
        regions: Sequence[Region],
        identity: Identity,
    ) -> None:
        self.source = source
        self.graph = graph
        self.nodes = graph.nodes
        self.results = results
        self.regions = regions
        self.identity = identity
        self.data = data_nodes(graph)
        self.gives: dict[NodeResult, set[int]] = {}
        self.owners: dict[int, set[int]] = {}
        for index, node in enumerate(self.nodes):
            for p in node.all_states.union(node.evidence):
                self.owners.setdefault(p, set()).add(index)
        self.named = {source.twin(p) for p in self.owners}

    def run(self) -> dict[NodeResult, set[int]]:
        """Per value, parts that it must be as well, or be on the way to."""
        for node, region in enumerate(self.regions):
            for part, want in sorted(region.gaps):
                if want >= 0 and self._lost(want):
                    self._first(list(self._unused(node)), want)
                else:  # its rest reads what others have begun, and not what the part reads
                    self._claim(node, part)
            for part in sorted(region.performed):
                if self._headless(node, part):
                    self._claim(node, part)
        for (kind, name), value in zip(self.results, self.graph.results, strict=False):
            if (
                kind == "p"
                and isinstance(value, NodeResult)
                and (self._lost(int(name)) or self._hides(value, int(name)))
            ):
                self._first([value], int(name))
        return self.gives

    def _headless(self, node: int, part: int) -> bool:
        """Whether a node has a piece of a part that it is given no operand of, nor any earlier piece."""
        if self.source.constant[part] or len(self.owners.get(part, ())) < 2:
            return False
        arguments, reads = self._reads(part)
        for value in self.nodes[node].inputs:
            match stored(self.graph, value):
                case NodeResult() as value:
                    known = self._known(value)
                    if part in known or reads & {self.source.twin(p) for p in known}:
                        return False
                case Argument(position):
                    if position in arguments:
                        return False
                case Constant() | Global():
                    continue
                case _:
                    return False
        return node not in self.data

    def _hides(self, value: NodeResult, part: int) -> bool:
        """Whether a value that is returned as a part is known by what it is made of alone, though its node has the
        part's name: what only moves elements is fused into what computes them."""
        named = part in self.nodes[value.node].evidence and part in self.source.parts
        return named and not any(part in node.all_states for node in self.nodes)

    def _first(self, values: Sequence[NodeResult], part: int) -> None:
        for value in values:
            if self._claim(value.node, part):
                self.gives.setdefault(value, set()).add(part)
                return

    def _claim(self, last: int, part: int) -> bool:
        """Have the values between what a part reads and the node where it ends be on the way to it, if nothing else is
        read there."""
        between = [] if self._inside(last, part) else self._between(last, part)
        for value in between or ():
            if part not in self._known(value):
                self.gives.setdefault(value, set()).add(part)
        return between is not None

    def _inside(self, node: int, part: int) -> bool:
        """Whether a node performs or is given all that a part reads."""
        inputs = self.nodes[node].inputs
        arguments = {value.position for value in inputs if isinstance(value, Argument)}
        there = {self.source.twin(p) for p in self.regions[node].performed}
        there |= {self.source.twin(p) for value in inputs if isinstance(value, NodeResult) for p in self._known(value)}
        stack, seen = [part], {part}
        while stack:
            reader = self.source.parts[stack.pop()]
            if not arguments.issuperset(reader.arguments):
                return False
            for i in reader.inputs:
                if i in seen or self.source.constant[i] or self.source.twin(i) in there:
                    continue
                if not self._passable(i):
                    return False
                seen.add(i)
                stack.append(i)
        return True

    def _passable(self, part: int) -> bool:
        """Whether a part may be done unnoticed: it is lost as well, or no work."""
        return self._lost(part) or self.source.parts[part].view or self.identity(part)

    def _between(self, last: int, part: int) -> list[NodeResult] | None:
        """The values on all ways from what a part reads to a node; None if there is another way in."""
        arguments, reads = self._reads(part)
        between: list[NodeResult] = []
        stack = [last]
        while stack:
            for value in self.nodes[stack.pop()].inputs:
                value = stored(self.graph, value)
                if isinstance(value, Constant | Global):  # of a global that no node fills: the compiler did
                    continue
                if isinstance(value, Argument) and value.position in arguments:
                    continue
                if isinstance(value, NodeResult) and value.node in self.data:
                    continue
                if not isinstance(value, NodeResult) or len(between) == _MOST:
                    return None
                if value not in between and not reads & {self.source.twin(p) for p in self._known(value)}:
                    between.append(value)
                    if not self._inside(value.node, part):  # what the part reads is performed there: the way begins
                        stack.append(value.node)
        return between

    def _reads(self, part: int) -> tuple[set[int], set[int]]:
        """Arguments and parts that a part reads, through such as are lost or no work."""
        arguments: set[int] = set()
        reads: set[int] = set()
        stack, seen = [part], {part}
        while stack:
            reader = self.source.parts[stack.pop()]
            arguments |= {*reader.arguments}
            for i in reader.inputs:
                if i in seen or self.source.constant[i]:
                    continue
                seen.add(i)
                reads.add(self.source.twin(i))
                if self._passable(i):
                    stack.append(i)
        return arguments, reads

    def _lost(self, part: int) -> bool:
        """Whether a part is named nowhere, although it is work."""
        source = self.source
        work = part in source.parts and source.parts[part].op not in JOINS
        return work and source.twin(part) not in self.named and not source.constant[part]

    def _known(self, value: NodeResult) -> set[int]:
        node = self.nodes[value.node]
        states = node.states(value.result)
        return states or set(node.evidence) if node.hands_on_pieces else states  # a piece is what its location names

    def _unused(self, node: int) -> Iterator[NodeResult]:
        """Values that a node reads and that nothing in its region can use under their known names."""
        source, region = self.source, self.regions[node]
        here = region.performed | region.viewed
        used = {source.twin(i) for part in here for i in source.parts[part].inputs} | {source.twin(p) for p in here}
        for value in self.nodes[node].inputs:
            if isinstance(value, NodeResult) and value.node not in self.data:
                known = {source.twin(p) for p in self._known(value)}
                if not known & used or not self._whole(known, node):
                    yield value

    def _whole(self, known: set[int], node: int) -> bool:
        """Whether a value is known under more than the name of a part that the node itself goes on with."""
        return bool(known - {self.source.twin(p) for p in self.nodes[node].evidence})
