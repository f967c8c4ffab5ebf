"""Names that are not taken yet."""

from __future__ import annotations

import keyword
import re

import torch


def unique(name: str, taken: set[str]) -> str:
    """A name, with a number behind it where it is taken; it is taken then."""
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate)
    return candidate


def identifier(name: str, taken: set[str]) -> str:
    """A name as an identifier of Python that is not taken yet, and of no attribute of modules."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "value"
    plain = f"n_{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) else plain
    candidate, count = plain, 0
    while candidate in taken or hasattr(torch.nn.Module, candidate):
        count += 1
        candidate = f"{plain}_{count}"
    taken.add(candidate)
    return candidate
