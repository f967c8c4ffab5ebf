"""Products of matrices whose elements are computed when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from covan_mlir.checking.field import PAIR, Exact, dot
from covan_mlir.checking.tensors import Tensor, spend
from covan_mlir.fred.scalars import Array

_PER_FLOP = 32
"""Multiplications of a product in the time in which an element is computed elsewhere."""


def product(word: str, given: Mapping[str, Any], name: str) -> Callable[[Array], Array]:
    """The elements of a product at positions, from rows and columns of its operands.

    Args:
        word: mm, bmm, addmm or baddbmm.
        given: arguments by name; tensors among them are `Tensor`s.
        name: of the operator, for messages.
    """
    left, right = (
        given[side]
        for side in (
            ("mat1", "mat2") if word == "addmm" else ("batch1", "batch2") if word == "baddbmm" else ("self", "mat2")
        )
    )
    rows, depth, columns = left.shape[-2], left.shape[-1], right.shape[-1]

    def at(flat: Array) -> Array:
        upper, column = np.divmod(flat, columns)
        values = np.zeros(flat.shape, left.dtype)
        batches = upper // rows
        for batch in np.unique(batches):
            here = batches == batch
            row, own_row = np.unique(upper[here], return_inverse=True)
            place, own_place = np.unique(column[here], return_inverse=True)
            inner = np.arange(depth)
            spend(row.size * place.size * depth // _PER_FLOP, name)
            one = left.at(row[:, None] * depth + inner)
            other = right.at((batch * depth + inner)[:, None] * columns + place)
            if one.dtype == PAIR:
                values[here] = dot(one[own_row], other.T[own_place])
            else:
                with np.errstate(all="ignore"):  # infinities may meet
                    values[here] = (one @ other)[own_row, own_place]
        if word in ("addmm", "baddbmm") and values.dtype == PAIR:
            added = Exact.of(_broadcast(given["self"], (*left.shape[:-1], columns), flat)) * given.get("beta", 1)
            values = (added + Exact.of(values) * given.get("alpha", 1)).pairs
        elif word in ("addmm", "baddbmm"):
            values = given.get("beta", 1) * _broadcast(given["self"], (*left.shape[:-1], columns), flat) + (
                given.get("alpha", 1) * values
            )
        return values

    return at


def _broadcast(tensor: Tensor, sizes: Sequence[int], flat: Array) -> Array:
    index = np.unravel_index(flat, tuple(sizes))[len(sizes) - len(tensor.shape) :]
    places = [np.zeros_like(place) if size == 1 else place for place, size in zip(index, tensor.shape, strict=True)]
    return tensor.at_index(places)
