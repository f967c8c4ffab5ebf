"""In which order a tensor of the program may hold the elements of a value of the source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from covan_mlir.fred.scalars import Array

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
