"""Where the user wrote what a kernel computes: for the line tables of the code that is generated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain
from covan_mlir.provenance.action_line import ActionLine


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's source.

    Attributes:
        action: name of what is written there; several with ``+`` between them; may be empty.
    """

    file: str
    line: int
    action: str = ""


Actions = Mapping[int, ActionLine]
"""The action of each id, be it that of an action or of a part."""

SourceLines = tuple[tuple[str, SourceLine], ...]
"""Source line of each step of a chain that has one, in the chain's order: part of what a kernel is told apart by."""


def actions(lines: Iterable[ActionLine]) -> Actions:
    """The action of every part, and of every action, by id."""
    return {number: line for line in lines for number in line.ids}


def source_lines_of(chain: Chain, known: Actions) -> SourceLines:
    """Source lines of a chain's steps. A step that performs several actions is where the last of them is."""
    located = []
    for step in chain.steps:
        performed = dict.fromkeys(known[number] for number in sorted(step.trace) if number in known)
        if (line := _source_line(performed)) is not None:
            located.append((step.name, line))
    return tuple(located)


def _source_line(performed: Iterable[ActionLine]) -> SourceLine | None:
    actions = list(performed)
    last = next((action for action in reversed(actions) if action.file), None)
    return None if last is None else SourceLine(last.file, last.line, "+".join(action.name for action in actions))


def combined(lines: Iterable[SourceLine]) -> SourceLine:
    """One line for code that performs several steps: the last one's, with all their actions."""
    lines = list(lines)
    names = dict.fromkeys(name for line in lines for name in line.action.split("+") if name)
    return SourceLine(lines[-1].file, lines[-1].line, "+".join(names))
