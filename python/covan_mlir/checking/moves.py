"""Operators of torch's that take each element from one place: which place that is, of those that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from covan_mlir.checking.field import PAIR, constant
from covan_mlir.checking.tensors import Tensor, UnevaluatedError
from covan_mlir.fred.scalars import Array

Given = Mapping[str, Any]
"""Arguments by name; tensors among them are `Tensor`s."""
At = Callable[[Array], Array]
PLACED = frozenset({"index", "index_select", "gather", "constant_pad_nd"})


def moved(word: str, given: Given, sizes: Sequence[int]) -> At | None:
    """The elements of a result at positions; None of masks, and of what is no tensor.

    Args:
        word: one of `PLACED`.
        sizes: of the result.
    """
    source = given["self"]
    if not isinstance(source, Tensor):
        return None
    match word:
        case "index":
            return _indexed(source, given["indices"], sizes)
        case "index_select":
            return _selected(source, given["dim"], given["index"], sizes)
        case "gather":
            return _gathered(source, given["dim"], given["index"], sizes)
    return _padded(source, given["pad"], given.get("value", 0), sizes)


def _indexed(source: Tensor, indices: Sequence[Any], sizes: Sequence[int]) -> At | None:
    """Along several dimensions at once: those of the indices, as they are broadcast, stand where the first of these was
    if they are neighbours, else in front."""
    by = [dim for dim, index in enumerate(indices) if index is not None]
    if not by or not all(isinstance(indices[dim], Tensor) and indices[dim].dtype.kind in "iu" for dim in by):
        return None
    shape = np.broadcast_shapes(*(indices[dim].shape for dim in by))
    first = by[0] if by == list(range(by[0], by[-1] + 1)) else 0
    kept = [dim for dim in range(len(source.shape)) if dim not in by]

    def at(flat: Array) -> Array:
        index = np.unravel_index(flat, tuple(sizes)) if sizes else ()
        inner, outer = index[first : first + len(shape)], (*index[:first], *index[first + len(shape) :])
        places: list[Any] = [None] * len(source.shape)
        for dim, place in zip(kept, outer, strict=True):
            places[dim] = place
        for dim in by:
            places[dim] = _inside(_at(indices[dim], inner, flat), source.shape[dim])
        return source.at_index(places)

    return at


def _selected(source: Tensor, dim: int, indices: Tensor, sizes: Sequence[int]) -> At | None:
    if not source.shape or len(indices.shape) != 1:
        return None
    dim %= len(source.shape)

    def at(flat: Array) -> Array:
        places = list(np.unravel_index(flat, tuple(sizes)))
        places[dim] = _inside(indices.at(places[dim]), source.shape[dim])
        return source.at_index(places)

    return at


def _gathered(source: Tensor, dim: int, indices: Tensor, sizes: Sequence[int]) -> At | None:
    if not source.shape or len(indices.shape) != len(source.shape):
        return None
    dim %= len(source.shape)

    def at(flat: Array) -> Array:
        places = list(np.unravel_index(flat, tuple(sizes)))
        places[dim] = _inside(indices.at(flat), source.shape[dim])
        return source.at_index(places)

    return at


def _padded(source: Tensor, pad: Sequence[Any], value: Any, sizes: Sequence[int]) -> At | None:
    """Padding is given for the last dimension first, and takes away where it is negative."""
    if not sizes or not all(isinstance(low, int) for low in pad):
        return None
    before = [0] * len(sizes)
    for k, low in enumerate(pad[::2]):
        before[-1 - k] = low
    outside = constant(np.asarray([value])) if source.dtype == PAIR else np.asarray([value]).astype(source.dtype)

    def at(flat: Array) -> Array:
        index = np.unravel_index(flat, tuple(sizes))
        places = [place - low for place, low in zip(index, before, strict=True)]
        inside = np.all(
            [(place >= 0) & (place < size) for place, size in zip(places, source.shape, strict=True)], axis=0
        )
        values = np.broadcast_to(outside, flat.shape).copy()
        values[inside] = source.at_index([place[inside] for place in places])
        return values

    return at


def _at(indices: Tensor, inner: Sequence[Array], flat: Array) -> Array:
    """Indices at positions of what they are broadcast to."""
    if not indices.shape:
        return np.broadcast_to(indices.all(), flat.shape)
    own = inner[len(inner) - len(indices.shape) :]
    places = [np.zeros_like(place) if size == 1 else place for place, size in zip(own, indices.shape, strict=True)]
    return indices.at_index(places)


def _inside(indices: Array, size: int) -> Array:
    """Indices counted from the front.

    Raises:
        UnevaluatedError: one of them is out of range.
    """
    if ((indices < -size) | (indices >= size)).any():
        raise UnevaluatedError("an index is out of range")
    return np.asarray(np.where(indices < 0, indices + size, indices))
