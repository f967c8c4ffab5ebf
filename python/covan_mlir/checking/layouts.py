"""In which order a tensor of the program may hold the elements of a value of the source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import prod

import numpy as np

from covan_mlir.checking.tensors import Tensor
from covan_mlir.fred.scalars import Array

_GATHERED = 1 << 20
"""Elements of what is looked through one by one."""
_DIMENSIONS = 5
"""More than these are not permuted."""
_COMPARED = 2048
"""Positions by which two orders are told apart."""


class Order:
    """For each element of a tensor, in row-major order, its position in a value; -1: it is not written.

    Args:
        at: the positions of some elements. None is ever computed of elements that are not asked for.
        sure: whether no other order would do: in the value no two elements are the same.
    """

    def __init__(self, size: int, at: Callable[[Array], Array], *, sure: bool = True) -> None:
        self.size = size
        self.at = at
        self.sure = sure

    @staticmethod
    def strided(sizes: Sequence[int], strides: Sequence[int], offset: int = 0) -> Order:
        """That of a view in memory."""

        def at(flat: Array) -> Array:
            places = np.full(flat.shape, offset, np.int64)
            rest = flat
            for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
                rest, digit = np.divmod(rest, max(1, size))
                places += digit * stride
            return places

        return Order(prod(sizes), at)

    def through(self, inner: Order) -> Order:
        """The order in a value whose elements are those of another one."""

        def at(flat: Array) -> Array:
            places = self.at(flat)
            return np.where(places < 0, -1, inner.at(np.maximum(places, 0)))

        return Order(self.size, at, sure=self.sure and inner.sure)

    @cached_property
    def key(self) -> bytes:
        """Equal for equal orders."""
        return self.at(spread(self.size, _COMPARED)).tobytes()

    @property
    def plain(self) -> bool:
        """Whether each element has its own place."""
        return self.key == spread(self.size, _COMPARED).tobytes()


def spread(size: int, count: int, seed: int = 0) -> Array:
    """Some positions, in order, among them the first and the last; all if they are few."""
    if size <= count:
        return np.arange(size)
    drawn = np.random.default_rng(seed).integers(0, size, count - 2)
    return np.unique(np.array([0, size - 1, *drawn]))


def layouts(source: Sequence[int], target: Sequence[int]) -> Iterator[Order | None]:
    """Ways to lay out a value of one shape in another of as many elements: for each element in row-major order its
    position in the value; None: the same order. The value's own order first, then its dimensions permuted."""
    yield None
    sizes = [size for size in source if size != 1]
    wanted = _cuts([size for size in target if size != 1])
    if len(sizes) > _DIMENSIONS or not all(sizes):
        return
    strides = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    for order in itertools.islice(itertools.permutations(range(len(sizes))), 1, None):
        permuted = _cuts([sizes[k] for k in order])
        if permuted <= wanted or wanted <= permuted:
            yield Order.strided([sizes[k] for k in order], [strides[k] for k in order])


def _cuts(sizes: Sequence[int]) -> set[int]:
    """Where dimensions begin, in elements."""
    return set(itertools.accumulate(reversed(sizes), lambda a, b: a * b))


def placements(source: Sequence[int], target: Sequence[int]) -> Iterator[Order]:
    """Ways in which a value may be the first or the last piece, along one dimension, of a larger one; the others
    are written later: -1."""
    differing = [k for k, (size, whole) in enumerate(zip(source, target, strict=False)) if size != whole]
    if len(source) != len(target) or len(differing) != 1:
        return
    (dim,) = differing
    if source[dim] > target[dim]:
        return
    inner, length, whole = prod(source[dim + 1 :]), source[dim], target[dim]
    for start in (0, whole - length):

        def at(flat: Array, start: int = start) -> Array:
            outer, rest = np.divmod(flat, whole * inner)
            place, last = np.divmod(rest, inner)
            place = place - start
            return np.where((place >= 0) & (place < length), (outer * length + place) * inner + last, -1)

        yield Order(prod(target), at)


def gathered(source: Tensor, target: Tensor) -> Iterator[Order]:
    """How the elements of a tensor, all of which are computed, are such of a value, some of them several times:
    the columns of a convolution."""
    if max(source.size, target.size) > _GATHERED or source.dtype.kind != "f" or target.dtype.kind != "f":
        return
    values = source.all().reshape(-1)
    if not values.size:
        return
    order = np.argsort(values)
    inner = values[order]

    def places(elements: Array) -> Array | None:
        positions = order[np.searchsorted(inner, elements).clip(0, values.size - 1)]
        return positions if np.array_equal(values[positions], elements) else None

    some = places(target.at(spread(target.size, _COMPARED)))
    whole = None if some is None else places(target.all().reshape(-1))
    if whole is not None:
        taken = whole
        yield Order(taken.size, lambda flat: np.asarray(taken[flat]), sure=bool((inner[1:] != inner[:-1]).all()))
