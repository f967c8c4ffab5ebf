"""Relates the source graph to the compiled program: what each dispatch performs, exactly.

Both graphs are read as systems of states (values) with operations between them. A dispatch's results are matched to
states of the source by the location of the operation that computes them; its inputs are results of other dispatches,
arguments, or constants. What the dispatch performs is then not what its locations happen to name but what lies, in the
source graph, between its input states and its output states. Locations decide two things only: which state a result
is, and in which of several dispatches a part that was split is found.

This is action abstraction as in "Provenance Tracking in AI Compilers through the Lens of Coalgebra": the word of parts
between the states is replaced by one generated action, the dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from covan_mlir.provenance.control import JOINS
from covan_mlir.provenance.data_nodes import constants_behind, data_nodes, readers, stored
from covan_mlir.provenance.model import Part
from covan_mlir.provenance.program_graph import (
    Argument,
    Global,
    NodeResult,
    ProgramGraph,
    ProgramNode,
    Unknown,
    Value,
)

_PUT = "flow.tensor.update"


@dataclass
class Region:
    """What one node of the program (a dispatch or a transfer) is in the source graph.

    Attributes:
        performed: parts that it computes.
        viewed: parts that only say how it reads its inputs, or shapes what it gives.
        folded: parts without arguments behind them, whose constant values it reads.
        strangers: parts that its locations name but that do not lie between its states; not in its trace.
        gaps: pairs (part, input) where a part reads a value that the node is not given.
    """

    performed: set[int] = field(default_factory=set)
    viewed: set[int] = field(default_factory=set)
    folded: set[int] = field(default_factory=set)
    strangers: set[int] = field(default_factory=set)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether the node's states and its region fit together without a remainder."""
        return not self.gaps and not self.strangers


class Source:
    """The parts of a model as a graph of values."""

    def __init__(self, parts: Mapping[int, Part]) -> None:
        self.parts = parts
        self.constant: dict[int, bool] = {}
        """Whether no argument lies behind the part's value."""
        self.independent: dict[int, bool] = {}
        """Whether no element of an argument does: a size may."""
        for index in sorted(parts):
            part = parts[index]
            fixed = not part.arguments and part.op not in JOINS
            self.constant[index] = fixed and not part.sizes and all(self.constant[i] for i in part.inputs)
            self.independent[index] = fixed and all(self.independent[i] for i in part.inputs)

    def twin(self, part: int) -> int:
        """The first part with the same value."""
        return self.parts[part].twin if part in self.parts else part


Identity = Callable[[int], bool]
"""Whether a part's value equals one of its operands, for all inputs (x * 1, a copy)."""


class KeptOperands(Protocol):
    """An `Identity` that says which operand it is."""

    def __call__(self, part: int) -> bool: ...

    def kept(self, part: int) -> int | None:
        """The position of the operand that a part gives back, or None."""


def relate(source: Source, graph: ProgramGraph, identity: Identity) -> list[Region]:
    """The region of each node of a graph."""
    data = data_nodes(graph)
    owners: dict[int, set[int]] = {}
    for index, node in enumerate(graph.nodes):
        for part in node.all_states.union(() if node.hands_on_pieces else node.evidence):
            if index not in data or source.independent.get(part, True):
                owners.setdefault(part, set()).add(index)
    regions = [
        _Builder(source, graph, owners, index, identity, data=index in data).build()
        for index in range(len(graph.nodes))
    ]
    _share_data(source, graph, regions, data)
    return regions


def _share_data(source: Source, graph: ProgramGraph, regions: Sequence[Region], data: frozenset[int]) -> None:
    """What is data belongs to the work of those who read it, as far as its location says so."""
    of_readers = readers(graph, data)
    # Also by way of a global, where it is computed at load time.
    results = (stored(graph, value) for value in graph.results)
    returned = {value.node for value in results if isinstance(value, NodeResult)}
    shares = data - returned  # what the program returns is work of its own, though it may be made of sizes alone
    for index in data:
        region, node = regions[index], graph.nodes[index]
        if node.hands_on_pieces:
            continue
        work = {part for reader in of_readers[index] - shares for part in regions[reader].performed}
        # What others write straight to its place, as into memory that is filled with zeros.
        given = {part for reader in of_readers[index] - shares for part in graph.nodes[reader].all_states}
        work |= {part for part in given if part in source.parts and not source.parts[part].view}
        shared = {part for part in node.evidence if part in work and not source.independent[part]}
        if index in shares:
            needed = {source.twin(part) for part in constants_behind(source.parts, source.independent, work)}
            foreign = {part for part in region.performed | region.folded if source.twin(part) not in needed}
            region.performed -= foreign
            region.folded -= foreign
            region.strangers |= foreign.intersection(node.evidence)
        region.strangers -= shared
        region.performed |= shared
        region.folded |= _handed_on(source, graph, node, shared) - region.performed


def _handed_on(source: Source, graph: ProgramGraph, node: ProgramNode, shared: Iterable[int]) -> set[int]:
    """Constants that some parts read and that data is, of other data that it is given: as indices laid side by side."""
    given: set[int] = set()
    for value in node.inputs:
        if isinstance(value := stored(graph, value), NodeResult):
            given |= {source.twin(part) for part in graph.nodes[value.node].states(value.result)}
    asked = {i for part in shared for i in source.parts[part].inputs if source.constant[i]}
    return {i for i in asked if source.twin(i) not in given and given & set(map(source.twin, source.parts[i].inputs))}


class _Builder:
    """Walks the source graph backwards from the states that a node gives to the states that it is given."""

    def __init__(
        self,
        source: Source,
        graph: ProgramGraph,
        owners: Mapping[int, set[int]],
        index: int,
        identity: Identity,
        *,
        data: bool,
    ) -> None:
        self.source = source
        self.data = data
        self.index = index
        self.owners = owners
        self.identity = identity
        self.node = graph.nodes[index]
        named = {part for part in self.node.evidence if part in source.parts}
        # Beside tensors, numbers are of whoever compared first what says where a piece begins.
        self.evidence = {part for part in named if "[" in "".join(source.parts[part].types)} or named
        self.graph = graph
        self.given: set[int] = set()
        self.arguments: set[int] = set()
        self.open = False
        for value in self.node.inputs:
            self._give(graph, value)
        self.region = Region()
        self._seen: set[int] = set()
        self._reachable: dict[int, bool] = {}
        self._reachable_again: dict[int, bool] = {}
        self._again: set[int] = set()

    def _give(self, graph: ProgramGraph, value: Value) -> None:
        match value:
            case NodeResult(index, result):
                giver = graph.nodes[index]
                self.given |= {self.source.twin(part) for part in giver.states(result)}
                if giver.hands_on(result):
                    if not giver.hands_on_pieces:
                        self.given |= {self.source.twin(part) for part in giver.evidence}
                    for inner in giver.inputs:
                        self._give(graph, inner)
            case Argument(position):
                self.arguments.add(position)
            case Global(name):
                if name in graph.globals:
                    self._give(graph, graph.globals[name])
            case Unknown():
                self.open = True

    def build(self) -> Region:
        region = self.region
        seeds = [
            part
            for result in range(len(self.node.outputs))
            for part in self.node.states(result) - self._laid_out(result)
            if part in self.source.parts and not self._is_given_whole(part)
        ]
        if self.node.hands_on_pieces:
            self._walk(sorted(self.evidence))
            self.region = Region(viewed=region.viewed)
            return self.region
        if not seeds:
            seeds = [part for part in sorted(self.evidence) if self.source.independent[part] or not self.data]
        self._walk(seeds)
        for part in self.evidence - region.performed - region.folded:
            if self.data and not self.source.independent[part]:
                region.strangers.add(part)  # unless those who read it say otherwise
                continue
            if self.source.constant[part] and self._stands(part):
                region.strangers.add(part)  # another's, with the name of which this node's own was merged
                continue
            # A part that was split stands on both sides of the border; a constant's parts may be computed in place.
            if len(self.owners[part]) > 1 or self.source.constant[part]:
                self._walk([part])
            else:
                region.strangers.add(part)
        self._drop_foreign_constants()
        region.viewed -= region.performed
        region.folded -= region.performed
        return region

    def _laid_out(self, result: int) -> set[int]:
        """Parts in whose name a result that is another's value was given a shape: they read it, as a product reads
        rows, and are computed by others."""
        links = self.node.outputs[result]
        if all(link.how == "view" for link in links):
            return set()
        shaped = {
            part
            for link in links
            if link.how == "view"
            for part in link.ids
            if self.owners.get(part, set()) - {self.index}
        }
        return {
            part
            for part in shaped.difference(self.evidence, *(link.ids for link in links if link.how != "view"))
            if part in self.source.parts and not self.source.parts[part].view and not self.identity(part)
        }

    def _is_given_whole(self, part: int) -> bool:
        """Whether a part is others' work that the node is given to write into, and none of its own."""
        others = self.source.twin(part) in self.given and part not in self.evidence
        return others and not self.data and not self.source.parts[part].view and not self.identity(part)

    def _stands(self, part: int) -> bool:
        """Whether the node has a part's value under another part's name."""
        return self.source.twin(part) in map(self.source.twin, self.region.performed | self.region.folded)

    def _drop_foreign_constants(self) -> None:
        """A constant that its work does not read, but that some operation names, is an equal one of another's."""
        region, source = self.region, self.source
        work = {part for part in (*region.performed, *region.viewed) if not source.independent[part]}
        if not work:
            return  # data: those who read it tell
        states = {part for part in self.node.all_states if part in source.parts}
        needed = constants_behind(source.parts, source.independent, work | states)
        foreign = region.performed.union(region.folded) - work - needed
        region.performed -= foreign
        region.folded -= foreign
        region.strangers |= foreign.intersection(self.evidence)

    def _walk(self, seeds: Iterable[int]) -> None:
        stack = list(seeds)
        while stack:
            part = stack.pop()
            if part in self._seen:
                continue
            self._seen.add(part)
            self._place(part)
            split = len(self.owners.get(part, ())) > 1
            known = self.source.parts[part]
            if not self.open and not split and not set(known.arguments) <= self.arguments:
                self.region.gaps.append((part, -1))
            for i in known.inputs:
                if self.source.constant[i] and i not in self.evidence:
                    self._fold(i)
                elif self.source.twin(i) in self.given:
                    if i in self.evidence:  # split: begun before, finished here
                        stack.append(i)
                elif split and self._written_by_another(part, i):
                    continue
                elif i in self.evidence or (self._passable(i) and self._reaches(i)):
                    stack.append(i)
                elif not self.open and not (split and self._shares(part) and not self._reads_copy(part, i)):
                    if self._reaches(i, again=True):  # somebody else computes it too, but this node is not given it
                        self._again.add(i)
                        stack.append(i)
                    elif not split:
                        self.region.gaps.append((part, i))

    def _shares(self, part: int) -> bool:
        """Whether a node may do some of a part that others begin or finish: it is given it, gives it, or writes a piece
        into what it is given. Else it does all of it, as others do."""
        pieces = any(map(self.node.hands_on, range(len(self.node.outputs))))
        return pieces or self.source.twin(part) in self.given or part in self.node.all_states

    def _reads_copy(self, part: int, read: int) -> bool:
        """Whether a node that begins a part reads a copy, made by others, where the original is."""
        return self.identity(read) and self.source.twin(part) not in self.given and part in self.evidence

    def _written_by_another(self, part: int, piece: int) -> bool:
        """Whether a node writes one piece of what several put together of sizes alone, and another node this one."""
        if not self.data or self.node.op != _PUT or piece in self.evidence:
            return False
        others = (self.graph.nodes[index] for index in self.owners[part] - {self.index})
        written: set[int] = set()
        for node in others:
            written.update(node.evidence)
            for value in node.inputs:
                written |= self.graph.nodes[value.node].states(value.result) if isinstance(value, NodeResult) else set()
        return self.source.twin(piece) in map(self.source.twin, written)

    def _passable(self, part: int) -> bool:
        """Whether a part may be done here unnoticed: nobody is known to compute it, or it is a view, which indexing
        absorbs wherever the value is read, even if somebody else also materialises it."""
        return part not in self.owners or self.source.parts[part].view

    def _place(self, part: int) -> None:
        view = self.source.parts[part].view
        named = part in self.evidence and not (view and self.node.hands_on_pieces)
        if named or part in self._again or not (view or self.identity(part)):
            self.region.performed.add(part)  # what changes the value and lies between the states, by whatever name
        else:
            self.region.viewed.add(part)

    def _fold(self, part: int) -> None:
        stack = [part]
        while stack:
            part = stack.pop()
            if part in self.region.folded or self.source.twin(part) in self.given:
                continue
            self.region.folded.add(part)
            stack.extend(self.source.parts[part].inputs)

    def _reaches(self, part: int, *, again: bool = False) -> bool:
        """Whether a part comes from what the node is given, through parts that left no location only; ``again``: or
        through such that others compute as well."""
        reachable = self._reachable_again if again else self._reachable
        stack = [part]
        while stack:
            part = stack[-1]
            if part in reachable:
                stack.pop()
                continue
            known = self.source.parts[part]
            waiting = [
                i
                for i in known.inputs
                if i not in reachable
                and not self.source.constant[i]
                and self.source.twin(i) not in self.given
                and i not in self.evidence
                and (again or self._passable(i))
            ]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            reachable[part] = (self.open or set(known.arguments) <= self.arguments) and all(
                self.source.constant[i]
                or self.source.twin(i) in self.given
                or i in self.evidence
                or reachable.get(i, False)
                for i in known.inputs
            )
        return reachable[part]
