"""What tags and the names of groups may be."""

from __future__ import annotations

from collections.abc import Iterable

from covan_mlir.errors import TagError


def is_tag(text: object) -> bool:
    """A printable text without blanks around it: one line of a table shows it whole."""
    return isinstance(text, str) and bool(text) and text.isprintable() and text == text.strip()


def is_group(name: object) -> bool:
    """As a tag, without the sign that numbers a group's calls."""
    return is_tag(name) and "@" not in str(name)


def checked(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags, once each.

    Raises:
        TagError: there is none, or one is no text, empty, not printable, or has blanks around it.
    """
    words = tuple(dict.fromkeys(tags))
    if not words:
        raise TagError("no tag is given: write tag('blocks.0', 'audit:pii')")
    for text in words:
        if not is_tag(text):
            raise TagError(f"{text!r} is no tag: a tag is a printable text without blanks around it")
    return words
