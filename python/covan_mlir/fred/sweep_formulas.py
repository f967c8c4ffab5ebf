"""Fused forms as formulas: for people who read records and IR."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.fred.forms import Local, Rolling, Stage, Update
from covan_mlir.fred.formulas import line, text, text_of


def sweep_lines(stage: Stage) -> Iterator[str]:
    """What a sweep computes: its loop first, then what follows from its results, once per position and per row."""
    if stage.rolling is not None:
        yield from _loop(stage.rolling)
    yield from map(line, (*stage.elements, *stage.rows))


def _loop(rolling: Rolling) -> Iterator[str]:
    yield from map(line, rolling.elements)
    for entry in (*rolling.body, *rolling.finish):
        yield _update(entry)


def _update(entry: Local | Update) -> str:
    return text_of(entry.reduce) if isinstance(entry, Local) else f"{entry.name} = {text(entry.expr)}"
