"""Values that compilers merged: of two equal operations one is left, with one name.

What is computed where that name does not say is guessed from what is missing: an operation reads a value that nobody
gives under its name, and is given one. If that one is computed from nothing but what the missing one reads, it may be
it. A guess gives a value another name and no more: whether the program computes the source under all these names is
asked again with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from covan_mlir.checking.program_system import Claim, Loss, ProgramSystem
from covan_mlir.checking.reading import Reading
from covan_mlir.checking.source_system import SourceSystem
from covan_mlir.provenance.program_graph import Argument, Constant, NodeResult, ProgramGraph, Value

_MOST = 100  # nodes between what a part reads and where it is missing
_ROUNDS = 50


def read(
    source: SourceSystem, graph: ProgramGraph, claims: Sequence[Claim | None], *, aside: bool = False
) -> ProgramSystem:
    """The program, its values named so that as much as can be is there."""
    reading = Reading(source, graph)
    for _ in range(_ROUNDS):
        program = ProgramSystem(source, reading, claims)
        program.walk(aside=aside)
        guesses = _Guesses(program).of(program.losses)
        if not guesses:
            break
        known, none = reading.guesses, frozenset[int]()
        reading = Reading(source, graph, {**known, **{v: known.get(v, none) | guesses[v] for v in guesses}})
    return program


class _Guesses:
    """One round: what the losses of a walk tell."""

    def __init__(self, program: ProgramSystem) -> None:
        self.program = program
        self.reading = program.reading
        self.source = program.source
        self.names: dict[NodeResult, set[int]] = {}

    def of(self, losses: Iterable[Loss]) -> dict[NodeResult, set[int]]:
        """By value, the parts that it may be besides."""
        for loss in losses:
            kind, name = loss.operand
            missing = int(name) if kind == "p" else -1
            if loss.late:
                continue
            if missing >= 0 and self._unnamed(missing):
                for value in self._candidates(loss):
                    if self._on_the_way(value.node, missing):
                        self._name(value, missing)
                        break
            elif loss.node >= 0 and loss.part >= 0:  # its rest reads what others have begun
                self._on_the_way(loss.node, loss.part)
        return self.names

    def _candidates(self, loss: Loss) -> Iterator[NodeResult]:
        """Values that the reader is given and does not use under the names that they have."""
        if loss.node < 0:
            for value in self.reading.graph.results[-1 - loss.node :][:1]:
                if isinstance(value, NodeResult):
                    yield value
            return
        used = self.program.used(loss.node)
        evidence = {self.source.twin(part) for part in self.reading.evidence(loss.node)}
        for value in self.reading.givers(loss.node):
            states = {self.source.twin(part) for part in self.reading.states(value)}
            if value.node not in self.reading.data and (not states & used or states <= evidence):
                yield value

    def _on_the_way(self, last: int, part: int) -> bool:
        """Have all values between what a part reads and a node be pieces of it, if nothing else is read there."""
        between = [] if self._there(last, part) else self._between(last, part)
        for value in between or ():
            self._name(value, part)
        return between is not None

    def _name(self, value: NodeResult, part: int) -> None:
        if part not in self.reading.states(value):
            self.names.setdefault(value, set()).add(part)

    def _there(self, node: int, part: int) -> bool:
        """Whether a node has, or is given, all that a part reads."""
        given = self.program.given(node)
        evidence = self.reading.evidence(node)
        stack, seen = [part], {part}
        while stack:
            for kind, name in self.source.call(stack.pop()).operands:
                if kind == "a" and name not in given.arguments:
                    return False
                if kind != "p" or name in seen or self.source.constant[int(name)]:
                    continue
                read = int(name)
                if read in evidence or given.givers(self.source.twin(read)):
                    continue
                if not self._passable(read):
                    return False
                seen.add(read)
                stack.append(read)
        return True

    def _between(self, last: int, part: int) -> list[NodeResult] | None:
        """The values on all ways from what a part reads to a node; None if there is another way in."""
        arguments, reads = self._reads(part)
        between: list[NodeResult] = []
        stack = [last]
        while stack:
            for given in self.reading.nodes[stack.pop()].inputs:
                value: Value = self.reading.stored(given)
                if isinstance(value, Constant) or (isinstance(value, Argument) and value.position in arguments):
                    continue
                if not isinstance(value, NodeResult) or len(between) == _MOST:
                    return None
                states = {self.source.twin(name) for name in self.reading.states(value)}
                if value.node not in self.reading.data and value not in between and not reads & states:
                    between.append(value)
                    stack.append(value.node)
        return between

    def _reads(self, part: int) -> tuple[set[int], set[int]]:
        """Arguments, and twins of the parts, that a part reads, through such as are named nowhere or no work."""
        arguments: set[int] = set()
        reads: set[int] = set()
        stack, seen = [part], {part}
        while stack:
            for kind, name in self.source.call(stack.pop()).operands:
                if kind == "a":
                    arguments.add(int(name))
                elif kind == "p" and name not in seen and not self.source.constant[int(name)]:
                    read = int(name)
                    seen.add(read)
                    reads.add(self.source.twin(read))
                    if self._passable(read):
                        stack.append(read)
        return arguments, reads

    def _passable(self, part: int) -> bool:
        return self._unnamed(part) or self.source.parts[part].view or part in self.source.identity

    def _unnamed(self, part: int) -> bool:
        """Whether a part is named nowhere, although it is work."""
        known = part in self.source.parts and not self.source.constant[part]
        return known and self.source.twin(part) not in self.reading.named
