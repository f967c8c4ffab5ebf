"""Where the user wrote an action: plain data, so that what generates code reads it without a compiler at hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ActionLine:
    """An action, and where the user wrote it.

    Attributes:
        ids: its own and those of its parts.
        file: empty if no frame of it is in the user's code; then ``line`` is 0.
    """

    ids: tuple[int, ...]
    name: str
    file: str
    line: int
