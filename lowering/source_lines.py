"""Where the user wrote what a kernel computes: for the line tables of the code that is generated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from covan_mlir.dialects.prov_lines import ActionLine
from covan_mlir.fred.chain import Chain


@dataclass(frozen=True)
class Place:
    """A line of the user's source.

    Attributes:
        action: name of what is written there; several with ``+`` between them; may be empty.
    """

    file: str
    line: int
    action: str = ""


Actions = Mapping[int, ActionLine]
"""The action of each id, be it that of an action or of a part."""

Places = tuple[tuple[str, Place], ...]
"""Place of each step of a chain that has one, in the chain's order: part of what a kernel is told apart by."""


def actions(lines: Iterable[ActionLine]) -> Actions:
    """The action of every part, and of every action, by id."""
    return {number: line for line in lines for number in line.ids}


def places(chain: Chain, known: Actions) -> Places:
    """Places of a chain's steps. A step that performs several actions is where the last of them is."""
    placed = []
    for step in chain.steps:
        performed = dict.fromkeys(known[number] for number in sorted(step.trace) if number in known)
        if (place := _place(performed)) is not None:
            placed.append((step.name, place))
    return tuple(placed)


def _place(performed: Iterable[ActionLine]) -> Place | None:
    actions = list(performed)
    last = next((action for action in reversed(actions) if action.file), None)
    return None if last is None else Place(last.file, last.line, "+".join(action.name for action in actions))


def united(found: Iterable[Place]) -> Place:
    """One place for code that performs several steps: the last one's, with all their actions."""
    found = list(found)
    names = dict.fromkeys(name for place in found for name in place.action.split("+") if name)
    return Place(found[-1].file, found[-1].line, "+".join(names))
