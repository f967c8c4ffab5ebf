"""Loops that do the same, as one: value numbering of what goes round.

Loops are equal that carry equal values, and are done equally often: what decides that, or what they go over, is equal.
Whether two carried values are equal depends on what follows them, and that on whether they are equal. So all loops that
begin alike are taken for one, values are numbered, and those that carry on with another value are told apart, until
none does: the largest bisimulation, by refinement (Alpern, Wegman and Zadeck, "Detecting equality of variables in
programs", POPL 1988).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import CARRIED, ELEMENT, WHILE, following, loop, positions, renamed
from covan_mlir.provenance.model import Part

Value = Callable[[Operand], Operand]
"""The first operand that has the value of one, as far as is known."""


class AlikeLoops:
    """The loops of a model's parts, and which of them are taken for one."""

    def __init__(self, parts: Mapping[int, Part]) -> None:
        self._parts: dict[str, list[Part]] = {}
        for index in sorted(parts):
            if (name := loop(parts[index])) is not None:
                self._parts.setdefault(name, []).append(parts[index])
        self._leading: dict[str, str] = {}
        self._lead(list(self._parts))

    def label(self, part: Part) -> str | None:
        """What a value of a loop is beside its operands; None of other parts."""
        name = loop(part)
        if name is None:
            return None
        return f"{part.op}{arguments.signature(renamed(part, self._leading[name]))}"

    def told_apart(self, value: Value) -> bool:
        """Takes those loops for others that are not what they were taken for; whether there were any."""
        wrong = [name for name, leading in self._leading.items() if not self._equal(name, leading, value)]
        self._lead(wrong)
        return bool(wrong)

    def _lead(self, names: list[str]) -> None:
        first: dict[tuple[str, ...], str] = {}
        for name in names:
            begun = tuple(f"{part.op} {part.types}" for part in self._entering(name))
            self._leading[name] = first.setdefault(begun, name)

    def _equal(self, name: str, leading: str, value: Value) -> bool:
        if name == leading:
            return True
        pairs = list(zip(self._entering(name), self._entering(leading), strict=True))
        return self._decided(name, value) == self._decided(leading, value) and all(
            value(("p", one.id)) == value(("p", other.id)) and _after(one, value) == _after(other, value)
            for one, other in pairs
        )

    def _entering(self, name: str) -> list[Part]:
        """What goes into an iteration: what is carried, and elements of what the loop goes over."""
        return [part for part in self._parts[name] if part.op in (CARRIED, ELEMENT)]

    def _decided(self, name: str, value: Value) -> list[Operand | None]:
        """Whether there is a first iteration, and another one."""
        result = next((part for part in self._parts[name] if part.op == WHILE), None)
        return [value(item) if item else None for item in positions(result)[:2]] if result else []


def _after(part: Part, value: Value) -> Operand | None:
    after = following(part)
    return value(after) if after else None
