"""The source of a compiled program as a coalgebra: its values, and the executions of the parts that give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from covan_mlir.checking.alike_loops import AlikeLoops
from covan_mlir.checking.sizes import equal_numbers, is_empty, renamed
from covan_mlir.prov import TAU, Coalgebra
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import JOINS, following, nameless
from covan_mlir.provenance.model import Part

State = tuple[Any, ...]
"""``(kind, ...)``: an operand, or what `covan_mlir.checking.program_system` has besides."""
Transition = tuple[State, Any, State]
"""From a state, under a label, to a state."""
Aside = tuple[str, int, int, int]
"""``("aside", node, result, part)``: a value that the program computes and does not need, and what it is said to be."""
START: State = ("start",)
END: State = ("end",)


@dataclass(frozen=True)
class PartCall:
    """What a part is, to be told apart from others: the operands that it reads, and all else as a label."""

    operands: tuple[Operand, ...]
    label: str

    @property
    def fixed(self) -> bool:
        """Whether it reads no argument itself."""
        return all(kind != "a" for kind, _ in self.operands)


class SourceSystem:
    """The parts of a model as a coalgebra.

    Args:
        results: what the program returns, in order.
        identity: of parts that give back one of their operands, the position of that operand.
        constant: the label of a part without operands, when it is known by its value.
        calls: of the parts, as far as systems of the same parts have read them already (`call`).

    Attributes:
        constant: of each part, whether no argument lies behind its value.
        empty: parts that give tensors without elements, whatever of their sizes is known at run time only.
        independent: whether no element of an argument does: a size may.
        twins: the first part with the same value, by value numbering: of what is not random, that is called alike
            with equal values; loops that carry equal values are one.
    """

    def __init__(
        self,
        parts: Mapping[int, Part],
        results: Sequence[Operand],
        identity: Mapping[int, int] | None = None,
        constant: Callable[[int], str | None] = lambda part: None,
        calls: dict[int, PartCall] | None = None,
    ) -> None:
        self.parts = parts
        self.results = tuple(results)
        self.identity = identity or {}
        self._label = constant
        self._calls: dict[int, PartCall] = {} if calls is None else calls
        self.empty = frozenset(index for index, part in parts.items() if part.types and all(map(is_empty, part.types)))
        self.constant: dict[int, bool] = {}
        self.independent: dict[int, bool] = {}
        for index in sorted(parts):
            call = self.call(index)
            read = [int(name) for kind, name in call.operands if kind == "p"]
            fixed = call.fixed and parts[index].op not in JOINS
            self.independent[index] = fixed and all(self.independent[part] for part in read)
            self.constant[index] = fixed and not parts[index].sizes and all(self.constant[part] for part in read)
        self.twins: dict[int, int] = {}
        self._loops = AlikeLoops(parts)
        self._number()
        while self._loops.told_apart(self._value):
            self._number()

    def _number(self) -> None:
        self.twins.clear()
        first: dict[Any, int] = {}
        names: dict[str, str] = {}
        """Numbers that are read from tensors, by those that are equal: as many elements have a property twice."""
        for index in sorted(self.parts):
            call = self.call(index)
            values = tuple(map(self._value, call.operands))
            twin = first.setdefault((renamed(self._label_of(index), names), values), index)
            self.twins[index] = twin
            if twin != index:
                for name, same in equal_numbers(self.parts[index].types, self.parts[twin].types):
                    names[name] = names.get(same, same)

    def _value(self, operand: Operand) -> Operand:
        """The first operand with the same value."""
        kind, name = operand
        while kind == "p" and name in self.parts and self.parts[int(name)].alias:
            kind, name = self.call(int(name)).operands[0]
        return kind, self.twins.get(int(name), name) if kind == "p" else name

    def call(self, part: int) -> PartCall:
        """How a part is called; systems of the same parts may share what they read."""
        if part not in self._calls:
            op, args = self.parts[part].op, self.parts[part].args
            operands = tuple(arguments.operands(args))
            known = None if operands else self._label(part)
            self._calls[part] = PartCall(operands, known or f"{op}{arguments.signature(nameless(op, args))}")
        return self._calls[part]

    def _label_of(self, part: int) -> str:
        """What a part is beside its operands; parts of loops that do the same have the same labels."""
        return self._loops.label(self.parts[part]) or self.call(part).label

    def twin(self, part: int) -> int:
        """The first part with the same value."""
        return self.twins.get(part, part)

    def needs(self, part: int) -> Sequence[Operand]:
        """The operands that a part's value depends on: of one that gives back an operand, that one; of one without
        elements, none."""
        if part in self.empty:
            return ()
        operands = self.call(part).operands
        return (operands[self.identity[part]],) if part in self.identity else operands

    def constants_behind(self, read_by: Iterable[int]) -> set[int]:
        """The parts without arguments that others read, directly or through such parts, and of those others the ones
        that are such parts themselves."""
        behind: set[int] = set()
        stack = list(read_by)
        while stack:
            part = stack.pop()
            if part in behind:
                continue
            if self.independent[part]:
                behind.add(part)
            stack += [name for name in self.parts[part].inputs if self.independent[name]]
        return behind

    def steps(self, part: int, read: Callable[[Operand], State]) -> list[tuple[Any, State]]:
        """The transitions of a part's value, its operands given by ``read``."""
        call = self.call(part)
        if part in self.identity:
            return [(TAU, read(call.operands[self.identity[part]]))]
        label = self._label_of(part)
        steps: list[tuple[Any, State]] = [
            ((label, index), read(operand)) for index, operand in enumerate(() if part in self.empty else call.operands)
        ]
        if (after := following(self.parts[part])) is not None:  # in the next iteration
            steps.append(((label, "next"), read(after)))
        return steps or [(label, END)]

    @cached_property
    def live(self) -> frozenset[int]:
        """Parts that the results need, as the model calls them."""
        return self._behind_results(lambda part: self.call(part).operands)

    @cached_property
    def needed(self) -> frozenset[int]:
        """Parts that the values of the results depend on."""
        return self._behind_results(self.needs)

    def _behind_results(self, read: Callable[[int], Sequence[Operand]]) -> frozenset[int]:
        behind: set[int] = set()
        stack = [name for kind, name in self.results if kind == "p"]
        while stack:
            part = stack.pop()
            if isinstance(part, int) and part not in behind:
                behind.add(part)
                after = following(self.parts[part])
                stack += [name for kind, name in (*read(part), *([after] if after else [])) if kind == "p"]
        return frozenset(behind)

    def coalgebra(self, aside: Iterable[Aside] = (), among: Iterable[int] = ()) -> tuple[Coalgebra, dict[State, int]]:
        """The system, and the number of each state; of what the results, ``aside`` and ``among`` need."""
        transitions: list[Transition] = []
        transitions += [(START, ("result", index), result) for index, result in enumerate(self.results)]
        transitions += [(START, label, ("p", label[-1])) for label in aside]
        seen: set[State] = set()
        stack: list[State] = [*(after for _, _, after in transitions), *(("p", part) for part in among)]
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            if state[0] == "p":
                steps = self.steps(state[1], lambda operand: operand)
                stack += [after for _, after in steps]
                transitions += [(state, label, after) for label, after in steps]
            elif state != END:
                transitions.append((state, state, END))
        return numbered(transitions, self._name)

    def _name(self, state: State) -> str:
        return self.operand_name(state) if state[0] in ("p", "a", "w") else str(state[0])

    def operand_name(self, operand: Operand) -> str:
        """``softmax_1``, ``argument 0``, ``weight fc.weight``."""
        kind, name = operand
        if kind == "p":
            return self.parts[int(name)].name if name in self.parts else f"part {name}"
        return f"{'argument' if kind == 'a' else 'weight'} {name}"


def numbered(transitions: Sequence[Transition], name: Callable[[State], str]) -> tuple[Coalgebra, dict[State, int]]:
    """The coalgebra that starts at `START` and terminates in `END`, and the number of each state."""
    number: dict[State, int] = {START: 0, END: 1}
    for before, _, after in transitions:
        number.setdefault(before, len(number))
        number.setdefault(after, len(number))
    labels: dict[Any, int] = {}
    for _, label, _ in transitions:
        labels.setdefault(label, len(labels))
    order = list(number)
    system = Coalgebra.from_arrays(
        len(number),
        [number[before] for before, _, _ in transitions],
        [labels[label] for _, label, _ in transitions],
        [number[after] for _, _, after in transitions],
        labels=tuple(labels),
        terminating=[1],
        initial=0,
        naming=lambda state: name(order[state]),
    )
    return system, number
