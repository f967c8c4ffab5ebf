"""What translations refuse."""

from __future__ import annotations

from covan_mlir.errors import ExportError


class Refused(ExportError):
    """An operation that is not translated, and why."""


def first_line(error: BaseException) -> str:
    """What an error says first, or what it is."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
