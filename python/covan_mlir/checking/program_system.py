"""A compiled program as a coalgebra that can be compared with its source's (`covan_mlir.checking.source_system`).

Both are walked from results to what they are computed from. A state of the *source* is a value; its transitions are the
executions of the part that gives it, one per operand. A state of the *program* is a value that a node (a dispatch, or
an operation in an earlier phase) gives, or a moment inside a node: a value that the node is claimed to compute on its
way. Claims say which moments there are; the program's own data flow says which values can be read there. What a claimed
part reads and neither the node computes before, nor is given, is *lost*: a state that can do nothing.

This is the refinement of a generated action into the primitive ones it stands for, with the inner states shared as the
source shares them: an action state per part and node instead of one per path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from covan_mlir.checking.given import Given
from covan_mlir.checking.reading import Reading
from covan_mlir.checking.source_system import END, START, Aside, SourceSystem, State, Transition, numbered
from covan_mlir.prov import TAU, Coalgebra
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.program_graph import NodeResult

_SOFTMAX = "linalg.softmax"
_PAD, _PADDING = "tensor.pad", "aten.constant_pad_nd.default"
_MISSING = frozenset({"lost", "late", "assumed"})


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


@dataclass
class ProgramSystem:
    """One observed phase as a coalgebra, by what its nodes are claimed to perform.

    Args:
        claims: one per node of the graph; None where nothing is said: what is computed there is what its location
            names, and what follows from what it is given.

    Attributes:
        losses: values that claimed parts read and that are not there.
        open: nodes whose inputs are not all known: what they read cannot be checked.
        aside: values that the program computes and does not need.
        unclaimed: pairs (node, part) where a node gives a part's value and is claimed to perform its twins only.
    """

    source: SourceSystem
    reading: Reading
    claims: Sequence[Claim | None]
    losses: list[Loss] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    aside: list[Aside] = field(default_factory=list)
    unclaimed: set[tuple[int, int]] = field(default_factory=set)
    _given: dict[int, Given] = field(default_factory=dict)
    _order: dict[int, dict[int, int]] = field(default_factory=dict)
    _performed: dict[int, frozenset[int]] = field(default_factory=dict)
    _moments: set[tuple[int, int]] = field(default_factory=set)
    _entered: set[int] = field(default_factory=set)
    _shares: set[tuple[int, int]] = field(default_factory=set)
    _needed: dict[int, frozenset[int]] = field(default_factory=dict)
    _known_free: dict[tuple[int, int], bool] = field(default_factory=dict)
    _known_following: dict[tuple[int, int], bool] = field(default_factory=dict)
    _stack: list[tuple[int, int]] = field(default_factory=list)
    _transitions: list[Transition] = field(default_factory=list)
    _values: set[State] = field(default_factory=set)
    _read_results: set[tuple[int, int]] = field(default_factory=set)

    def coalgebra(self) -> Coalgebra:
        """The system, as far as it was walked."""
        return numbered(self._transitions, self._name)[0]

    def walk(self, *, aside: bool = False) -> None:
        """Walk from the results to what they are computed from; ``aside``: and from values that they do not need."""
        for index, result in enumerate(self.source.results):
            value = self.reading.graph.results[index] if index < len(self.reading.graph.results) else None
            node = -1 - index
            self._given[node] = Given(self.reading, self.source)
            if value is not None:
                self._given[node].add(value)
                if self._given[node].open:
                    self.open.add(node)
            self._transitions.append((START, ("result", index), self._read(node, -1, result)))
        self._settle()
        for node in reversed(range(len(self.reading.nodes))) if aside else ():
            self._aside(node)

    def _settle(self) -> None:
        while self._stack:
            self._moment(*self._stack.pop())

    def _aside(self, node: int) -> None:
        """Work that the results do not need is what it is said to be all the same."""
        aside = self.reading.nodes[node]
        if aside.hands_on_pieces:
            return
        entered = node in self._entered
        for result in range(len(aside.outputs)):
            if entered and (len(aside.outputs) < 2 or (node, result) in self._read_results):
                self._begun(node, result)
                continue
            for part in sorted(self.reading.states(NodeResult(node, result))):
                if self._is_share(node, part):  # for a side effect, such as the state of random numbers
                    self._shares.add((node, part))
                    continue
                label: Aside = ("aside", node, result, part)
                self.aside.append(label)
                self._transitions.append((START, label, self._value(NodeResult(node, result), part)))
        self._settle()

    def _begun(self, node: int, result: int) -> None:
        """What the results need may be some of the work on a part as well that only work aside goes on with."""
        for part in self.reading.states(NodeResult(node, result)):
            readers = (reader for reader, shared in self._shares if shared == part)
            if any(giver.node == node for reader in readers for giver in self.reading.givers(reader)):
                self._shares.add((node, part))
                for operand in self.source.call(part).operands:  # is read all the same
                    if self._find(node, part, operand) not in _MISSING:
                        self._read(node, part, operand)

    def reached(self, node: int, part: int) -> bool:
        """Whether a claimed part lies on the way from the node's results to what it is given. Of twins that are no
        work, or of which only the size is asked for, any may; of others, those that are read, where it is known what
        is."""
        if (node, part) in self._moments or (node, part) in self._shares:
            return True
        source = self.source
        no_work = source.parts[part].view or source.constant[part] or part in source.identity
        free = part not in self._performed.get(node, ()) if no_work else part not in source.needed
        alike = bool(self.open) or free
        return (alike and self.source.twin(part) in self._reached.get(node, ())) or self._serves(node, part)

    def performs(self, node: int, part: int) -> bool:
        """Whether a part that a node's location names lies between what it is given and what it gives."""
        if self.source.parts[part].view and self.reading.nodes[node].hands_on_pieces:
            return False
        return (node, part) in self._moments or (node, part) in self._shares or self._serves(node, part)

    def left_out(self, node: int) -> set[int]:
        """What lies between a node's states and is not claimed: views and constants, which any node may involve."""
        claim = self.claims[node] or Claim()
        claimed = {self.source.twin(part) for part in (*claim.performed, *claim.viewed, *claim.folded)}
        return {part for part in self._entered_parts.get(node, ()) if self.source.twin(part) not in claimed}

    def _serves(self, node: int, part: int) -> bool:
        """Whether a node gives data to others that do the part's work, or whose work reads the part as a constant."""
        reading, source = self.reading, self.source
        of_readers = reading.readers.get(node, frozenset()) if node in reading.data else frozenset()
        work = {p for reader in of_readers for p in self._reached_parts.get(reader, ())}
        if not source.independent[part]:
            return part in work
        if node not in self._needed:
            self._needed[node] = frozenset(map(source.twin, source.constants_behind(work)))
        return source.twin(part) in self._needed[node]

    @cached_property
    def _reached_parts(self) -> dict[int, set[int]]:
        """What each node performs on the way to the results, or gives after others have done some of the work."""
        parts: dict[int, set[int]] = {}
        for node, part in self._moments | self._shares:
            given = node >= 0 and part in self.reading.all_states(node) and not self.source.parts[part].view
            if given or part in self._performed.get(node, ()):
                parts.setdefault(node, set()).add(part)
        return parts

    @cached_property
    def _parts_reached(self) -> dict[int, set[int]]:
        reached: dict[int, set[int]] = {}
        for node, part in self._moments | self._shares:
            reached.setdefault(node, set()).add(part)
        return reached

    @cached_property
    def _entered_parts(self) -> dict[int, set[int]]:
        entered: dict[int, set[int]] = {}
        for node, part in self._moments:
            entered.setdefault(node, set()).add(part)
        return entered

    @cached_property
    def _reached(self) -> dict[int, set[int]]:
        return {node: set(map(self.source.twin, parts)) for node, parts in self._parts_reached.items()}

    @cached_property
    def read_nodes(self) -> frozenset[int]:
        """Nodes whose results are needed."""
        return frozenset(self._reached)

    def used(self, node: int) -> set[int]:
        """The twins of the parts that a node performs on the way to the results, and of what these read."""
        used: set[int] = set()
        for part in self._parts_reached.get(node, ()):
            used.add(self.source.twin(part))
            used |= {self.source.twin(int(name)) for kind, name in self.source.call(part).operands if kind == "p"}
        return used

    def given(self, node: int) -> Given:
        """What a node is given."""
        if node not in self._given:
            given = self._given[node] = Given(self.reading, self.source)
            for value in self.reading.nodes[node].inputs:
                given.add(value)
            if given.open:
                self.open.add(node)
        return self._given[node]

    def _position(self, node: int) -> dict[int, int]:
        if node not in self._order:
            claim = (self.claims[node] if node >= 0 else None) or Claim()
            order = {part: index for index, part in enumerate(claim.performed)}
            self._performed[node] = frozenset(order)
            for part in sorted({*claim.viewed, *claim.folded} - order.keys()):  # as soon as what it reads is there
                read = [name for kind, name in self.source.call(part).operands if kind == "p"]
                order[part] = max((order.get(int(name), -1) for name in read), default=-1)
            self._order[node] = order
        return self._order[node]

    def _moment(self, node: int, part: int) -> None:
        """The transitions of a part's value inside a node. A part that was split is begun elsewhere and finished here:
        what it reads may have been read there."""
        sharers = [node, *self._sharers(node, part)]

        def read(operand: Operand) -> State:
            where = {n: self._find(n, part, operand) for n in sharers}
            there = [n for n in sharers if where[n] not in _MISSING]
            assumed = [n for n in sharers if where[n] == "assumed"]
            return self._read((there or assumed or [node])[0], part, operand)

        state: State = ("moment", node, part)
        self._transitions += [(state, label, after) for label, after in self.source.steps(part, read)]
        self._shares.update((sharer, part) for sharer in sharers[1:])
        self._entered.update(sharers)
        # What a share of the work reads, or an operand that changes nothing, leads nowhere, but is read all the same.
        for sharer in sharers if part in self.source.identity else sharers[1:]:
            for operand in self.source.call(part).operands:
                if self._find(sharer, part, operand) not in _MISSING and not self._is_apart(sharer, operand):
                    self._read(sharer, part, operand)

    def _is_apart(self, node: int, operand: Operand) -> bool:
        """Whether data has nothing to do with a constant operand: indices are not the numbers that are put there."""
        name = operand[1]
        if operand[0] != "p" or node not in self.reading.data or not self.source.constant[int(name)]:
            return False
        values = {self.source.twin(int(part)) for kind, part in (operand, *self.source.needs(int(name))) if kind == "p"}
        return name not in self._position(node) and not any(map(self.given(node).givers, values))

    def _is_share(self, node: int, part: int) -> bool:
        """Whether a node does only some of the work on a part that others are known to do as well."""
        rest = any(part in self.reading.evidence(n) for n in range(len(self.reading.nodes)) if n != node)
        return rest and any(self._find(node, part, operand) == "lost" for operand in self.source.call(part).operands)

    def _sharers(self, node: int, part: int) -> list[int]:
        """Other nodes that did some of the work on a part that this node finishes."""
        sharers: dict[int, None] = {}
        stack = [node]
        while stack:
            for value in self.given(stack.pop()).givers(self.source.twin(part)):
                giver = value.node
                if giver not in sharers and giver != node and self._works_on(giver, part):
                    sharers[giver] = None
                    stack.append(giver)
        return list(sharers)

    def _finished(self, givers: list[NodeResult], part: int) -> list[NodeResult]:
        """Those that may give a part, first those that nobody of them goes on with."""
        if len(givers) == 1:
            return givers
        begun = {sharer for giver in givers for sharer in self._sharers(giver.node, part)}
        return sorted(givers, key=lambda giver: giver.node in begun)

    def _works_on(self, node: int, part: int) -> bool:
        """Whether a node is claimed to do work on a part or, if nothing is claimed of it, names it or a twin."""
        if not self._says_nothing(node):
            return part in self._position(node)
        return self.source.twin(part) in map(self.source.twin, self.reading.evidence(node))

    def _find(self, node: int, part: int, operand: Operand) -> str:
        """Where ``part``, performed by ``node``, finds an operand: ``leaf``, ``given`` or ``inside``; ``late`` if the
        node computes it only afterwards; ``assumed`` if not all that the node is given is known; else ``lost``."""
        kind, name = operand
        given = self.given(node)
        missing = "assumed" if node in self.open else "lost"
        if kind != "p" or not isinstance(name, int):
            return "leaf" if kind == "w" or name in given.arguments else missing
        if self._says_nothing(node):
            named = name in self.reading.evidence(node)
            if given.givers(self.source.twin(name)) and not named:
                return "given"
            return "inside" if named or self._follows(node, name) else missing
        position = self._position(node)
        here = position[part] if part in self._performed[node] else len(position)
        if name in position and position[name] >= here:
            return "late"
        if given.givers(self.source.twin(name)) and not (name in position and self._computes(node, name)):
            return "given"
        return "inside" if name in position or self._free(node, name) else missing

    def _computes(self, node: int, part: int) -> bool:
        """Whether a node's locations name a part or one of its twins: of what compilers merge they name one."""
        return self.source.twin(part) in map(self.source.twin, self.reading.evidence(node))

    def _read(self, node: int, part: int, operand: Operand) -> State:
        """The state in which ``part``, performed by ``node``, finds an operand."""
        name = operand[1]
        match self._find(node, part, operand):
            case "leaf":
                return self._leaf(operand)
            case "given":
                first, *others = self._finished(self.given(node).givers(self.source.twin(int(name))), int(name))
                if len(self.source.parts[int(name)].types) > 1:
                    for giver in others:  # each may be another of its results
                        self._value(giver, int(name))
                return self._value(first, int(name))
            case "inside":
                return self._enter(node, int(name))
            case "assumed":
                return self._assumed(operand)
            case where:
                self.losses.append(Loss(node, part, operand, where == "late"))
                return ("lost", node, part, operand)

    def _says_nothing(self, node: int) -> bool:
        """Whether nothing is claimed of a node."""
        return node >= 0 and self.claims[node] is None

    def _follows(self, node: int, part: int) -> bool:
        """Whether a part that leaves no name in a node follows from what the node is given and what is named there."""
        given, evidence = self.given(node), self.reading.evidence(node)
        stack = [part] if self._takes_in(node, part) or self._passable(part) else []
        while stack:
            asked = stack[-1]
            if (node, asked) in self._known_following:
                stack.pop()
                continue
            found, waiting = True, []
            for kind, name in self.source.needs(asked):
                if kind == "a":
                    found &= name in given.arguments
                elif kind == "p":
                    read = int(name)
                    if self.source.constant[read] or read in evidence or given.givers(self.source.twin(read)):
                        continue
                    if not self._takes_in(node, read) and not self._passable(read):
                        found = False
                    elif (node, read) in self._known_following:
                        found &= self._known_following[node, read]
                    else:
                        waiting.append(read)
            if found and waiting:
                stack += waiting
                continue
            stack.pop()
            self._known_following[node, asked] = found
        return self._known_following.get((node, part), False)

    def _takes_in(self, node: int, part: int) -> bool:
        """Whether a node's operation is made of several, of which it has one's name: others, such as this part, may
        still be there for somebody else."""
        op = self.reading.nodes[node].op
        return op == _SOFTMAX or (op == _PAD and self.source.parts[part].op == _PADDING)

    def _passable(self, part: int) -> bool:
        """Whether a part may be done anywhere unnoticed: nothing is named after it, or it is no work."""
        source = self.source
        no_work = source.parts[part].view or source.constant[part] or part in source.identity
        return no_work or part not in self.reading.owned

    def _free(self, node: int, part: int) -> bool:
        """Whether a node may involve a part without claiming it: a view, or what gives back its input, is how it
        indexes what it has; a constant is data."""
        if (node, part) not in self._known_free:
            indexing = self.source.parts[part].view or part in self.source.identity
            self._known_free[node, part] = self.source.constant[part] or (
                indexing and all(self._find(node, part, o) not in ("lost", "late") for o in self.source.needs(part))
            )
        return self._known_free[node, part]

    def _value(self, value: NodeResult, part: int) -> State:
        """The value that a node gives, as the state of a part (or of its twin)."""
        node = value.node
        state: State = ("value", node, value.result, part)
        if state not in self._values:
            self._values.add(state)
            self._read_results.add((node, value.result))
            inside = self._inside(value, part)
            performed = () if self._says_nothing(node) else self._performed[node]
            if inside in performed and part not in performed:
                self.unclaimed.add((node, part))
            after = self._enter(node, inside) if inside is not None else self._read(node, -1, ("p", part))
            self._transitions.append((state, TAU, after))
        return state

    def _inside(self, value: NodeResult, part: int) -> int | None:
        """The part, or its twin, among what the node that gives a value is claimed to do."""
        node = value.node
        if self._says_nothing(node):
            return self._named(value, part)
        position = self._position(node)
        if part in position:
            return part
        twin = self.source.twin(part)
        return next((p for p in position if self.source.twin(p) == twin), None)

    def _named(self, value: NodeResult, part: int) -> int | None:
        """The part, or its twin, if the node that gives a value makes it and does not just hand it on."""
        evidence = self.reading.evidence(value.node)
        if part in evidence:
            return part
        twin = self.source.twin(part)
        alike = sorted(p for p in evidence | self.reading.states(value) if self.source.twin(p) == twin)
        handed_on = self.reading.nodes[value.node].hands_on(value.result)
        named = next((p for p in alike if p in evidence or not handed_on), None)
        # Of merged values the location names one, and what the others read is read of their givers all the same.
        return part if named is not None and self._finds_all(value.node, part) else named

    def _finds_all(self, node: int, part: int) -> bool:
        """Whether a node, or who did some of the work before it, has all that a part reads."""
        sharers = [node, *self._sharers(node, part)]
        operands = self.source.call(part).operands
        return all(any(self._find(n, part, operand) not in _MISSING for n in sharers) for operand in operands)

    def _enter(self, node: int, part: int) -> State:
        if (node, part) not in self._moments:
            self._moments.add((node, part))
            self._entered.add(node)
            self._stack.append((node, part))
        return ("moment", node, part)

    def _leaf(self, operand: Operand) -> State:
        if operand not in self._values:
            self._values.add(operand)
            self._transitions.append((operand, operand, END))
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
                elif after != END:
                    after = self._leaf(after)
                self._transitions.append((here, label, after))
        return state

    def _name(self, state: State) -> str:
        source = self.source
        match state:
            case ("value", node, _, part):
                return f"{source.operand_name(('p', part))} as {self.reading.place(node)} gives it"
            case ("moment", node, part):
                return f"{source.operand_name(('p', part))} in {self.reading.place(node)}"
            case ("lost", node, _, operand):
                return f"{source.operand_name(operand)}, which {self.reading.place(node)} does not have"
            case ("assumed", part):
                return f"{source.operand_name(('p', part))}, assumed"
            case ("a" | "w", _):
                return source.operand_name(state)
        return str(state[0])
