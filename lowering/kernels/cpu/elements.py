"""Element types: what values are stored in, computed in and reduced in."""

from __future__ import annotations

_COMPUTED = {"f16": "f32", "bf16": "f32"}


def computed(dtype: str) -> str:
    """The element type that values of a stored type are computed in."""
    return _COMPUTED.get(dtype, dtype)


def storage(dtype: str) -> str:
    """The element type of a value in memory."""
    return "i8" if dtype == "i1" else dtype


def accumulated(dtype: str) -> str:
    """The element type that a reduction is computed in: narrow integers in 64 bits."""
    return computed(dtype) if computed(dtype)[0] == "f" or dtype == "i1" else "i64"
