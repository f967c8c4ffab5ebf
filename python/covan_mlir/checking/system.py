"""A compiled program and its source as coalgebras that can be compared.

Both are walked from results to what they are computed from. A state of the *source* is a value; its transitions are the
executions of the part that gives it, one per operand. A state of the *program* is a value that a node (a dispatch, or
an operation in an earlier phase) gives, or a moment inside a node: a value that the node is claimed to compute on its
way. Claims say which moments there are; the program's own data flow says which values can be read there. What a claimed
part reads and neither the node computes before, nor is given, is *lost*: a state that can do nothing.

This is the refinement of a generated action into the primitive ones it stands for, with the inner states shared as the
source shares them: an action state per part and node instead of one per path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from covan_mlir.prov import TAU, Coalgebra
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.model import Part
from covan_mlir.provenance.relation import Source, hands_on_pieces, states

State = tuple[Any, ...]
"""``(kind, ...)``: of either system; see `ProgramSystem`."""
Rows = dict[int, tuple[list[Operand], str]]
Aside = tuple[str, int, int, int]
"""``("aside", node, result, part)``: a value that the program computes and does not need, and what it is said to be."""
_START: State = ("start",)
_END: State = ("end",)


@dataclass(frozen=True)
class Claim:
    """What one node is said to be in the source graph.

    Attributes:
        performed: parts that it computes, in the order in which it does.
        viewed: parts that only say how it indexes.
        folded: parts whose constant values it reads.
    """

    performed: tuple[int, ...] = ()
    viewed: frozenset[int] = frozenset()
    folded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Loss:
    """A claimed part reads a value that is not there.

    Attributes:
        node: position in the graph; -1: among the program's results.
        part: the part that reads, or -1.
        operand: what it reads.
        late: the node computes it, but later.
    """

    node: int
    part: int
    operand: Operand
    late: bool = False


class SourceSystem:
    """The parts of a model as a coalgebra.

    Args:
        results: what the program returns, in order.
        identity: of parts that give back one of their operands, the position of that operand.
        constant: the label of a part without operands, when it is known by its value.
        rows: what systems of the same parts have found out already (`row`).
    """

    def __init__(
        self,
        parts: Mapping[int, Part],
        results: Sequence[Operand],
        identity: Mapping[int, int] | None = None,
        constant: Callable[[int], str | None] = lambda part: None,
        rows: Rows | None = None,
    ) -> None:
        self.parts = parts
        self.results = tuple(results)
        self.identity = identity or {}
        self.source = Source(parts)
        self._constant = constant
        self._rows: Rows = {} if rows is None else rows

    def row(self, part: int) -> tuple[list[Operand], str]:
        """(operands, label) of a part; systems of the same parts may share them."""
        if part not in self._rows:
            it = self.parts[part]
            operands = arguments.operands(it.args)
            known = None if operands else self._constant(part)
            self._rows[part] = (operands, known or f"{it.op}{arguments.signature(it.args)}")
        return self._rows[part]

    def steps(self, part: int, read: Callable[[Operand], State]) -> list[tuple[Any, State]]:
        """The transitions of a part's value, its operands given by ``read``."""
        operands, label = self.row(part)
        if part in self.identity:
            return [(TAU, read(operands[self.identity[part]]))]
        if not operands:
            return [(label, _END)]
        return [((label, index), read(operand)) for index, operand in enumerate(operands)]

    @cached_property
    def live(self) -> frozenset[int]:
        """Parts that the results need."""
        found: set[int] = set()
        stack = [name for kind, name in self.results if kind == "p"]
        while stack:
            part = stack.pop()
            if isinstance(part, int) and part not in found:
                found.add(part)
                stack += [name for kind, name in self.row(part)[0] if kind == "p"]
        return frozenset(found)

    def coalgebra(self, aside: Iterable[Aside] = (), among: Iterable[int] = ()) -> tuple[Coalgebra, dict[State, int]]:
        """The system, and the number of each state; of what the results, ``aside`` and ``among`` need."""
        triples: list[tuple[State, Any, State]] = []
        triples += [(_START, ("result", index), result) for index, result in enumerate(self.results)]
        triples += [(_START, label, ("p", label[-1])) for label in aside]
        seen: set[State] = set()
        stack: list[State] = [*(after for _, _, after in triples), *(("p", part) for part in among)]
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            if state[0] == "p":
                steps = self.steps(state[1], lambda operand: operand)
                stack += [after for _, after in steps]
                triples += [(state, label, after) for label, after in steps]
            elif state != _END:
                triples.append((state, state, _END))
        return _coalgebra(triples, self._name)

    def _name(self, state: State) -> str:
        return self.operand_name(state) if state[0] in ("p", "a", "w") else str(state[0])

    def operand_name(self, operand: Operand) -> str:
        """``softmax_1``, ``argument 0``, ``weight fc.weight``."""
        kind, name = operand
        if kind == "p":
            return self.parts[int(name)].name if name in self.parts else f"part {name}"
        return f"{'argument' if kind == 'a' else 'weight'} {name}"


@dataclass
class ProgramSystem:
    """One observed phase as a coalgebra, by what its nodes are claimed to perform.

    Args:
        graph: see `covan_mlir.lowering.dispatch_graph`.
        claims: one per node of the graph.

    Attributes:
        losses: values that claimed parts read and that are not there.
        open: nodes whose inputs are not all known: what they read cannot be checked.
        aside: values that the program computes and does not need.
    """

    source: SourceSystem
    graph: Mapping[str, Any]
    claims: Sequence[Claim]
    losses: list[Loss] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    aside: list[Aside] = field(default_factory=list)
    _given: dict[int, _Given] = field(default_factory=dict)
    _order: dict[int, dict[int, int]] = field(default_factory=dict)
    _performed: dict[int, frozenset[int]] = field(default_factory=dict)
    _moments: set[tuple[int, int]] = field(default_factory=set)
    _entered: set[int] = field(default_factory=set)
    _shares: set[tuple[int, int]] = field(default_factory=set)
    _known_free: dict[tuple[int, int], bool] = field(default_factory=dict)
    _stack: list[tuple[int, int]] = field(default_factory=list)
    _triples: list[tuple[State, Any, State]] = field(default_factory=list)
    _values: set[State] = field(default_factory=set)

    def coalgebra(self, *, aside: bool = False) -> tuple[Coalgebra, dict[State, int]]:
        """The system, and the number of each state; ``aside``: with values that the results do not need."""
        for index, result in enumerate(self.source.results):
            value = self.graph["results"][index] if index < len(self.graph["results"]) else None
            node = -1 - index
            self._given[node] = _Given()
            if value is not None:
                self._given[node].add(self, value)
                if self._given[node].open:
                    self.open.add(node)
            self._triples.append((_START, ("result", index), self._read(node, -1, result)))
        self._settle()
        for node in reversed(range(len(self.graph["nodes"]))) if aside else ():
            self._aside(node)
        return _coalgebra(self._triples, self._name)

    def _settle(self) -> None:
        while self._stack:
            self._moment(*self._stack.pop())

    def _aside(self, node: int) -> None:
        """Work that the results do not need is what it is said to be all the same."""
        row = self.graph["nodes"][node]
        if hands_on_pieces(row) or node in self._entered:
            return
        for number, chain in enumerate(row["outputs"]):
            for part in sorted(states(chain) & self.source.parts.keys()):
                if self._is_share(node, part):  # for a side effect, such as the state of random numbers
                    self._shares.add((node, part))
                    continue
                label: Aside = ("aside", node, number, part)
                self.aside.append(label)
                self._triples.append((_START, label, self._value((node, number), part)))
        self._settle()

    def reached(self, node: int, part: int) -> bool:
        """Whether a claimed part lies on the way from the node's results to what it is given. Of twins that the
        program names at this place, or that are no work, any may."""
        if (node, part) in self._moments or (node, part) in self._shares:
            return True
        alike = part in self._evidence(node) or part not in self._performed.get(node, ())
        return alike and self.source.source.twin(part) in self._reached.get(node, ())

    @cached_property
    def _reached(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for node, part in self._moments | self._shares:
            found.setdefault(node, set()).add(self.source.source.twin(part))
        return found

    @cached_property
    def read_nodes(self) -> frozenset[int]:
        """Nodes whose results are needed."""
        return frozenset(self._reached)

    def given(self, node: int) -> _Given:
        """What a node is given."""
        if node not in self._given:
            found = self._given[node] = _Given()
            for value in self.graph["nodes"][node]["inputs"]:
                found.add(self, value)
            if found.open:
                self.open.add(node)
        return self._given[node]

    def _position(self, node: int) -> dict[int, int]:
        if node not in self._order:
            claim = self.claims[node] if node >= 0 else Claim()
            order = {part: index for index, part in enumerate(claim.performed)}
            self._performed[node] = frozenset(order)
            for part in sorted({*claim.viewed, *claim.folded} - order.keys()):  # as soon as what it reads is there
                read = [name for kind, name in self.source.row(part)[0] if kind == "p"]
                order[part] = max((order.get(int(name), -1) for name in read), default=-1)
            self._order[node] = order
        return self._order[node]

    def _evidence(self, node: int) -> Sequence[int]:
        return self.graph["nodes"][node]["evidence"] if node >= 0 else ()

    def _moment(self, node: int, part: int) -> None:
        """The transitions of a part's value inside a node. A part that was split is begun elsewhere and finished here:
        what it reads may have been read there."""
        sharers = [node, *self._sharers(node, part)]

        def read(operand: Operand) -> State:
            where = {n: self._find(n, part, operand) for n in sharers}
            found = [n for n in sharers if where[n] not in ("lost", "late", "assumed")]
            assumed = [n for n in sharers if where[n] == "assumed"]
            return self._read((found or assumed or [node])[0], part, operand)

        state: State = ("moment", node, part)
        self._triples += [(state, label, after) for label, after in self.source.steps(part, read)]
        self._shares.update((sharer, part) for sharer in sharers[1:])
        self._entered.update(sharers)
        # What a share of the work reads, or an operand that changes nothing, leads nowhere, but is read all the same.
        for sharer in sharers if part in self.source.identity else sharers[1:]:
            for operand in self.source.row(part)[0]:
                if self._find(sharer, part, operand) not in ("lost", "late", "assumed"):
                    self._read(sharer, part, operand)

    def _is_share(self, node: int, part: int) -> bool:
        """Whether a node does only some of the work on a part that others are known to do as well."""
        rest = any(part in row["evidence"] for n, row in enumerate(self.graph["nodes"]) if n != node)
        return rest and any(self._find(node, part, operand) == "lost" for operand in self.source.row(part)[0])

    def _sharers(self, node: int, part: int) -> list[int]:
        """Other nodes that did some of the work on a part that this node finishes."""
        found: dict[int, None] = {}
        stack = [node]
        while stack:
            for giver, _ in self.given(stack.pop()).givers(self.source.source.twin(part)):
                if giver not in found and giver != node and part in self._position(giver):
                    found[giver] = None
                    stack.append(giver)
        return list(found)

    def _find(self, node: int, part: int, operand: Operand) -> str:
        """Where ``part``, performed by ``node``, finds an operand: ``leaf``, ``given`` or ``inside``; ``late`` if the
        node computes it only afterwards; ``assumed`` if not all that the node is given is known; else ``lost``."""
        kind, name = operand
        given = self.given(node)
        missing = "assumed" if node in self.open else "lost"
        if kind != "p" or not isinstance(name, int):
            return "leaf" if kind == "w" or name in given.arguments else missing
        position = self._position(node)
        here = position[part] if part in self._performed[node] else len(position)
        if name in position and position[name] >= here:
            return "late"
        if given.givers(self.source.source.twin(name)) and not (name in position and name in self._evidence(node)):
            return "given"
        return "inside" if name in position or self._free(node, name) else missing

    def _read(self, node: int, part: int, operand: Operand) -> State:
        """The state in which ``part``, performed by ``node``, finds an operand."""
        name = operand[1]
        match self._find(node, part, operand):
            case "leaf":
                return self._leaf(operand)
            case "given":
                first, *others = self.given(node).givers(self.source.source.twin(int(name)))
                if len(self.source.parts[int(name)].types) > 1:
                    for giver in others:  # each may be another of its results
                        self._value(giver, int(name))
                return self._value(first, int(name))
            case "inside":
                return self._enter(node, int(name))
            case "assumed":
                return self._assumed(operand)
            case found:
                self.losses.append(Loss(node, part, operand, found == "late"))
                return ("lost", node, part, operand)

    def _free(self, node: int, part: int) -> bool:
        """Whether a node may involve a part without claiming it: a view, or what gives back its input, is how it
        indexes what it has; a constant is data."""
        if (node, part) not in self._known_free:
            indexing = self.source.parts[part].view or part in self.source.identity
            self._known_free[node, part] = self.source.source.constant[part] or (
                indexing and all(self._find(node, part, o) not in ("lost", "late") for o in self.source.row(part)[0])
            )
        return self._known_free[node, part]

    def _value(self, giver: tuple[int, int], part: int) -> State:
        """The value that a node gives, as the state of a part (or of its twin)."""
        node, number = giver
        state: State = ("value", node, number, part)
        if state not in self._values:
            self._values.add(state)
            inside = self._inside(node, part)
            after = self._enter(node, inside) if inside is not None else self._read(node, -1, ("p", part))
            self._triples.append((state, TAU, after))
        return state

    def _inside(self, node: int, part: int) -> int | None:
        """The part, or its twin, among what the node is claimed to do."""
        position = self._position(node)
        if part in position:
            return part
        twin = self.source.source.twin(part)
        return next((p for p in position if self.source.source.twin(p) == twin), None)

    def _enter(self, node: int, part: int) -> State:
        if (node, part) not in self._moments:
            self._moments.add((node, part))
            self._entered.add(node)
            self._stack.append((node, part))
        return ("moment", node, part)

    def _leaf(self, operand: Operand) -> State:
        if operand not in self._values:
            self._values.add(operand)
            self._triples.append((operand, operand, _END))
        return operand

    def _assumed(self, operand: Operand) -> State:
        kind, name = operand
        if kind != "p":
            return self._leaf(operand)
        # As the source has it.
        state: State = ("assumed", name)
        stack = [] if state in self._values else [int(name)]
        while stack:
            part = stack.pop()
            here: State = ("assumed", part)
            if here in self._values:
                continue
            self._values.add(here)
            for label, after in self.source.steps(part, lambda o: o):
                if after[0] == "p":
                    stack.append(after[1])
                    after = ("assumed", after[1])
                elif after != _END:
                    after = self._leaf(after)
                self._triples.append((here, label, after))
        return state

    def _name(self, state: State) -> str:
        source = self.source
        match state:
            case ("value", node, _, part):
                return f"{source.operand_name(('p', part))} as node {node} gives it"
            case ("moment", node, part):
                where = f"in node {node}" if node >= 0 else "among the results"
                return f"{source.operand_name(('p', part))} {where}"
            case ("lost", node, _, operand):
                return f"{source.operand_name(operand)}, which node {node} does not have"
            case ("assumed", part):
                return f"{source.operand_name(('p', part))}, assumed"
            case ("a" | "w", _):
                return source.operand_name(state)
        return str(state[0])


@dataclass
class _Given:
    """The values that a node is given: which source states they may stand for."""

    states: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    arguments: set[int] = field(default_factory=set)
    open: bool = False
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def givers(self, twin: int) -> list[tuple[int, int]]:
        """(node, number of its result) of the values that may be this state."""
        return self.states.get(twin, [])

    def add(self, system: ProgramSystem, value: Sequence[Any]) -> None:
        stack = [value]
        while stack:
            value = stack.pop()
            match value[0]:
                case "node":
                    self._add_node(system, value[1], value[2], stack)
                case "arg":
                    self.arguments.add(value[1])
                case "global":
                    stored = system.graph["globals"].get(value[1], {}).get("value")
                    if stored is not None:
                        stack.append(stored)
                case "unknown":
                    self.open = True

    def _add_node(self, system: ProgramSystem, node: int, number: int, stack: list[Sequence[Any]]) -> None:
        if (node, number) in self._seen:
            return
        self._seen.add((node, number))
        row = system.graph["nodes"][node]
        chain = row["outputs"][number]
        meant = set(states(chain))
        if any(how == "input" for how, _ in chain):  # it hands on what it is given, or a piece of it
            meant |= set() if hands_on_pieces(row) else set(row["evidence"])
            stack += row["inputs"]
        for part in meant:
            if part in system.source.parts:
                self.states.setdefault(system.source.source.twin(part), []).append((node, number))


def _coalgebra(
    triples: list[tuple[State, Any, State]], name: Callable[[State], str]
) -> tuple[Coalgebra, dict[State, int]]:
    number: dict[State, int] = {_START: 0, _END: 1}
    for before, _, after in triples:
        number.setdefault(before, len(number))
        number.setdefault(after, len(number))
    table: dict[Any, int] = {}
    rows = [(number[b], table.setdefault(label, len(table)), number[a]) for b, label, a in triples]
    order = list(number)
    system = Coalgebra.from_arrays(
        len(number),
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        labels=tuple(table),
        terminating=[1],
        initial=0,
        naming=lambda state: name(order[state]),
    )
    return system, number
