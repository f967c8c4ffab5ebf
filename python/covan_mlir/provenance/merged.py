"""Values that were merged into others: equal operations of which the compiler kept one, with one location.

When two parts of the source need the same value inside (a layer norm's variance and the layer norm itself both take
``x - mean``), common subexpression elimination keeps one operation and forgets the other's location. Data flow still
tells: a node reads a value that no part of it can use, and lacks one that nobody gives. Where the node that gives the
unused value could have computed the missing one, that is what it gives, too. The graph is supplemented before it is
related to the source; what is claimed of the program (sites, fates) is not touched, so a false claim stays one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.relation import Identity, Region, Source, relate, states

Graph = Mapping[str, Any]
_MOST = 100  # nodes that one part becomes
Value = tuple[int, int]
"""(node, result)"""


def supplemented(
    source: Source, graph: Graph, results: Sequence[Operand], identity: Identity
) -> tuple[Graph, list[Region]]:
    """The graph with the values that were merged into others, and the region of each of its nodes.

    Args:
        results: what the program returns, in order.
    """
    regions = relate(source, graph, identity)
    while True:
        gives = _Search(source, graph, results, regions, identity).run()
        if not gives:
            return graph, regions
        nodes = copy.deepcopy(list(graph["nodes"]))
        for (node, result), parts in gives.items():
            nodes[node]["outputs"][result].append(["compute", sorted(parts)])
            nodes[node]["evidence"] = sorted({*nodes[node]["evidence"], *parts})
        graph = {**graph, "nodes": nodes}
        regions = relate(source, graph, identity)


class _Search:
    """One round: what the gaps of the regions tell."""

    def __init__(
        self,
        source: Source,
        graph: Graph,
        results: Sequence[Operand],
        regions: Sequence[Region],
        identity: Identity,
    ) -> None:
        self.source = source
        self.nodes: Sequence[Mapping[str, Any]] = graph["nodes"]
        self.graph = graph
        self.results = results
        self.regions = regions
        self.identity = identity
        self.gives: dict[Value, set[int]] = {}
        self.owners: dict[int, set[int]] = {}
        for index, node in enumerate(self.nodes):
            for p in {*node["evidence"], *(p for chain in node["outputs"] for p in states(chain))}:
                self.owners.setdefault(p, set()).add(index)
        self.named = {source.twin(p) for p in self.owners}

    def run(self) -> dict[Value, set[int]]:
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
        for (kind, name), row in zip(self.results, self.graph["results"], strict=False):
            if kind == "p" and row[0] == "node" and self._lost(int(name)):
                self._first([(row[1], row[2])], int(name))
        return self.gives

    def _headless(self, node: int, part: int) -> bool:
        """Whether a node has a piece of a part that it is given no operand of, nor any earlier piece."""
        if self.source.constant[part] or len(self.owners.get(part, ())) < 2:
            return False
        arguments, reads = self._reads(part)
        for row in self.nodes[node]["inputs"]:
            if row[0] not in ("node", "const") and (row[0] != "arg" or row[1] in arguments):
                return False
            if row[0] == "node":
                known = self._known(row[1], row[2])
                if part in known or reads & {self.source.twin(p) for p in known}:
                    return False
        return True

    def _first(self, values: Sequence[Value], part: int) -> None:
        for value in values:
            if self._claim(value[0], part):
                self.gives.setdefault(value, set()).add(part)
                return

    def _claim(self, last: int, part: int) -> bool:
        """Have the values between what a part reads and the node where it ends be on the way to it, if nothing else is
        read there."""
        between = [] if self._inside(last, part) else self._between(last, part)
        for node, result in between or ():
            if part not in self._known(node, result):
                self.gives.setdefault((node, result), set()).add(part)
        return between is not None

    def _inside(self, node: int, part: int) -> bool:
        """Whether a node performs or is given all that a part reads."""
        inputs = self.nodes[node]["inputs"]
        arguments = {row[1] for row in inputs if row[0] == "arg"}
        there = {self.source.twin(p) for p in self.regions[node].performed}
        there |= {self.source.twin(p) for row in inputs if row[0] == "node" for p in self._known(row[1], row[2])}
        stack, seen = [part], {part}
        while stack:
            row = self.source.parts[stack.pop()]
            if not arguments.issuperset(row.arguments):
                return False
            for i in row.inputs:
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

    def _between(self, last: int, part: int) -> list[Value] | None:
        """The values on all ways from what a part reads to a node; None if there is another way in."""
        arguments, reads = self._reads(part)
        found: list[Value] = []
        stack = [last]
        while stack:
            for row in self.nodes[stack.pop()]["inputs"]:
                if row[0] == "const" or (row[0] == "arg" and row[1] in arguments):
                    continue
                if row[0] != "node" or len(found) == _MOST:
                    return None
                value = (row[1], row[2])
                if value not in found and not reads & {self.source.twin(p) for p in self._known(*value)}:
                    found.append(value)
                    stack.append(row[1])
        return found

    def _reads(self, part: int) -> tuple[set[int], set[int]]:
        """Arguments and parts that a part reads, through such as are lost or no work."""
        arguments: set[int] = set()
        reads: set[int] = set()
        stack, seen = [part], {part}
        while stack:
            row = self.source.parts[stack.pop()]
            arguments |= {*row.arguments}
            for i in row.inputs:
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
        return part in source.parts and source.twin(part) not in self.named and not source.constant[part]

    def _known(self, node: int, result: int) -> set[int]:
        return states(self.nodes[node]["outputs"][result])

    def _unused(self, node: int) -> Iterator[Value]:
        """Values that a node reads and that nothing in its region can use under their known names."""
        source, region = self.source, self.regions[node]
        here = region.performed | region.viewed
        used = {source.twin(i) for part in here for i in source.parts[part].inputs} | {source.twin(p) for p in here}
        for row in self.nodes[node]["inputs"]:
            if row[0] == "node":
                known = {source.twin(p) for p in self._known(row[1], row[2])}
                if not known & used or not self._whole(known, node):
                    yield row[1], row[2]

    def _whole(self, known: set[int], node: int) -> bool:
        """Whether a value is known under more than the name of a part that the node itself goes on with."""
        return bool(known - {self.source.twin(p) for p in self.nodes[node]["evidence"]})
