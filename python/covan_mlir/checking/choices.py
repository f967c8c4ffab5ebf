"""One of several ways for each of several things."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from covan_mlir.checking.layouts import Order
from covan_mlir.provenance.arguments import Operand


def combinations(choices: Sequence[Sequence[tuple[Operand, Order | None]]]) -> Iterator[tuple[Any, ...]]:
    """One of each: first choices first, and none twice before some are."""
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, (0,) * len(choices))]
    seen = {waiting[0][1]}
    doubled: list[tuple[Any, ...]] = []
    while waiting:
        rank, numbers = heappop(waiting)
        chosen = tuple(ways[number] for ways, number in zip(choices, numbers, strict=True))
        if len({operand for operand, _ in chosen}) == len(chosen):
            yield chosen
        else:
            doubled.append(chosen)
        for k, ways in enumerate(choices):
            following = (*numbers[:k], numbers[k] + 1, *numbers[k + 1 :])
            if following[k] < len(ways) and following not in seen:
                seen.add(following)
                heappush(waiting, (rank + 1, following))
    yield from doubled
