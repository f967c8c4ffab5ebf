"""Checks a phase against the one before: what a step left as it was, it left the name of.

Values that are computed by the same operations from the same arguments, before a step and after it, are one value. It
stands for the same states of the source, or for fewer of them, where equal operations were merged. So a location that
changed, and is as good as another one as far as the source tells, is found at the step that changed it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covan_mlir.checking.reading import Reading
from covan_mlir.provenance.program_graph import Argument, Constant, NodeResult, ProgramGraph, Value

if TYPE_CHECKING:
    from covan_mlir.checking.source_system import SourceSystem
    from covan_mlir.checking.subject import Subject
    from covan_mlir.checking.verdict import Counterexample

_DISPATCH = "flow.dispatch"
_COMPOSED = frozenset({"tensor.pad", "linalg.transpose"})
"""Operations two of which, one behind the other, become one."""
_CASTS = frozenset(f"arith.{name}" for name in ("extf", "extsi", "extui", "index_cast", "sitofp", "truncf", "uitofp"))
"""Of a number: two, one behind the other, become one, and so does one behind what a node does with it."""
_GENERIC = "linalg.generic"
_PIECE = "tensor.extract_slice"
"""Of places that are computed it is work, and as much a piece."""

Term = int
Names = dict[Term, list[tuple[int, frozenset[int]]]]
"""The nodes whose values have a term, and the states that each may stand for."""


@dataclass(frozen=True)
class _Piece:
    """Of what a node gives pieces: who asked for it, and what it is of."""

    evidence: tuple[int, ...]
    whole: Set[Hashable]


class Successors:
    """Relates each phase to the one before."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._terms: dict[Hashable, Term] = {}
        self._before: tuple[str, Names] | None = None
        self._graph: ProgramGraph | None = None
        self._positions = {position for part in subject.lineage.parts.values() for position in part.arguments}

    def check(self, step: str, graph: ProgramGraph, source: SourceSystem) -> list[Counterexample]:
        """What of a phase does not fit the phase that was checked before it."""
        names = self._names(graph, source)
        before, self._before = self._before, (step, names)
        last, self._graph = self._graph, graph
        if before is None or last is None:
            return []
        words = self.subject.words
        wrong = self._edges(step, before[0], last, graph)
        for term in names.keys() & before[1].keys():
            known = before[1][term]
            was = frozenset().union(*(states for _, states in known))
            other = [(node, states - was) for node, states in names[term] if states - was]
            # What an operation is called with besides values is not in the graph: a new one may be another operation.
            if len(other) > max(0, len(names[term]) - len(known)):
                node, new = other[-1]
                told = words.parts(sorted(was)) or "no part"
                why = f"{words.node(graph, node)} was that of {told} after {before[0]}, and is as it was then"
                wrong.append(self.subject.example(step, why, parts=(*sorted(new), *sorted(was))))
        return wrong

    def _edges(self, step: str, last: str, before: ProgramGraph, after: ProgramGraph) -> list[Counterexample]:
        """Where a step changed no operation but what it is called, each reads what it read."""
        alike = len(before.nodes) == len(after.nodes) and all(
            (old.outputs, old.evidence) == (new.outputs, new.evidence) and _may_be(old.op, new.op)
            for old, new in zip(before.nodes, after.nodes, strict=True)
        )
        if not alike:
            return []
        wrong: list[Counterexample] = []
        pieces = _pieces(before) | _pieces(after)  # columns are a piece until a dispatch is formed that copies them
        given, once = self._given(after, pieces), self._given(before, pieces)
        for index, (was, now) in enumerate(zip(once, given, strict=True)):
            same = _as_before(was, now) or now == _composed(after, given, index, was)
            if not same and _uncast(after, given, now) != _uncast(before, once, was):
                why = f"{self.subject.words.node(after, index)} reads other values than after {last}"
                wrong.append(self.subject.example(step, why, parts=after.nodes[index].evidence))
        if before.results != after.results:
            wrong.append(self.subject.example(step, f"the program returns other values than after {last}"))
        return wrong

    def _given(self, graph: ProgramGraph, pieces: Set[int]) -> list[Set[Hashable]]:
        """What each node reads, but for weights and what is computed of them alone, which may be prepared: arguments at
        first, later values of the program's own, and constants without a name.

        A piece is told by who asked for it and by what it is of: the graph does not tell which it is, and compilers
        order pieces anew. A piece of a piece is one of the whole, and a piece of a view one of what that is of. Sizes,
        which dispatches are given as they are formed, are left out; so is a number that some other value behind what a
        node reads was computed with, for it may be asked of that one as its size."""
        prepared: set[int] = set()
        parts = self.subject.lineage.parts
        views: set[int] = set()
        told: dict[int, _Piece] = {}
        read: list[Set[Hashable]] = []
        behind: list[frozenset[int]] = []
        """Of each node, the numbers that it and what it reads are computed with."""
        for index, node in enumerate(graph.nodes):
            varying: set[Hashable] = set()
            givers = {v.node for v in node.inputs if isinstance(v, NodeResult) and v.node < index}
            numbers = {giver for giver in givers if _is_number(graph.nodes[giver].op)}
            asked = frozenset[int]().union(*(behind[giver] for giver in givers - numbers))
            behind.append(asked | numbers)
            for value in node.inputs:
                match value:
                    case Argument(position):
                        known = position in self._positions
                    case NodeResult(source):
                        sizes = node.op.startswith(_DISPATCH) and source in numbers
                        known = source not in prepared and not sizes and source not in asked
                    case _:
                        known = value != Constant()
                if not known:
                    continue
                piece = told.get(value.node) if isinstance(value, NodeResult) else None
                if piece is None:
                    varying.add(value)
                elif index in pieces:
                    varying |= piece.whole
                else:
                    varying.add(piece)
            if not varying:
                prepared.add(index)
            if index in pieces:
                viewed = {v.node for v in varying if isinstance(v, NodeResult) and v.node in views}
                varying -= {NodeResult(view) for view in viewed}
                varying = varying.union(*(read[view] for view in viewed))
                told[index] = _Piece(node.evidence, frozenset(varying))
            elif (
                not _is_number(node.op)  # where a view begins is none
                and (states := node.all_states)
                and all(number in parts and parts[number].view for number in states)
            ):
                views.add(index)
            read.append(frozenset(varying))
        return read

    def _names(self, graph: ProgramGraph, source: SourceSystem) -> Names:
        reading = Reading(source, graph)
        names: Names = {}
        terms: dict[NodeResult, Term] = {}
        for index, node in enumerate(graph.nodes):
            read = tuple(self._term(terms, reading.stored(value)) for value in node.inputs)
            for number in range(len(node.outputs)):
                value = NodeResult(index, number)
                term = self._number((node.op, number, read))
                terms[value] = term
                if node.kind == "control":  # what follows reads it as what it is said to be
                    terms[value] = self._number(("control", reading.states(value)))
                elif index not in reading.data and not node.hands_on_pieces:
                    known = frozenset(map(source.twin, reading.states(value)))
                    names.setdefault(term, []).append((index, known))
        return names

    def _term(self, terms: dict[NodeResult, Term], value: Value) -> Term:
        if isinstance(value, NodeResult):
            return terms.get(value, -1)
        return self._number(Constant() if isinstance(value, Constant) else value)

    def _number(self, key: Hashable) -> Term:
        return self._terms.setdefault(key, len(self._terms))


def _as_before(was: Set[Hashable], now: Set[Hashable]) -> bool:
    """Whether a node reads what it read, or the whole of which that was a piece: a dispatch takes the piece itself."""
    gone = was - now
    wholes = frozenset[Hashable]().union(*(value.whole for value in gone if isinstance(value, _Piece)))
    return all(isinstance(value, _Piece) for value in gone) and now - was <= wholes <= now


def _uncast(graph: ProgramGraph, given: Sequence[Set[Hashable]], read: Set[Hashable]) -> Set[Hashable]:
    """What a node reads, with numbers as they were before they were converted."""
    values: set[Hashable] = set()
    for value in read:
        if isinstance(value, NodeResult) and graph.nodes[value.node].op in _CASTS:
            values |= _uncast(graph, given, given[value.node])
        else:
            values.add(value)
    return values


def _composed(graph: ProgramGraph, given: Sequence[Set[Hashable]], index: int, was: Set[Hashable]) -> Set[Hashable]:
    """What a padding reads that was one of a padding, or a transposition of one, which is there for somebody else: the
    two are one now."""
    op = graph.nodes[index].op
    if op not in _COMPOSED:
        return was
    read: set[Hashable] = set()
    for value in was:
        if isinstance(value, NodeResult) and value.node < index and graph.nodes[value.node].op == op:
            read |= _composed(graph, given, value.node, given[value.node])
        else:
            read.add(value)
    return read


def _pieces(graph: ProgramGraph) -> frozenset[int]:
    """The nodes that give pieces of what they read."""
    return frozenset(index for index, node in enumerate(graph.nodes) if node.hands_on_pieces or node.op == _PIECE)


def _may_be(old: str, new: str) -> bool:
    """Whether an operation may be another one by a new name, as one of linalg with a name is a generic one."""
    dialects = {old.partition(".")[0], new.partition(".")[0]}
    if not dialects <= {"tensor", "linalg"} or old == new:
        return True
    if dialects != {"linalg"} or not new.startswith(_GENERIC):
        return False
    return not old.startswith(_GENERIC) or _steps(old) == _steps(new)


def _steps(generic: str) -> int:
    """How many operations the body of a generic one has."""
    return len(generic.removeprefix(_GENERIC).split(",")) if generic != _GENERIC else 0


def _is_number(op: str) -> bool:
    """Whether an operation gives a number, no tensor."""
    return op.startswith("arith.") or op == "tensor.extract"
