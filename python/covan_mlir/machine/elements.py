"""Element types, as chains call them."""

from __future__ import annotations

_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i1": 8, "index": 64}


def bits(dtype: str) -> int:
    """Bits that an element takes in memory."""
    return _BITS[dtype]
