"""The table of kernels and source: what each site of a program performs, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from covan_mlir.lineage import Action, Frame, Lineage, Site

_WIDTH = 110
_GAP = "  "
_LIMITS = (30, 24, 24, 24)  # widest op, names, module and source line: with four gaps, the width


def table(lineage: Lineage, sites: Sequence[Site]) -> str:
    """Text table of ``sites``: one block per site, with one line for the actions of one op, module and source line.

    Plain text, at most 110 columns, the same for the same lineage. A table of all sites (or of none) ends with the
    actions that no site performs.
    """
    short = _short_files(frame.file for action in lineage.actions for frame in action.frames if not frame.internal)
    blocks = [(site, _rows(lineage, site, short)) for site in sites]
    widths = [
        min(limit, max((len(row[column]) for _, rows in blocks for row in rows), default=0))
        for column, limit in enumerate(_LIMITS)
    ]
    lines = [_header(lineage, sites)]
    for site, rows in blocks:
        lines += ["", _fit(f"site {site.id}  {site.phase}  {site.kernel}", _WIDTH)]
        for row in rows:
            op, names, module, line = (_fit(cell, width) for cell, width in zip(row, widths, strict=True))
            cells = (op.ljust(widths[0]), names.ljust(widths[1]), module.ljust(widths[2]), line)
            lines.append((_GAP + _GAP.join(cells)).rstrip())
        if not rows:
            lines.append(f"{_GAP}(no action of the model)")
    if len(sites) in (0, len(lineage.sites)):
        lines += _unperformed_lines(lineage)
    return "\n".join(lines) + "\n"


def table_json(lineage: Lineage, sites: Sequence[Site]) -> dict[str, Any]:
    """The facts of `table` as JSON: ``counts``, ``sites`` (each with its actions) and ``unperformed`` action names."""
    return {
        "counts": {
            "actions": len(lineage.actions),
            "sites": len(lineage.sites),
            "kernels": _kernels(lineage.sites),
        },
        "sites": [
            {
                "id": site.id,
                "phase": site.phase,
                "kernel": site.kernel,
                "actions": [_action_json(action) for action in lineage.why(site)],
                "parts": [part.name for i in site.parts if (part := lineage.parts.get(i))],
            }
            for site in sites
        ],
        "unperformed": [action.name for action in unperformed(lineage)],
    }


def unperformed(lineage: Lineage) -> tuple[Action, ...]:
    """The actions that no site performs: views, folded or merged values, dead code."""
    performed = {action for site in lineage.sites for action in site.trace}
    return tuple(action for action in lineage.actions if action.id not in performed)


def _action_json(action: Action) -> dict[str, Any]:
    frame = _user_frame(action)
    return {
        "id": action.id,
        "name": action.name,
        "op": action.op,
        "module": action.module,
        "file": frame.file if frame else None,
        "line": frame.line if frame else None,
        "types": list(action.types),
    }


def _user_frame(action: Action) -> Frame | None:
    return next((frame for frame in action.frames if not frame.internal), None)


def counts(lineage: Lineage) -> str:
    """Numbers of actions, sites and kernels, in words."""

    def count(number: int, what: str) -> str:
        return f"{number:,} {what}{'' if number == 1 else 's'}"

    at_load = sum(site.phase == "init" for site in lineage.sites)
    phases = f" ({len(lineage.sites) - at_load:,} per call, {at_load:,} at load)" if at_load else ""
    kernels = count(_kernels(lineage.sites), "kernel")
    return f"{count(len(lineage.actions), 'action')}, {count(len(lineage.sites), 'site')}{phases}, {kernels}"


def _header(lineage: Lineage, sites: Sequence[Site]) -> str:
    return counts(lineage) + ("" if len(sites) == len(lineage.sites) else f"; {len(sites):,} of the sites shown")


def _kernels(sites: Iterable[Site]) -> int:
    return len({site.kernel for site in sites})


def _rows(lineage: Lineage, site: Site, short: dict[str, str]) -> list[tuple[str, str, str, str]]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for action in lineage.why(site):
        frame = _user_frame(action)
        line = f"{short[frame.file]}:{frame.line}" if frame else ""
        op = action.op.removesuffix(".default")
        groups.setdefault((op, action.module, line), []).append(action.name)
    return [(op, _join(names, _LIMITS[1]), module, line) for (op, module, line), names in groups.items()]


def _join(names: Sequence[str], width: int) -> str:
    """As many names as fit, and how many there are beyond those."""
    text = ", ".join(names)
    shown = min(len(names), width // 2)  # a name takes more than two columns with its comma
    while len(text) > width and shown > 1:
        shown -= 1
        text = f"{', '.join(names[:shown])}, +{len(names) - shown}"
    return text


def _unperformed_lines(lineage: Lineage) -> list[str]:
    rest = [action.name for action in unperformed(lineage)]
    if not rest:
        return []
    what = "1 action is" if len(rest) == 1 else f"{len(rest):,} actions are"
    start = f"{what} performed by no site: "
    return ["", start + _fit(_join(rest, _WIDTH - len(start)), _WIDTH - len(start))]


def _fit(text: str, width: int) -> str:
    """Cut in the middle: both ends of a path or an op tell things apart."""
    text = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _short_files(files: Iterable[str]) -> dict[str, str]:
    """For each file the shortest end of its path that no other file has."""
    parts = {file: PurePath(file).parts for file in dict.fromkeys(files)}
    short: dict[str, str] = {}
    left, length = list(parts), 1
    while left:
        owners: dict[tuple[str, ...], list[str]] = {}
        for file in left:
            owners.setdefault(parts[file][-length:], []).append(file)
        left = []
        for end, same in owners.items():
            if len(same) == 1 or all(len(parts[file]) <= length for file in same):
                short |= {file: str(PurePath(*end)) for file in same}
            else:
                left += same
        length += 1
    return short
