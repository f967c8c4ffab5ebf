"""The elements on which tensors are compared, and whether they are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from covan_mlir.checking.layouts import Order, spread
from covan_mlir.checking.tensors import Tensor, UnevaluatedError, limited
from covan_mlir.fred.scalars import Array

SAMPLED = 64
_NO_FRACTIONS = 2.0**53
"""From here on floats have no fractions, whatever was computed."""
_TOLERANCE = 2e-5
"""Relative; constants of the program are rounded to its element types."""
_ROUNDED = 1e-7
"""Of what most elements are: by so much one may be off that is a difference, where constants are rounded."""
_WHOLE = 1 << 20
"""Elements of a tensor that is looked through for such as are not what most are."""
_WORK = 1 << 23
"""Elements that are computed for that."""


def positions(size: int, seed: int = 0) -> Array:
    """Some of a tensor's elements; all if they are few."""
    return spread(size, SAMPLED, seed)


def sampled(
    got: Tensor, want: Tensor, layout: Order | None = None, *, seed: int = 0, count: int = SAMPLED
) -> tuple[Array, Array]:
    """Elements to compare two tensors of one size by: some, and where most of these are one number, as of what is one
    in a few places, some of those that are another in either.

    Args:
        layout: for each element of the first its position in the second.
        count: of elements, about.
    """

    def of(flat: Array) -> tuple[Array, Array]:
        return got.at(flat), want.at(flat if layout is None else layout.at(flat))

    flat = spread(got.size, count, seed)
    values, wanted = of(flat)
    mine, other = _usual(values), _usual(wanted)
    if flat.size == got.size or got.size > _WHOLE or mine is None or other is None:
        return values, wanted
    try:
        with limited(_WORK):
            values, wanted = of(np.arange(got.size))
    except UnevaluatedError:
        return values, wanted
    apart = np.flatnonzero((values != mine) | (wanted != other))
    telling = np.union1d(flat, apart[spread(apart.size, count, seed)])
    return values[telling], wanted[telling]


def _usual(values: Array) -> Any:
    """What most of some numbers are; None if they differ, or are none."""
    if not values.size:
        return None
    numbers, counts = np.unique(values, return_counts=True)
    return numbers[counts.argmax()] if 4 * counts.max() >= 3 * values.size else None


def agree(got: Array, want: Array) -> bool:
    """Whether two lists of numbers are the same: integers exactly, others but for rounding; booleans are 0 and 1."""
    if "c" in (got.dtype.kind, want.dtype.kind):
        return agree(got.real, want.real) and agree(got.imag, want.imag)
    if got.dtype.kind in "iu" and want.dtype.kind in "iu":  # programs hold some in fewer bits
        return bool((got == want.astype(got.dtype)).all())
    if got.dtype.kind != "f" or want.dtype.kind != "f":
        return bool((got.astype(np.float64) == want.astype(np.float64)).all())
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(got), np.abs(want))
        usual = scale[np.isfinite(scale)]
        whole = (got == np.rint(got)).all() and (want == np.rint(want)).all()
        if whole and (usual < _NO_FRACTIONS).all():
            return bool((got == want).all())
        least = 1e-12 + (_ROUNDED * np.median(usual) if usual.size else 0.0)
        close = np.abs(got - want) <= _TOLERANCE * scale + least
    return bool((close | (got == want) | (np.isnan(got) & np.isnan(want))).all())


def is_constant(values: Sequence[Tensor]) -> bool:
    """Whether one tensor, drawn again and again, is the same number throughout."""
    numbers = np.concatenate([value.at(positions(value.size)).reshape(-1) for value in values])
    return numbers.size > len(values) and bool((numbers == numbers[0]).all())
