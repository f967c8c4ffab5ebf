"""The steps of a search, gone through again beside the function that they began with: what becomes of each value, what
each new node stands for, and where each step took place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from covan_mlir.passes.substitution.reading import Reading
from covan_mlir.subst.program import Store, behind, replaced
from covan_mlir.subst.search import Step

Place = str
"""Of a node; see `covan_mlir.provenance.substitution`."""


@dataclass(frozen=True)
class Site:
    """Where a step took place.

    Attributes:
        calls: positions of the calls that did what was replaced, of each result.
        results, bindings: places.
    """

    calls: tuple[frozenset[int], ...]
    results: tuple[Place, ...]
    bindings: Mapping[str, Place]


@dataclass
class Replay:
    """What steps make of a function.

    Attributes:
        after: what each node of the function is in the end.
        owners: positions of the calls whose work each new node does.
        sites: of each step.
    """

    after: dict[int, int]
    owners: dict[int, frozenset[int]]
    sites: list[Site] = field(default_factory=list)


def replay(reading: Reading, steps: Sequence[Step], named: Mapping[Place, int]) -> Replay:
    """Go through steps.

    Args:
        named: nodes of the function that have a place by themselves.
    """
    store = reading.store
    first = behind(store, {*reading.nodes.values(), *(n for inner in reading.covered for n in inner)})
    result = Replay({number: number for number in first}, {})
    owners: dict[int, set[int]] = {}
    for position, (results, inner) in enumerate(zip(reading.results, reading.covered, strict=True)):
        for number in {*results, *inner}:
            owners.setdefault(number, set()).add(position)
    places = dict(named)
    for count, step in enumerate(steps):
        match = step.match
        bindings = dict(match.bindings)
        named_now = _places(store, places)
        regions = [_region(store, number, bindings.values()) for number in match.results]
        calls = [frozenset().union(*(owners.get(number, set()) for number in region)) for region in regions]
        result.sites.append(
            Site(
                tuple(calls),
                tuple(named_now[number] for number in match.results),
                {name: named_now[number] for name, number in bindings.items()},
            )
        )
        order = behind(store, {*result.after.values(), *places.values()})
        known = set(order)
        for new, doing in zip(step.new, calls, strict=True):
            for number in _region(store, new, bindings.values()):
                if number not in known:
                    owners.setdefault(number, set()).update(doing)
        moved = replaced(store, order, dict(zip(match.results, step.new, strict=True)))
        for number, now in moved.items():
            if now != number and number not in match.results and now not in known:
                owners.setdefault(now, set()).update(owners.get(number, ()))
        result.after = {number: moved[now] for number, now in result.after.items()}
        places = {place: moved[now] for place, now in places.items()}
        places |= {f"s{count}.{at}": number for at, number in enumerate(step.new)}
    result.owners = {number: frozenset(calls_) for number, calls_ in owners.items()}
    return result


def _region(store: Store, root: int, bindings: Iterable[int]) -> set[int]:
    """What lies between a node and others, itself among it."""
    inner: set[int] = set()
    ends = set(bindings)
    stack = [root] if root not in ends else []
    while stack:
        number = stack.pop()
        if number not in inner:
            inner.add(number)
            stack += [arg for arg in store[number].args if arg not in ends]
    return inner


def _places(store: Store, named: Mapping[Place, int]) -> dict[int, Place]:
    """A place of each node that one can be given, the shortest first."""
    places: dict[int, Place] = {}
    for place, number in named.items():
        places.setdefault(number, place)
    waiting = list(places.items())
    for number, place in waiting:  # grows
        if store[number].known:
            for at, arg in enumerate(store[number].args):
                if arg not in places:
                    places[arg] = f"{place}/{at}"
                    waiting.append((arg, places[arg]))
    return places
