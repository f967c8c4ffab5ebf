"""A profile as a notebook shows it."""

from __future__ import annotations

from covan_mlir.profiling import text
from covan_mlir.profiling.model import By, ProfileData
from covan_mlir.profiling.views import rows
from covan_mlir.support.fragments import Cell, folded, paragraph, table, whole


def fragment(profile: ProfileData) -> str:
    """By line, and folded by module and by site; bars are parts of the call."""
    first, *notes = text.header(profile)
    return whole(
        "profile",
        [
            paragraph(first, strong=True),
            *map(paragraph, notes),
            _table(profile, "line"),
            folded("by module", _table(profile, "module")),
            folded("by site", _table(profile, "site")),
        ],
    )


def _table(profile: ProfileData, by: By) -> str:
    names = {action.id: action.name for action in profile.lineage.actions}
    cells: list[list[Cell | str]] = []
    for row in rows(profile, by):
        part = row.time / profile.total if profile.total else 0.0
        shared = f"≈{100 * row.estimated / row.time:.0f} %" if row.estimated and row.time else ""
        cells.append(
            [
                Cell(f"{row.time / 1e3:.1f}", number=True),
                Cell(f"{100 * part:.1f} %", number=True, bar=part),
                Cell(shared, number=True, title="of sites that are shared: divided by an estimate"),
                "\u2003" * row.depth + row.name + (f"  {row.kernel}" if row.kernel else ""),
                ", ".join(names[i] for i in row.actions),
            ]
        )
    return table(("us", "of the call", "shared", by, "what"), cells)
