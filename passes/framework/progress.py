"""Whoever waits for a pass can be told how far it is."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_told: contextvars.ContextVar[Callable[[str], None] | None] = contextvars.ContextVar("covan_progress", default=None)


def report(text: str) -> None:
    """Tells whoever waits; nobody, where nobody does."""
    told = _told.get()
    if told is not None:
        told(text)


@contextmanager
def telling(told: Callable[[str], None]) -> Iterator[None]:
    """While active, ``told`` is given what passes report."""
    token = _told.set(told)
    try:
        yield
    finally:
        _told.reset(token)
