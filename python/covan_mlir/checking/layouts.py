"""In which order a tensor of the program may hold the elements of a value of the source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import islice
from math import prod

import numpy as np

from covan_mlir.checking.tensors import Tensor, UnevaluatedError
from covan_mlir.fred.scalars import Array

_GATHERED = 1 << 20
"""Elements of what is looked through one by one."""
_TOLD_APART = 8
"""Draws by which integers are."""
_ROUNDED = 1e-11
"""By so much sums of the same floats may be apart that are added in another order."""
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

    @cached_property
    def plain(self) -> bool:
        """Whether each element has its own place."""
        return self.key == spread(self.size, _COMPARED).tobytes()


@lru_cache(maxsize=256)
def spread(size: int, count: int, seed: int = 0) -> Array:
    """Some positions, in order, among them the first and the last; all if they are few. Not to be written into."""
    if size <= count:
        places = np.arange(size)
    else:
        drawn = np.random.default_rng(seed).integers(0, size, count - 2)
        places = np.unique(np.array([0, size - 1, *drawn]))
    places.flags.writeable = False
    return places


def layouts(source: Sequence[int], target: Sequence[int]) -> Iterator[Order | None]:
    """Ways to lay out a value of one shape in another of as many elements: for each element in row-major order its
    position in the value; None: the same order. The value's own order first, then its dimensions permuted."""
    yield None
    sizes = [size for size in source if size != 1]
    wanted = _cuts([size for size in target if size != 1])
    if len(sizes) > _DIMENSIONS or not all(sizes):
        return
    strides = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    split: list[Order] = []
    for order in itertools.islice(itertools.permutations(range(len(sizes))), 1, None):
        permuted = _cuts([sizes[k] for k in order])
        cuts = sorted(permuted | wanted)
        if any(larger % smaller for smaller, larger in itertools.pairwise(cuts)):
            continue
        moved = Order.strided([sizes[k] for k in order], [strides[k] for k in order])
        if permuted <= wanted or wanted <= permuted:
            yield moved
        else:  # some dimensions were joined, others taken apart
            split.append(moved)
    yield from split


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


def gathered(draws: Iterable[tuple[Tensor, Tensor]]) -> Iterator[Order]:
    """How the elements of a tensor, all of which are computed, are such of a value, some of them several times:
    the columns of a convolution.

    Args:
        draws: the value and the tensor, on the same operands each. No two floats are the same, so that one draw of
            them tells all, though sums in another order are rounded otherwise; integers are told apart by what they are
            in several.
    """
    remaining = iter(draws)
    first = next(remaining, None)
    if first is None:
        return
    source, target = first
    kinds = {source.dtype.kind, target.dtype.kind}
    whole = kinds <= {"i", "u"}
    most = _GATHERED // _TOLD_APART if whole else _GATHERED
    if max(source.size, target.size) > most or not source.size or not (whole or kinds == {"f"}):
        return
    if whole:
        pairs = [first]
        with suppress(UnevaluatedError):  # what was drawn then tells nothing, as an index out of range
            pairs += islice(remaining, _TOLD_APART - 1)
        sizes = {(one.size, other.size) for one, other in pairs}
        if len(pairs) < _TOLD_APART or len(sizes) > 1:  # values may decide how many there are
            return
        values = _mixed([one.all() for one, _ in pairs])
        taken = _places(values, _mixed([other.all() for _, other in pairs]))
    else:
        values = source.all().reshape(-1)
        some = _places(values, target.at(spread(target.size, _COMPARED)))
        taken = None if some is None else _places(values, target.all().reshape(-1))
    if taken is not None:
        places = taken
        distinct = np.unique(values).size == values.size
        yield Order(places.size, lambda flat: np.asarray(places[flat]), sure=distinct)


def _mixed(draws: Sequence[Array]) -> Array:
    """One number for each element, of what it is in several draws: modulo 2**64, by factors that are drawn."""
    factors = np.random.default_rng(0).integers(1, 1 << 63, len(draws), dtype=np.uint64)
    terms = [
        draw.reshape(-1).astype(np.int64).view(np.uint64) * factor for draw, factor in zip(draws, factors, strict=True)
    ]
    return np.asarray(np.sum(terms, axis=0, dtype=np.uint64))


def _places(values: Array, elements: Array) -> Array | None:
    """Where some elements are among values, if all of them are, but for rounding."""
    order = np.argsort(values)
    ordered = values[order]
    above = np.searchsorted(ordered, elements).clip(0, values.size - 1)
    if values.dtype.kind != "f":
        return np.asarray(order[above]) if np.array_equal(ordered[above], elements) else None
    below = np.maximum(above - 1, 0)
    with np.errstate(invalid="ignore"):  # of an infinity the one above is it
        nearest = np.where(np.abs(ordered[below] - elements) < np.abs(ordered[above] - elements), below, above)
    same = np.isclose(ordered[nearest], elements, rtol=_ROUNDED, atol=_ROUNDED).all()
    return np.asarray(order[nearest]) if same else None
