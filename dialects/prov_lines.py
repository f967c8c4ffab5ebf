"""Where the user wrote each action, as an attribute of the module: what is left of the table where it cannot stay.

``prov.lines`` has a row for each action: the ids of the action and its parts, its name, and file and line of the
innermost frame in the user's code ("" and 0 where there is none).
"""

from __future__ import annotations

from collections.abc import Iterable

from torch_mlir import ir

from covan_mlir.dialects.fred_data import attribute, data
from covan_mlir.dialects.prov_table import Table
from covan_mlir.provenance.action_line import ActionLine

LINES = "prov.lines"


def lines_of(table: Table) -> tuple[ActionLine, ...]:
    """Where the user wrote the actions of a table."""
    parts: dict[int, list[int]] = {action.id: [action.id] for action in table.actions}
    for part in table.parts:
        for owner in part.owners:
            parts.setdefault(owner, []).append(part.id)
    lines = []
    for action in table.actions:
        frame = next((frame for frame in action.frames if not frame.internal), None)
        file, line = ("", 0) if frame is None else (frame.file, frame.line)
        lines.append(ActionLine(tuple(parts[action.id]), action.name, file, line))
    return tuple(lines)


def write_lines(module: ir.Operation, lines: Iterable[ActionLine]) -> None:
    """Gives the module its ``prov.lines``."""
    rows = [[line.ids, line.name, line.file, line.line] for line in lines]
    module.attributes[LINES] = attribute(rows, module.context)


def read_lines(module: ir.Operation) -> tuple[ActionLine, ...]:
    """The module's ``prov.lines``; none if it has none."""
    if LINES not in module.attributes:
        return ()
    rows = data(module.attributes[LINES])
    return tuple(ActionLine(tuple(ids), name, file, line) for ids, name, file, line in rows)
