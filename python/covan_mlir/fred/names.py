"""Names for new values."""

from __future__ import annotations


def fresh(taken: set[str], base: str) -> str:
    """A name that is not taken yet; it is from now on."""
    name, k = base, 1
    while name in taken:
        name, k = f"{base}{k}", k + 1
    taken.add(name)
    return name
