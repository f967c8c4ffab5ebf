"""One of several ways for each of several things."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, islice
from typing import Any, TypeVar

from covan_mlir.checking.layouts import Order
from covan_mlir.provenance.arguments import Operand

_Thing = TypeVar("_Thing")
_Choice = TypeVar("_Choice")

TWICE = 6
"""How many later choices count as much as one operand that is taken twice."""


def combinations(choices: Sequence[Sequence[tuple[Operand, Order | None]]]) -> Iterator[tuple[Any, ...]]:
    """One of each: first choices first, of those that nobody has taken yet; then some that take an operand twice.

    The best is searched first among beginnings, which grow by the next of what has fewest choices: the first
    combination takes as many steps as there are things, however many of them have the same choices.
    """
    order = sorted(range(len(choices)), key=lambda k: len({operand for operand, _ in choices[k]}))
    if not order:
        yield ()
        return
    number = count()
    # A beginning, the ranked ways to go on with it, and which of them is next. Of equal costs the longest is first.
    waiting: list[tuple[int, int, int, tuple[int, ...], list[tuple[int, int]], int]] = []

    def push(cost: int, taken: tuple[int, ...], ways: list[tuple[int, int]], at: int) -> None:
        if at < len(ways):
            heappush(waiting, (cost + ways[at][0], -len(taken), next(number), taken, ways, at))

    push(0, (), _ranked(choices[order[0]], set()), 0)
    while waiting:
        total, _, _, taken, ways, at = heappop(waiting)
        cost, way = ways[at]
        push(total - cost, taken, ways, at + 1)
        longer = (*taken, way)
        if len(longer) < len(order):
            used = {choices[k][one][0] for k, one in zip(order, longer, strict=False)}
            push(total, longer, _ranked(choices[order[len(longer)]], used), 0)
            continue
        chosen = dict(zip(order, longer, strict=True))
        yield tuple(choices[k][chosen[k]] for k in range(len(choices)))


def in_turn(ways: Iterable[tuple[_Thing, Iterator[_Choice]]]) -> Iterator[tuple[_Thing, _Choice]]:
    """Each of some things with the first of its choices, then each with the second: none waits for all of another's."""
    left = list(ways)
    while left:
        going: list[tuple[_Thing, Iterator[_Choice]]] = []
        for thing, choices in left:
            for choice in islice(choices, 1):
                yield thing, choice
                going.append((thing, choices))
        left = going


def _ranked(ways: Sequence[tuple[Operand, Order | None]], used: set[Operand]) -> list[tuple[int, int]]:
    """Pairs (cost, way), the least first: those whose operand is free, then the others."""
    free = [k for k, (operand, _) in enumerate(ways) if operand not in used]
    again = [k for k, (operand, _) in enumerate(ways) if operand in used]
    ranked = [*enumerate(free), *((TWICE + rank, k) for rank, k in enumerate(again))]
    return sorted(ranked)
