"""Equal branches and loops: which of their values, and of what is computed of them, are the same.

A value that goes round equals another if both begin alike and go on alike, equally often, which depends on what is
equal. All loops that carry the same types are taken for one at first, and split until nothing contradicts it. The
checker finds out for itself (`covan_mlir.checking.alike_loops`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import (
    BRANCH,
    CARRIED,
    ELEMENT,
    PREFIX,
    WHILE,
    following,
    loop,
    nameless,
    positions,
    renamed,
)
from covan_mlir.provenance.model import Part


def with_twins(parts: Sequence[Part], random: Collection[int]) -> list[Part]:
    """The parts, those that are equal by way of equal branches or loops with their twins.

    Args:
        parts: in order, with the twins that are equal without that.
        random: ids of those that are equal to nothing but themselves.
    """
    loops: dict[str, list[Part]] = {}
    for part in parts:
        if (name := loop(part)) is not None:
            loops.setdefault(name, []).append(part)
    if len(loops) < 2 and sum(part.op == BRANCH for part in parts) < 2:
        return list(parts)
    leading = _leading(loops, loops)
    while True:
        twins = _Numbers(parts, leading, random)
        wrong = [name for name in loops if twins.ends(loops[name]) != twins.ends(loops[leading[name]])]
        if not wrong:
            return [replace(part, twin=twins.first[part.id]) for part in parts]
        leading |= _leading(loops, wrong)


def _leading(loops: Mapping[str, Sequence[Part]], names: Iterable[str]) -> dict[str, str]:
    """The first of some loops whose iterations are given the same types."""
    first: dict[tuple[tuple[str, ...], ...], str] = {}
    return {name: first.setdefault(tuple(part.types for part in _entering(loops[name])), name) for name in names}


def _entering(values: Sequence[Part]) -> list[Part]:
    return [part for part in values if part.op in (CARRIED, ELEMENT)]


class _Numbers:
    """Value numbers, if some loops are one.

    Attributes:
        first: by part, the first of its value.
    """

    def __init__(self, parts: Sequence[Part], leading: Mapping[str, str], random: Collection[int]) -> None:
        self.first: dict[int, int] = {}
        self._alias: dict[int, Operand] = {}
        known: dict[Any, int] = {}
        behind: set[int] = set()
        """Values of branches and loops, and what is computed of them; of the others it is known who is equal."""
        for part in parts:
            read = arguments.operands(part.args)
            if part.alias and read:
                self._alias[part.id] = read[0]
            name = loop(part)
            text = nameless(part.op, part.args) if name is None else renamed(part, leading[name])
            first = known.setdefault((part.op, arguments.signature(text), tuple(map(self.value, read))), part.id)
            if part.op.startswith(PREFIX) or not behind.isdisjoint(part.inputs):
                behind.add(part.id)
            own = first if part.id in behind and part.id not in random else part.id
            self.first[part.id] = own if part.twin == part.id else self.first[part.twin]

    def value(self, operand: Operand) -> Operand:
        """The first operand of the same value."""
        kind, part = operand
        while kind == "p" and part in self._alias:
            kind, part = self._alias[int(part)]
        return (kind, self.first.get(int(part), part)) if kind == "p" else (kind, part)

    def ends(self, values: Sequence[Part]) -> list[Operand | None]:
        """What an iteration is given, what that is in the next one, and what decides whether there is one."""
        entering = _entering(values)
        asked: list[Operand | None] = [("p", part.id) for part in entering]
        asked += [following(part) for part in entering]
        result = next((part for part in values if part.op == WHILE), None)
        asked += positions(result)[:2] if result is not None else []
        return [operand and self.value(operand) for operand in asked]
