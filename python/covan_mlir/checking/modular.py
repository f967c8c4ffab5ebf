"""The first witness: whether a result and a value are the same function, in exact arithmetic.

Where both are the same element of the field at random points, they are the same function: but for a chance of at most
the degree over the prime for each point. Where they differ, that counts only if nothing else can be the reason:
functions that are not rational must be the same ones of the same arguments on both sides, and constants must be as the
source has them, for compilers compute constants ahead of time, and round them. What the field leaves open, float64
decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from covan_mlir.checking.field import PAIR, Trace, replaced, same, traced
from covan_mlir.checking.tensors import UnevaluatedError, exactly, limited
from covan_mlir.fred.scalars import Array

FEW = 8
"""Positions at which both are compared."""
_WORK = 1 << 21
"""Elements that are computed for it."""
_BITS = 12
"""Of a constant that was not rounded; one that was has no more than these with a probability of 2^-12."""
_ROUNDED = 2.0**-22
"""By how much, relatively, a constant may differ that was computed ahead of time: two to four units in float32's last
place."""
_FOLDED = 8
"""Constants that may be such."""
_NOISE = 1e-13
"""Relative error of float64 beside which that of constants is told."""

_ERRORS = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""Of code that float64 evaluates, and whose operations take no pairs."""


@dataclass(frozen=True)
class Finding:
    """What exact arithmetic says.

    Attributes:
        why: it leaves that open.
    """

    outcome: Literal["equal", "different", "open"]
    why: str = ""


def compared(want: Callable[[], Array], got: Callable[[], Array], *, folding: Callable[[], bool]) -> Finding:
    """Whether a result is a value.

    Args:
        want: the value's elements at some positions.
        got: the result's elements at the same positions.
        folding: whether the value is computed with numbers that were computed of numbers alone.
    """
    try:
        with exactly(), limited(_WORK):
            with traced() as source:
                wanted = want()
            with traced() as program:
                gotten = got()
            if PAIR not in (wanted.dtype, gotten.dtype):
                return Finding("equal")  # integers, which float64's witness compares exactly
            if wanted.dtype != gotten.dtype:
                return Finding("open", "a float is held as an integer")
            equal, differ = same(gotten, wanted)
            if equal.all():
                return Finding("equal")
            if not differ.any():
                return Finding("open", "there is no finite number")
            if source.atoms != program.atoms:
                return Finding("open", "functions that are not rational are of other arguments")
            if source.roots:
                return Finding("open", "roots and powers depend on their arguments")
            rounded = source.rounded or program.rounded or folding()
            if rounded or _explained(source, program, wanted, gotten, got):
                return Finding("open", "constants may have been computed ahead of time")
            return Finding("different")
    except UnevaluatedError as error:
        return Finding("open", f"no exact arithmetic for {error}")
    except _ERRORS as error:
        return Finding("open", f"no exact arithmetic: {error!r}")


def _explained(source: Trace, program: Trace, wanted: Array, gotten: Array, got: Callable[[], Array]) -> bool:
    """Whether roundings of constants may be why they differ: those of the program that the source does not have."""
    known = {sign * number for number in source.constants for sign in (1.0, -1.0)}
    others = {number for number in program.constants if number not in known and _rounded(number)}
    if not others or len(others) > _FOLDED:
        return bool(others)
    value = gotten["value"]
    allowed = _NOISE * np.abs(value)
    for number in others:
        with replaced({number: number * (1.0 + _ROUNDED)}):
            allowed = allowed + np.abs(got()["value"] - value)
    with np.errstate(all="ignore"):
        return bool((np.abs(value - wanted["value"]) <= allowed * 1.01).all())


def _rounded(number: float) -> bool:
    """Whether it may be the rounding of another one."""
    mantissa, _ = math.frexp(number)
    return math.isfinite(number) and not (mantissa * 2.0**_BITS).is_integer()
