"""Whether each node of the final program computes what it is said to give, by its own code.

No label is taken from the lineage: the body of a node (`covan_mlir.provenance.bodies`) is evaluated on random operands
at random positions of its results, and so are, by torch, the source's operators between what the node is given and what
it is said to give. Both are functions of the same operands, in float64 and then in exact arithmetic modulo a prime
(`covan_mlir.checking.modular`); where they agree on random ones they are the same function, but for a chance that each
further trial makes smaller (Schwartz, Zippel).

What a result *is* follows from the front: the program's arguments are known, and a node's result is known when its body
agrees with a part that it is said to be, in an order of elements that is found here and believed from then on. A result
that is no part's value (a share of one, memory, a layout) is computed in place by those who read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from covan_mlir.checking.bits import read_as
from covan_mlir.checking.cones import Key
from covan_mlir.checking.draws import State
from covan_mlir.checking.matching import WORK, Matcher
from covan_mlir.checking.samples import agree, sampled
from covan_mlir.checking.sizes import has_read_numbers, has_symbols, is_empty
from covan_mlir.checking.source_values import RandomError, SourceValues, is_believed, is_sized_by_values
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.checking.tensors import UnevaluatedError, limited
from covan_mlir.errors import CovanError
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import JOINS, positions
from covan_mlir.provenance.model import LineageData
from covan_mlir.provenance.program_graph import Argument, NodeResult, ProgramGraph

ERRORS = (
    *(UnevaluatedError, CovanError, ArithmeticError, AttributeError, LookupError, MemoryError),
    *(RuntimeError, TypeError, ValueError),
)
"""Of code that is not known, of attached operators, and of such as no compiler writes: attributes that are missing,
values of another kind."""


_COMPARED = 256
"""Elements of what the program returns that are compared."""


class BodyCheck:
    """The check of one program.

    Args:
        performed: parts that each node is said to perform.

    Attributes:
        false: results that are not what they are said to be, with the parts.
        unread: nodes, or results of the program (-1, -2, ...), of which something is not known, and what.
        states: what results of nodes are.
    """

    def __init__(self, lineage: LineageData, graph: ProgramGraph, performed: Sequence[Iterable[int]]) -> None:
        self.lineage = lineage
        self.graph = graph
        self.performed = [frozenset(parts) for parts in performed]
        self.false: list[tuple[int, tuple[int, ...]]] = []
        self.unread: dict[int, str] = {}
        self.states: dict[Key, State] = {}
        self._untold: dict[Key, str] = {}
        """Why it is not known what some shares are; that may take more work than what is made of them."""
        self._bodies = lineage.bodies
        self._parts = lineage.parts
        self._views = SourceViews(lineage)
        self._matcher = Matcher(self._views, lineage.bodies, self.states)
        self._readers: dict[int, set[int]] = {}
        for index, node in enumerate(graph.nodes):
            for value in node.inputs:
                if isinstance(value, NodeResult):
                    self._readers.setdefault(value.node, set()).add(index)

    def run(self) -> None:
        """Fills in what is found."""
        shares: dict[Key, tuple[int, ...]] = {}
        for node in range(len(self.graph.nodes)):
            if (joined := self._joined(node)) is not None:
                self.states[node, 0] = State(("p", joined))  # what it is one of is asked later
                continue
            for result in range(len(self.graph.nodes[node].outputs)):
                said = self._said(node, result)
                if not said:
                    continue
                try:
                    state = self._matcher.state(node, result, said)
                except RandomError:
                    state = State(("p", said[0]))  # believed
                except ERRORS as error:
                    if any(self._shared(node, part) for part in said):  # who finishes it computes it in place
                        shares[node, result], self._untold[node, result] = said, told(error)
                        continue
                    self.unread.setdefault(node, told(error))
                    state = State(("p", said[0]), None, assumed=True)
                if state is None and not any(
                    self._shared(node, part) or self._sizes(node, part) or self._counts(node, part) for part in said
                ):
                    random = any(map(self._random, said))
                    if not random:
                        self._refuse(node, result, said)
                    state = State(("p", said[0]), None, assumed=not random)  # others are judged by what it should be
                if state is not None:
                    self.states[node, result] = state
                else:
                    shares[node, result] = said
        self._joins()
        self._results()
        self._judge(shares)

    def _joined(self, node: int) -> int | None:
        """The value of a branch or loop that a node is said to be, if it is one of control."""
        if self.graph.nodes[node].kind != "control":
            return None
        said = self.graph.nodes[node].all_states & self._parts.keys()
        return next((part for part in sorted(said) if self._parts[part].op in JOINS), None)

    def _joins(self) -> None:
        """Whether a value of a branch or loop is one of those that it is of in the source, each at its position.

        What goes round is assumed to be what the source carries; here what follows on it is held against that.
        """
        for index, node in enumerate(self.graph.nodes):
            part = self._joined(index)
            if part is None:
                continue
            for value, operand in zip(node.inputs, positions(self._parts[part]), strict=False):
                try:
                    if operand is not None and not self._told(value) and not self._returns(value, operand):
                        self.false.append((index, (part,)))
                except ERRORS as error:
                    self.unread.setdefault(index, told(error))

    def _told(self, value: Any) -> bool:
        """Whether it was said already that a value is not what it should be."""
        return bool(self.false) and isinstance(value, NodeResult) and self._assumed(value)

    def _said(self, node: int, result: int) -> tuple[int, ...]:
        """Parts that a result may be, those whose work it is first."""
        links = self.graph.nodes[node].outputs[result]
        if self._bodies.nodes[node].body is None and not self._bodies.nodes[node].missing:
            return ()  # a share of a kernel
        ordered = sorted(links, key=lambda link: link.how != "compute")
        return tuple(dict.fromkeys(part for link in ordered for part in link.ids if part in self._parts))

    def _judge(self, shares: Mapping[Key, tuple[int, ...]]) -> None:
        """A result that is none of the values that it is said to be is a share of one: who reads it finishes that, and
        gives a value that is known, or only its size, or again a share."""
        known = {node for node, _ in self.states}
        for (node, result), said in sorted(shares.items(), reverse=True):
            if any(
                worker in known or self._sizes(worker, part) or self._gives(worker, part) or self._counts(worker, part)
                for part in said
                for worker in (self._shared(node, part) | ({node} - known))
            ):
                known.add(node)
            elif (why := self._untold.get((node, result))) is not None:
                self.unread.setdefault(node, why)
            else:
                self._refuse(node, result, said)

    def _gives(self, node: int, part: int) -> bool:
        """Whether a node that finishes a share gives the part, though its result lost the name: that of what is written
        into memory for several."""
        for result in range(len(self.graph.nodes[node].outputs)):
            with suppress(*ERRORS):  # what is not known does not speak for it
                if self._matcher.state(node, result, (part,)) is not None:
                    return True
        return False

    def _counts(self, node: int, part: int) -> bool:
        """Whether a node gives the number that a size of a part is: of a part that nobody reads but for its sizes."""
        if not has_read_numbers(self._views.type_of(("p", part))):
            return False
        for result in range(len(self.graph.nodes[node].outputs)):
            with suppress(*ERRORS):  # what is not known does not speak for it
                if self._matcher.counts(node, result, part):
                    return True
        return False

    def _refuse(self, node: int, result: int, said: tuple[int, ...]) -> None:
        """A result is none of the values that it is said to be; or that is not known, if they depend on each other."""
        if (why := self._matcher.undecided.get((node, result))) is None:
            self.false.append((node, said))
        else:
            self.unread.setdefault(node, why)

    def _sizes(self, node: int, part: int) -> bool:
        """Whether a node gives the size of a part that is as large as its operands' values say: nobody reads it as a
        tensor. What the size is may have been told, by an assertion or by who reads the part."""
        returned = any(isinstance(value, NodeResult) and value.node == node for value in self.graph.results)
        sized = has_symbols(self._views.type_of(("p", part))) or is_sized_by_values(self._parts[part].op)
        return node not in self._readers and not returned and sized

    def _shared(self, node: int, part: int) -> set[int]:
        """Nodes that work on a part and read, directly or through others that do or that only move it, a result."""
        twin = self._parts[part].twin
        sharers: set[int] = set()
        stack, seen = list(self._readers.get(node, ())), {node}
        while stack:
            reader = stack.pop()
            if reader in seen:
                continue
            seen.add(reader)
            work = (self.performed[reader] | self.graph.nodes[reader].all_states) & self._parts.keys()
            shares = any(self._parts[other].twin == twin or self._shapes(part, other) for other in work)
            if shares:
                sharers.add(reader)
            if shares or self.graph.nodes[reader].hands_on_pieces:
                stack += self._readers.get(reader, ())
        return sharers

    def _shapes(self, part: int, other: int) -> bool:
        """Whether a part only says how another one reads what it does."""
        twins = {self._parts[read].twin for read in self._parts[other].inputs}
        return self._parts[part].view and self._parts[part].twin in twins

    def _results(self) -> None:
        for number, (value, operand) in enumerate(zip(self.graph.results, self.lineage.results, strict=False)):
            try:
                if self._told(value):
                    continue
                if not self._returns(value, operand) and not (operand[0] == "p" and self._random(int(operand[1]))):
                    self.false.append((-1 - number, (int(operand[1]),) if operand[0] == "p" else ()))
            except RandomError:
                continue  # believed
            except ERRORS as error:
                self.unread.setdefault(-1 - number, told(error))

    def _random(self, part: int) -> bool:
        """Whether a part draws numbers at random, or is the user's own, or takes a result of one that is."""
        known = self._parts[part]
        return is_believed(known.op) or (known.op == "operator.getitem" and self._random(known.inputs[0]))

    def _assumed(self, value: NodeResult) -> bool:
        state = self.states.get((value.node, value.result))
        return state is not None and state.assumed

    def _returns(self, value: Any, operand: Operand) -> bool:
        """Whether a result of the program is the value that the source returns there, in its own order."""
        if operand[0] == "p" and is_empty(self._views.type_of(operand)):
            return True
        match value:
            case NodeResult(node, result):
                state = self.states.get((node, result))
                if state is None:
                    matched = self._matcher.state(node, result, (int(operand[1]),)) if operand[0] == "p" else None
                    return matched is not None and self._same_order(matched, operand)
                if state.assumed:
                    raise UnevaluatedError("what is returned is not known")
                return self._same_order(state, operand)
            case Argument(position):
                return self._same_order(State(("a", position)), operand)
        return True  # a constant: nothing is computed

    def _same_order(self, state: State, operand: Operand) -> bool:
        wanted = State(*self._views.based(operand, None))
        source = self._views.drawn("normal", 7)
        first, second = source.twin(wanted.operand), source.twin(state.operand)
        if first == second and (wanted.layout is None) == (state.layout is None):
            return wanted.layout is None or state.layout is None or wanted.layout.key == state.layout.key
        source.draw(state.operand, self._views.type_of(state.operand))
        try:
            # The first value that it is may be another's that has the same: of both as arguments make them.
            return self._equal(state, operand, source) or self._equal(state, operand, self._views.drawn("normal", 7))
        except UnevaluatedError:  # an index along an axis of one element, perhaps
            return self._equal(state, operand, self._views.drawn("normal", 7, range(1)))

    def _equal(self, state: State, operand: Operand, source: SourceValues) -> bool:
        with limited(WORK):
            # What is returned may be bits of a value that the program has as elements of another type.
            want, got = source.tensor(operand), read_as(source.tensor(state.operand), self._views.type_of(operand))
            return got.size == want.size and agree(*sampled(want, got, state.layout, count=_COMPARED))


def told(error: Exception) -> str:
    """What could not be evaluated, in words."""
    if isinstance(error, RecursionError):
        return "it is computed by a longer chain of operations than is followed"
    return str(error) if isinstance(error, UnevaluatedError) else f"code of an unknown form: {error!r}"
