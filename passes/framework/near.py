"""What somebody may have meant who mistyped a name."""

import difflib
from collections.abc import Iterable


def nearest(name: str, among: Iterable[str]) -> str:
    """``, did you mean 'cse'?``, or nothing where no name is close."""
    close = difflib.get_close_matches(name, list(among), 1)
    return f", did you mean '{close[0]}'?" if close else ""
