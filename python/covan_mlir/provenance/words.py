"""What tags and the names of groups may be."""

from __future__ import annotations


def is_tag(text: object) -> bool:
    """A printable text without blanks around it: one line of a table shows it whole."""
    return isinstance(text, str) and bool(text) and text.isprintable() and text == text.strip()


def is_group(name: object) -> bool:
    """As a tag, without the sign that numbers a group's calls."""
    return is_tag(name) and "@" not in str(name)
