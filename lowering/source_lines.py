"""Where the user wrote what a kernel computes: for the line tables of the code that is generated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from covan_mlir.dialects.prov_table import ActionRow, Table
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


Actions = Mapping[int, ActionRow]
"""The action of each part, by the part's id."""

Places = tuple[tuple[str, Place], ...]
"""Place of each step of a chain that has one, in the chain's order: part of what a kernel is told apart by."""


def actions(table: Table) -> Actions:
    """The action of every part, and of every action, by id."""
    rows = {row.id: row for row in table.actions}
    return rows | {part.id: rows[part.action] for part in table.parts if part.action in rows}


def places(chain: Chain, known: Actions) -> Places:
    """Places of a chain's steps. A step that performs several actions is where the last of them is."""
    found = []
    for step in chain.steps:
        performed = dict.fromkeys(known[n] for n in sorted(step.trace) if n in known)
        if (place := _place(performed)) is not None:
            found.append((step.name, place))
    return tuple(found)


def _place(performed: Iterable[ActionRow]) -> Place | None:
    made = None
    names = []
    for action in performed:
        names.append(action.name)
        frame = next((frame for frame in action.frames if not frame.internal), None)
        made = Place(frame.file, frame.line) if frame is not None else made
    return Place(made.file, made.line, "+".join(names)) if made is not None else None


def united(found: Iterable[Place]) -> Place:
    """One place for code that performs several steps: the last one's, with all their actions."""
    found = list(found)
    names = dict.fromkeys(name for place in found for name in place.action.split("+") if name)
    return Place(found[-1].file, found[-1].line, "+".join(names))
