"""Checks branches and loops of a program position by position: what decides, what a value is at first, and what after.

The walk (`covan_mlir.checking.program_system`) relates a body once for all iterations: a value that goes round is
assumed to be what the source carries there, and what is computed of it has to be what the source computes of that. It
does not ask in which order a node of control has its inputs. Here it is asked: the condition is the condition, the
first branch the first, and each value is followed by its own successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from covan_mlir.checking.reading import Reading
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import JOINS, PREFIX, positions
from covan_mlir.provenance.program_graph import Argument, Constant, NodeResult, ProgramGraph, Value

if TYPE_CHECKING:
    from covan_mlir.checking.source_system import SourceSystem


def unfitting(
    source: SourceSystem, graph: ProgramGraph, kept: Callable[[int], int | None]
) -> Iterator[tuple[int, int, str]]:
    """Nodes of control, or that are said to be such, the parts that they are not, and why. A loop that an operator was
    lowered to is its work.

    Args:
        kept: the position of the operand that a part gives back, or None.
    """
    check = _Joins(source, graph, kept)
    for index, node in enumerate(graph.nodes):
        known = {part for part in node.all_states.union(node.evidence) & source.parts.keys() if _is_join(source, part)}
        for part in sorted(known):
            if node.kind != "control":
                yield index, part, "is a value of a branch or loop, and this is none"
            elif why := check.why(index, part):
                yield index, part, why
        if node.kind == "control" and len(known) > 1:
            yield index, min(known), "is one of several values that one branch or loop is said to give"


def undecided(source: SourceSystem, graph: ProgramGraph) -> set[int]:
    """Values of branches and loops that the results need and that nothing in a program is said to be: the compiler
    decided ahead of time, or turned the loop into something else."""
    for node in graph.nodes:
        if node.kind != "control" and any(_is_join(source, part) for part in node.all_states & source.parts.keys()):
            return set()  # it may be there, by a wrong name
    named = {source.twin(part) for node in graph.nodes if node.kind == "control" for part in node.evidence}
    return {part for part in source.live if _is_join(source, part) and source.twin(part) not in named}


def _is_join(source: SourceSystem, part: int) -> bool:
    return source.parts[part].op in JOINS


class _Joins:
    def __init__(self, source: SourceSystem, graph: ProgramGraph, kept: Callable[[int], int | None]) -> None:
        self.source = source
        self.graph = graph
        self.kept = kept
        self.reading = Reading(source, graph)

    def why(self, index: int, part: int) -> str:
        """What is wrong with a node of control that is named after a part."""
        node, known = self.graph.nodes[index], self.source.parts[part]
        asked = positions(known)
        if known.op != f"{PREFIX}{node.op}" or len(asked) != len(node.inputs):
            return "is no such branch or loop"
        for position, (value, operand) in enumerate(zip(node.inputs, asked, strict=True)):
            if not self._stands(value, operand):
                name = self.source.operand_name(operand) if operand is not None else "memory or a number"
                return f"has {name} at position {position}, and the program another value"
        return ""

    def _stands(self, value: Value, operand: Operand | None) -> bool:
        value = self.reading.stored(value)
        if isinstance(value, Constant):
            return operand is None or operand[0] == "w" or self._constant(operand)
        if operand is None:
            return isinstance(value, NodeResult) and value.node in self.reading.data
        kind, name = self._behind(operand)
        if isinstance(value, Argument):
            return (kind, name) == ("a", value.position) or kind == "w"
        return isinstance(value, NodeResult) and self._is((kind, name), value)

    def _constant(self, operand: Operand) -> bool:
        return operand[0] == "p" and self.source.constant[int(operand[1])]

    def _is(self, operand: Operand, value: NodeResult) -> bool:
        """Whether a value may be what stands behind an operand."""
        node = self.graph.nodes[value.node]
        if self._constant(operand) and value.node in self.reading.data:
            return True
        states = self.reading.states(value) | (
            self.reading.evidence(value.node) if node.hands_on_pieces else frozenset()
        )
        if operand in {self._behind(("p", state)) for state in states}:
            return True
        if not node.hands_on(value.result):
            return False
        return any(
            self._is(operand, given)
            if isinstance(given, NodeResult)
            else operand == ("a", getattr(given, "position", -1))
            for given in map(self.reading.stored, node.inputs)
        )

    def _behind(self, operand: Operand) -> Operand:
        """What a value is another shape of, or given back: also by work that is done. Of a loop that carries whether to
        go on, compilers keep the copy that decides and not what it is a copy of."""
        kind, name = operand
        while kind == "p":
            part = int(name)
            read = self.source.needs(part)
            shaped = self.source.parts[part].view and not self.source.parts[part].op.startswith("operator.")
            if shaped or part in self.source.identity:
                position: int | None = 0
            else:
                position = None if self.source.parts[part].op in JOINS else self.kept(part)
            if position is None or position >= len(read):
                return "p", self.source.twin(part)
            kind, name = read[position]
        return kind, name
