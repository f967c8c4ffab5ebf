"""Numbers and flags of a machine or a schedule, changed as somebody says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class IllegalError(ValueError):
    """A machine or a schedule that was asked for cannot be."""


def changes(known: Mapping[str, Any], override: Mapping[str, str], what: str) -> dict[str, Any]:
    """The overridden values, of the types of those that they replace.

    Args:
        known: values by name; of them, numbers and flags can be overridden.
        what: they are of, for messages: ``a machine``.

    Raises:
        IllegalError: there is no such number, or a text is no value of its type.
    """
    changed: dict[str, Any] = {}
    for key, text in override.items():
        kind = type(known.get(key))
        if kind not in (int, float, bool):
            able = ", ".join(name for name, value in known.items() if type(value) in (int, float, bool))
            raise IllegalError(f"{what} has no number {key!r} to change: {able}")
        try:
            changed[key] = text == "true" if kind is bool else kind(text)
        except ValueError:
            raise IllegalError(f"{key} is a {kind.__name__}, not {text!r}") from None
    return changed
