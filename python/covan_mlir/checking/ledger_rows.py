"""Checks what the ledger says of actions and parts that follows from what they are called with."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from covan_mlir.checking.source_system import SourceSystem
from covan_mlir.checking.verdict import Counterexample
from covan_mlir.provenance import arguments
from covan_mlir.provenance.control import CARRIED, ELEMENT, following

if TYPE_CHECKING:
    from covan_mlir.checking.subject import Subject
    from covan_mlir.provenance.model import Action, LineageData, Part

_PHASE = "source"
_GIVEN = frozenset({CARRIED, ELEMENT})
_NUMBERS = frozenset(("int", "float", "bool"))
_TAKES_FUNCTIONS = "higher_order."
_AHEAD = frozenset({"aten.full.default", "aten.clone.default"})
"""What is left of an action of which all was computed ahead of time, or which of its operands it chooses."""
_SLICES = frozenset({"aten.slice.Tensor", "aten.slice_scatter.default", "aten.select.int", "aten.expand.default"})
_PUT_TOGETHER = frozenset({"aten.cat.default", "aten.slice_scatter.default", "aten.complex.default"})


def check_source(subject: Subject) -> tuple[list[Counterexample], list[str]]:
    """What is wrong with the ledger, and what could not be checked."""
    missing: list[str] = []
    exported = subject.exported
    wrong = [*_parts(subject, missing), *_actions(exported, missing), *_results(subject)]
    if exported is not subject:  # what it was before substitutions
        wrong += _parts(exported, missing)
    return wrong, missing


def _parts(subject: Subject, missing: list[str]) -> Iterator[Counterexample]:
    source, words = subject.source(), subject.words
    sure = _sure_twins(source)
    for index, part in sorted(subject.lineage.parts.items()):
        for why in (*_part(source, part), *_view(subject, part.op, part.view, missing)):
            yield subject.example(_PHASE, f"{words.part(index)} {why}", parts=(index,))
        if why := _types(subject, part):
            yield subject.example(_PHASE, f"{words.part(index)} {why}", parts=(index,))
        if why := _twin(subject, source, sure, part):
            yield subject.example(_PHASE, f"{words.part(index)} {why}", parts=(index,))


def _twin(subject: Subject, source: SourceSystem, sure: Mapping[int, int], part: Part) -> str:
    """What is wrong with the first part that is said to have a part's value."""
    parts, words = subject.lineage.parts, subject.words
    first, twin = source.twin(part.id), part.twin
    if twin not in parts or source.twin(twin) != first:
        return f"is said to have the value of {words.part(twin)}, which has another value"
    if parts[twin].twin != twin:
        return f"is said to have the value of {words.part(twin)} first, which is not the first one either"
    if twin > (before := sure[part.id]):
        return f"is said to be the first of its value, but {words.part(before)} is before it"
    return ""


def _types(subject: Subject, part: Part) -> str:
    """Whether a part can be called with what it is said to read, and gives what it is said to give."""
    if subject.identities is None:
        return ""
    try:
        types = subject.identities.types(part.id)
    except ValueError as error:
        return f"cannot be called with what it is said to read: {error}"
    if types is None or types == part.types:
        return ""
    return f"is said to give {', '.join(part.types)}, but gives {', '.join(types)}"


def _sure_twins(source: SourceSystem) -> dict[int, int]:
    """The first part with the same value, where that can be told: of what reads sizes only, the tensor is not kept."""
    sure: dict[int, int] = {}
    first: dict[Hashable, int] = {}
    for index, part in sorted(source.parts.items()):
        call = source.call(index)
        values = tuple((kind, sure[int(name)] if kind == "p" else name) for kind, name in call.operands)
        sure[index] = index if '{"r"' in part.args else first.setdefault((call.label, values), index)
    return sure


def _part(source: SourceSystem, part: Part) -> Iterator[str]:
    operands = source.call(part.id).operands
    read = tuple(sorted({int(name) for kind, name in operands if kind == "p"}))
    positions = tuple(sorted({int(name) for kind, name in operands if kind == "a"}))
    if part.inputs != read or part.arguments != positions:
        yield "is said to read something else than it is called with"


def _view(subject: Subject, op: str, view: bool, missing: list[str]) -> Iterator[str]:
    if subject.identities is None:
        missing.append("which operators are views was not looked up: torch is not installed")
        return
    known = subject.identities.gives_view(op)
    if known is None:
        missing.append(f"whether {op} is a view: no such operator is registered here")
    elif known and not view:
        yield "is said to make another value, but its operator only gives a view of what it is given"
    elif view and not known:
        yield "is said to be a view, but its operator makes another value"


def _actions(subject: Subject, missing: list[str]) -> Iterator[Counterexample]:
    lineage, words = subject.lineage, subject.words
    needed = subject.source().live
    read_by_live = {read for action in lineage.actions if action.live for read in action.inputs}
    reach, sizes, computed = _reach(lineage.actions), _sizes(lineage.parts), _computed(lineage.parts)
    writing = frozenset(action.id for action in lineage.actions if _writes(subject, action))
    for action in lineage.actions:
        # Of an operator that is not torch's nothing is registered: its parts are checked.
        whys = [] if action.translated else list(_view(subject, action.op, action.view, missing))
        live = any(part.id in needed for part in action.parts)
        if not action.live and (live or action.id in read_by_live):
            whys.append("is said to be dead, but the results need it")
        whys += _reads(subject, action, reach[action.id], sizes, computed, writing)
        for why in whys:
            yield Counterexample(_PHASE, f"{words.action(action.id)} {why}", actions=(action.name,))


def _reach(actions: Sequence[Action]) -> list[int]:
    """Of each action, all that it is said to read, directly or through others: a bit for each."""
    reach: list[int] = []
    for action in actions:
        bits = 0
        for read in action.inputs:
            bits |= 1 << read | (reach[read] if read < action.id else 0)
        reach.append(bits)
    return reach


def _sizes(parts: Mapping[int, Part]) -> set[int]:
    """Numbers computed from sizes alone. Torch computes each once for all calls that need it: whose part it is made,
    and which call is given it, tells nothing."""
    sizes: set[int] = set()
    for index, part in sorted(parts.items()):
        numbers = set(part.types) <= _NUMBERS
        if numbers and (part.sizes or (_is_arithmetic(part) and part.inputs and sizes.issuperset(part.inputs))):
            sizes.add(index)
    return sizes


def _computed(parts: Mapping[int, Part]) -> dict[int, frozenset[int]]:
    """Numbers computed from numbers, and the parts that those are computed from. Torch computes such once, too."""
    computed: dict[int, frozenset[int]] = {}
    for index, part in sorted(parts.items()):
        if _is_arithmetic(part) and set(part.types) <= _NUMBERS:
            computed[index] = frozenset[int]().union(*(computed.get(read, {read}) for read in part.inputs))
    return computed


def _is_arithmetic(part: Part) -> bool:
    return part.op.startswith(("operator.", "torch.sym_", "math.")) and not part.arguments


def _around(actions: Sequence[Action], action: Action, read: int) -> bool:
    """Whether an action is in a function of one that takes it and does some of its own work there, such as to take an
    element for each turn: that one comes behind what is in its functions."""
    if not action.body or read >= len(actions):
        return False
    inside = {part.id for part in actions[read].parts if part.name.startswith(f"{action.body}.")}
    return any(not inside.isdisjoint(part.inputs) for part in action.parts)


def _in_turns(actions: Sequence[Action], action: Action, read: int) -> bool:
    """Whether an operation of a translated loop that was written out reads what the turn before computed: all that its
    parts read of the other comes before them."""
    if not action.translated or read >= len(actions):
        return False
    others = {part.id for part in actions[read].parts}
    reads = [(part.id, given) for part in action.parts for given in part.inputs if given in others]
    return bool(reads) and all(given < own for own, given in reads)


def _reads(
    subject: Subject,
    action: Action,
    reach: int,
    sizes: AbstractSet[int],
    computed: Mapping[int, AbstractSet[int]],
    writing: AbstractSet[int],
) -> Iterator[str]:
    actions = subject.lineage.actions
    later = [read for read in action.inputs if read >= action.id and not _around(actions, action, read)]
    if any(not _in_turns(actions, action, read) for read in later):
        yield "is said to read what is computed only afterwards"
        return
    lineage, words = subject.lineage, subject.words
    names = {name for part in action.parts for name in part.inputs}
    # What a body is given is what the operator gives it, which is called behind all in the body.
    names = {name for name in names if lineage.parts[name].op not in _GIVEN}
    names = {name for behind in names for name in computed.get(behind, {behind})}
    read = {lineage.parts[name].action for name in names - sizes} - {action.id}
    for other in sorted(read):
        # What a call writes into is read under its own name.
        if not reach >> other & 1 and other not in writing:
            yield f"is said not to read {words.action(other)}, but part of it does"
    sizes_only = _asks_sizes(action.op) or any('{"r"' in part.args for part in action.parts)
    if not action.parts or sizes_only or writing:
        return
    read |= _in_bodies(lineage, action)
    constant = subject.source().constant
    folded = any(part.op in _AHEAD and action.op != part.op for part in action.parts)
    for given in action.inputs:
        gives = {part.id for part in lineage.actions[given].parts}
        if folded and all(constant[part] for part in gives):  # what was computed of it ahead of time reads it no more
            continue
        there = (
            read & _through_vanished(lineage.actions, given, sizes)
            or _reads_piece(lineage, action, given)
            or _reads_behind(lineage, action, given)
        )
        if gives - sizes - computed.keys() and not there:
            yield f"is said to read {words.action(given)}, but no part of it does"


def _reads_piece(lineage: LineageData, action: Action, given: int) -> bool:
    """Whether a slice of what an action put together, or wrote over, reads a piece of it in its place; or a half of
    complex numbers what they were put together of."""
    if all(part.op not in _SLICES for part in action.parts):
        return False
    read = {operand for part in action.parts for operand in arguments.operands(part.args)}
    stack, seen = [given], {given}
    while stack:
        for part in lineage.actions[stack.pop()].parts:
            if part.op not in _PUT_TOGETHER and not part.view:
                continue
            pieces = arguments.operands(part.args)
            if read.intersection(pieces):
                return True
            others = {lineage.parts[int(name)].action for kind, name in pieces if kind == "p"} - seen
            seen |= others
            stack += others
    return False


def _reads_behind(lineage: LineageData, action: Action, given: int) -> bool:
    """Whether an action reads what is behind the views that another one gives, and does these itself: work on a value
    and on another shape of it is done once, and each action takes its shape of the result."""
    own = {shape for part in action.parts if part.view for shape in _shapes(part.op, arguments.signature(part.args))}
    read = {operand for part in action.parts for operand in arguments.operands(part.args)}

    def behind(part: Part) -> bool:
        if not part.view or (part.op, arguments.signature(part.args)) not in own:
            return False
        others = set(arguments.operands(part.args)) - read
        return all(kind == "p" and behind(lineage.parts[int(name)]) for kind, name in others)

    return any(map(behind, lineage.actions[given].parts))


def _shapes(op: str, signature: str) -> set[tuple[str, str]]:
    """A view and what it is given; and those of a view of complex numbers that is done on their halves."""
    return {(op, signature), (op, re.sub(r"^(\[\[{},\[[^]]*),\d+\]", r"\1]", signature))}


def _in_bodies(lineage: LineageData, action: Action) -> set[int]:
    """What the functions read that an action takes, and what it reads of them only in the next iteration."""
    if not action.op.startswith(_TAKES_FUNCTIONS):
        return set()
    after = (following(part) for part in action.parts)
    read = {int(operand[1]) for operand in after if operand is not None and operand[0] == "p"}
    read |= {name for other in lineage.actions if other.body for part in other.parts for name in part.inputs}
    return {lineage.parts[name].action for name in read}


def _asks_sizes(op: str) -> bool:
    """Whether an operator only asks an operand what it is like: how large, of which type."""
    name = op.removeprefix("aten.").partition(".")[0]
    return name.endswith(("_as", "_like")) or name.startswith("new_")


def _through_vanished(actions: Sequence[Action], given: int, sizes: AbstractSet[int]) -> set[int]:
    """An action, and those that it reads directly or through such as decompositions left nothing but sizes of."""
    through: set[int] = set()
    stack = [given]
    while stack:
        action = stack.pop()
        if action not in through:
            through.add(action)
            stack += [] if {part.id for part in actions[action].parts} - sizes else actions[action].inputs
    return through


def _writes(subject: Subject, action: Action) -> bool:
    """Whether a call writes into what it is given, as far as can be told."""
    return subject.identities is None or subject.identities.writes(action.op)


def _results(subject: Subject) -> Iterator[Counterexample]:
    """Every phase returns as many values as the model."""
    lineage = subject.lineage
    for phase in lineage.phases:
        if len(phase.graph.results) != len(lineage.results):
            why = f"the model returns {len(lineage.results)} values, the program {len(phase.graph.results)}"
            yield Counterexample(phase.step, why)
