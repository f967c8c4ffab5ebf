"""Pieces of HTML that objects show themselves with in notebooks (``_repr_html_``).

Plain elements with styles of their own: notebooks that are not trusted drop scripts and style sheets, and what is left
has to be readable. Colours are those of the page, so that dark pages stay dark. All text is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHOWN = 60
"""Rows of a table, at most: what a page shows at once. Texts and JSON have all."""

_CELL = "text-align:{};padding:1px 8px;vertical-align:top;white-space:{}"
_BAR = "background:linear-gradient(90deg,rgba(9,105,218,0.28) {0:.1f}%,transparent {0:.1f}%)"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        number: written to the right.
        bar: a fraction of 1 that is drawn behind the text; None: none.
        title: what pointing at it tells.
    """

    text: str
    number: bool = False
    bar: float | None = None
    title: str = ""


def escaped(text: object) -> str:
    """As text of a page: lone surrogates, as of strange file names, are spelled out."""
    return html.escape(str(text).encode("utf-8", "backslashreplace").decode())


def paragraph(text: str, *, strong: bool = False) -> str:
    """A line of text."""
    return f"<div>{'<b>' if strong else ''}{escaped(text)}{'</b>' if strong else ''}</div>"


def table(head: Sequence[str], rows: Sequence[Sequence[Cell | str]], caption: str = "") -> str:
    """A table of at most `SHOWN` rows, which says how many it leaves out; empty without rows."""
    if not rows:
        return ""
    columns = "".join(f'<th scope="col" style="{_CELL.format("left", "nowrap")}">{escaped(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:SHOWN])
    left = len(rows) - SHOWN
    more = paragraph(f"and {left:,} more rows") if left > 0 else ""
    told = f'<caption style="text-align:left">{escaped(caption)}</caption>' if caption else ""
    return (
        f'<table style="border-collapse:collapse">{told}<thead><tr>{columns}</tr></thead>'
        f"<tbody>{body}</tbody></table>{more}"
    )


def _cell(cell: Cell | str) -> str:
    cell = Cell(cell) if isinstance(cell, str) else cell
    style = _CELL.format("right" if cell.number else "left", "nowrap" if cell.number else "pre-wrap")
    if cell.bar is not None:
        style += ";" + _BAR.format(100 * min(max(cell.bar, 0.0), 1.0))
    title = f' title="{escaped(cell.title)}"' if cell.title else ""
    return f'<td style="{style}"{title}>{escaped(cell.text)}</td>'


def folded(summary: str, content: str, *, is_open: bool = False) -> str:
    """What is shown when its summary is clicked; empty without content."""
    if not content:
        return ""
    return f"<details{' open' if is_open else ''}><summary>{escaped(summary)}</summary>{content}</details>"


def whole(kind: str, pieces: Iterable[str]) -> str:
    """One object.

    Args:
        kind: the class of the element, behind ``covan-``.
    """
    return f'<div class="covan covan-{kind}">{"".join(pieces)}</div>'
