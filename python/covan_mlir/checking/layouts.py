"""In which order a tensor of the program may hold the elements of a value of the source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from covan_mlir.checking.tensors import Tensor
from covan_mlir.fred.scalars import Array

_GATHERED = 1 << 22
"""Elements of what is looked through one by one."""
_DIMENSIONS = 5
"""More than these are not permuted."""


def layouts(source: Sequence[int], target: Sequence[int]) -> Iterator[Array | None]:
    """Ways to lay out a value of one shape in another of as many elements: for each element in row-major order its
    position in the value; None: the same order. The value's own order first, then its dimensions permuted."""
    yield None
    sizes = [size for size in source if size != 1]
    wanted = _cuts([size for size in target if size != 1])
    if len(sizes) > _DIMENSIONS or not all(sizes):
        return
    places = np.arange(int(np.prod(sizes, dtype=np.int64))).reshape(sizes)
    for order in itertools.islice(itertools.permutations(range(len(sizes))), 1, None):
        permuted = _cuts([sizes[k] for k in order])
        if permuted <= wanted or wanted <= permuted:
            yield np.ascontiguousarray(places.transpose(order)).reshape(-1)


def _cuts(sizes: Sequence[int]) -> set[int]:
    """Where dimensions begin, in elements."""
    return set(itertools.accumulate(reversed(sizes), lambda a, b: a * b))


def placements(source: Sequence[int], target: Sequence[int]) -> Iterator[Array]:
    """Ways in which a value may be the first or the last piece, along one dimension, of a larger one; the others
    are written later: -1."""
    differing = [k for k, (size, whole) in enumerate(zip(source, target, strict=False)) if size != whole]
    if len(source) != len(target) or len(differing) != 1:
        return
    (dim,) = differing
    if source[dim] > target[dim]:
        return
    places = np.arange(int(np.prod(source, dtype=np.int64))).reshape(source)
    for start in (0, target[dim] - source[dim]):
        whole = np.full(target, -1, np.int64)
        whole[(*[slice(None)] * dim, slice(start, start + source[dim]))] = places
        yield whole.reshape(-1)


def gathered(source: Array, target: Tensor) -> Iterator[Array]:
    """How the elements of a tensor, all of which are computed, are such of a value, some of them several times:
    the columns of a convolution."""
    values = source.reshape(-1)
    if target.size > _GATHERED or values.dtype.kind != "f" or target.dtype.kind != "f" or not values.size:
        return
    order = np.argsort(values)
    inner = values[order]
    elements = target.all().reshape(-1)
    places = order[np.searchsorted(inner, elements).clip(0, values.size - 1)]
    if np.array_equal(values[places], elements):
        yield places
