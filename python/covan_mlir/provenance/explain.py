"""The table of kernels and source: what each site of a program performs, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from covan_mlir.provenance import explain_substitution
from covan_mlir.provenance.model import Action, Frame, LineageData, Site

if TYPE_CHECKING:
    from covan_mlir.provenance.model import Fate

_WIDTH = 110
_GAP = "  "
_LIMITS = (30, 24, 24, 24)  # widest op, names, module and source line: with four gaps, the width


def table(lineage: LineageData, sites: Sequence[Site]) -> str:
    """Text table of ``sites``: one block per site, with one line for the actions of one op, module and source line.

    Plain text, at most 110 columns, the same for the same lineage. A table of all sites (or of none) ends with the
    actions that no site performs, and what became of them.
    """
    short = short_files(frame.file for action in lineage.actions for frame in action.frames if not frame.internal)
    blocks = [(site, _rows(lineage, site, short)) for site in sites]
    widths = [
        min(limit, max((len(row[column]) for _, rows in blocks for row in rows), default=0))
        for column, limit in enumerate(_LIMITS)
    ]
    lines = [_header(lineage, sites)]
    for site, rows in blocks:
        lines += ["", _fit(f"site {site.id}  {site.phase}  {site.kernel}", _WIDTH)]
        for *row, role in rows:
            op, names, module, line = (_fit(cell, width) for cell, width in zip(row, widths, strict=True))
            cells = (op.ljust(widths[0]), names.ljust(widths[1]), module.ljust(widths[2]), line)
            lines.append((_GAP + _GAP.join(cells)).rstrip())
            if role:
                lines.append(_fit(f"{_GAP}{_GAP}{role}", _WIDTH))
        if tags := lineage.tags(site):
            lines.append(_fit(f"{_GAP}tags: {', '.join(sorted(tags))}", _WIDTH))
        if not rows:
            lines.append(f"{_GAP}(no action of the model)")
    if len(sites) in (0, len(lineage.sites)):
        lines += _unperformed_lines(lineage)
        if rewritten := explain_substitution.text(lineage):
            lines += ["", *(_fit(line, _WIDTH) for line in rewritten.splitlines())]
    return "\n".join(lines) + "\n"


def table_json(lineage: LineageData, sites: Sequence[Site]) -> dict[str, Any]:
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
                "tags": sorted(lineage.tags(site)),
                "actions": [_action_json(lineage, action) for action in lineage.why(site)],
                "parts": [part.name for i in site.parts if (part := lineage.parts.get(i))],
            }
            for site in sites
        ],
        "unperformed": [action.name for action in unperformed(lineage)],
        **({} if lineage.substitution is None else {"substitutions": explain_substitution.as_json(lineage)}),
    }


def unperformed(lineage: LineageData) -> tuple[Action, ...]:
    """The actions that no site performs: views, folded or merged values, dead code."""
    performed = {action for site in lineage.sites for action in site.trace}
    return tuple(action for action in lineage.actions if action.id not in performed)


def fates_json(lineage: LineageData, actions: Iterable[Action]) -> list[dict[str, Any]]:
    """What became of each action, as `fates_text` says it."""
    return [
        {
            "action": action.name,
            "kind": fate.kind,
            "sites": list(fate.sites),
            "decided_by": fate.decided_by,
            "twin": None if fate.twin is None else lineage.actions[fate.twin].name,
            **({"rewritten_by": list(fate.rewritten_by)} if fate.rewritten_by else {}),
        }
        for action in actions
        if (fate := _fate(lineage, action))
    ]


def fates_text(lineage: LineageData, actions: Iterable[Action]) -> str:
    """What became of each action: two lines, and one each for its tags and groups if it has any."""
    lines = []
    for action in actions:
        fate = _fate(lineage, action)
        lines.append(f"{action.name} ({action.op.removesuffix('.default')})")
        if action.role:
            lines.append(f"{_GAP}{action.role}")
        lines.append(f"{_GAP}{became(lineage, fate) if fate else 'is performed by no site'}")
        if tags := lineage.tags(action):
            lines.append(f"{_GAP}tags: {', '.join(sorted(tags))}")
        if groups := [group.name for group in lineage.groups if action.id in group.actions]:
            lines.append(f"{_GAP}groups: {', '.join(groups)}")
    return "".join(f"{_fit(line, _WIDTH)}\n" for line in lines)


def became(lineage: LineageData, fate: Fate) -> str:
    """A fate in words."""
    sites = _numbers(fate.sites)
    reads = "index" if len(fate.sites) > 1 else "indexes"
    match fate.kind:
        case "dispatched":
            text = f"performed by {sites}"
        case "view":
            text = f"a view: {sites} {reads} by it" if fate.sites else "a view: a result is returned through it"
        case "folded":
            text = f"folded into a constant{f', read by {sites}' if fate.sites else ''}"
        case "merged":
            twin = "its operand" if fate.twin is None else lineage.actions[fate.twin].name
            text = f"merged: the same value as {twin}{f', of {sites}' if fate.sites else ''}"
        case "dead":
            text = "dead: no result needs it"
    if fate.rewritten_by:
        text = f"rewritten by {', '.join(fate.rewritten_by)}; {text}"
    return f"{text}; decided by {fate.decided_by}" if fate.decided_by and fate.kind != "dispatched" else text


def _numbers(sites: Sequence[int]) -> str:
    shown = ", ".join(map(str, sites[:8]))
    more = f", … ({len(sites):,} in all)" if len(sites) > 8 else ""
    return f"site{'' if len(sites) == 1 else 's'} {shown}{more}"


def _fate(lineage: LineageData, action: Action) -> Fate | None:
    return lineage.fates[action.id] if action.id < len(lineage.fates) else None


def _action_json(lineage: LineageData, action: Action) -> dict[str, Any]:
    frame = user_frame(action)
    return {
        "id": action.id,
        "name": action.name,
        "op": action.op,
        "module": action.module,
        "file": frame.file if frame else None,
        "line": frame.line if frame else None,
        "types": list(action.types),
        "tags": sorted(lineage.tags(action)),
        **({"role": action.role} if action.role else {}),
    }


def user_frame(action: Action) -> Frame | None:
    """The line of the user's code that an action stands for."""
    return next((frame for frame in action.frames if not frame.internal), None)


def counts(lineage: LineageData) -> str:
    """Numbers of actions, sites and kernels, in words."""

    def count(number: int, what: str) -> str:
        return f"{number:,} {what}{'' if number == 1 else 's'}"

    at_load = sum(site.phase == "init" for site in lineage.sites)
    phases = f" ({len(lineage.sites) - at_load:,} per call, {at_load:,} at load)" if at_load else ""
    kernels = count(_kernels(lineage.sites), "kernel")
    return f"{count(len(lineage.actions), 'action')}, {count(len(lineage.sites), 'site')}{phases}, {kernels}"


def _header(lineage: LineageData, sites: Sequence[Site]) -> str:
    return counts(lineage) + ("" if len(sites) == len(lineage.sites) else f"; {len(sites):,} of the sites shown")


def _kernels(sites: Iterable[Site]) -> int:
    return len({site.kernel for site in sites})


def _rows(lineage: LineageData, site: Site, short: dict[str, str]) -> list[tuple[str, str, str, str, str]]:
    """Operator, names, module, line and role of what a site performs."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for action in lineage.why(site):
        frame = user_frame(action)
        line = f"{short[frame.file]}:{frame.line}" if frame else ""
        op = action.op.removesuffix(".default")
        groups.setdefault((op, action.module, line, action.role), []).append(action.name)
    return [(op, _join(names, _LIMITS[1]), module, line, role) for (op, module, line, role), names in groups.items()]


def _join(names: Sequence[str], width: int) -> str:
    """As many names as fit, and how many there are beyond those."""
    text = ", ".join(names)
    shown = min(len(names), width // 2)  # a name takes more than two columns with its comma
    while len(text) > width and shown > 1:
        shown -= 1
        text = f"{', '.join(names[:shown])}, +{len(names) - shown}"
    return text


def _unperformed_lines(lineage: LineageData) -> list[str]:
    rest = unperformed(lineage)
    if not rest:
        return []
    what = "1 action is" if len(rest) == 1 else f"{len(rest):,} actions are"
    rows: dict[tuple[str, str], list[str]] = {}
    for action in rest:
        fate = _fate(lineage, action)
        rows.setdefault((fate.kind, fate.decided_by) if fate else ("", ""), []).append(action.name)
    if rows.keys() == {("", "")}:  # a lineage without fates
        start = f"{what} performed by no site: "
        return ["", start + _fit(_join([action.name for action in rest], _WIDTH - len(start)), _WIDTH - len(start))]
    widths = [max(len(key[column]) for key in rows) for column in (0, 1)]
    lines = ["", f"{what} performed by no site:"]
    for (kind, step), names in sorted(rows.items()):
        start = f"{_GAP}{kind.ljust(widths[0])}{_GAP}{step.ljust(widths[1])}{_GAP}"
        room = max(_WIDTH - len(start), 2)
        lines.append(_fit(start + _fit(_join(names, room), room), _WIDTH).rstrip())
    return lines


def _fit(text: str, width: int) -> str:
    """Cut in the middle: both ends of a path or an op tell things apart."""
    text = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def short_files(files: Iterable[str]) -> dict[str, str]:
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
