"""Times of calls in turns: all of them meet the same moments of a machine that others use as well.

::

    for round:
        for call:
            call()                                # not counted: it brings back what the others pushed out
            time of count calls

What counts is the ratio to the reference's time in the same round, as the median over rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

LEAST = 100e-6
"""Seconds that are timed as one: shorter calls are repeated."""
ROUNDS = 5
"""At least, of each."""
MANY = 200
HOPELESS = 1.25
"""Times the reference's time, by which a call is not timed any longer."""
FAIR = 0.25
"""Of the time, that in which all are timed: of how much slower the slow ones are, a model learns, too."""


@dataclass(frozen=True)
class Turns:
    """Times.

    Attributes:
        seconds: median of a call.
        ratio: median of its times over those of the reference in the same round.
        rounds: that it took part in.
    """

    seconds: float
    ratio: float
    rounds: int


def clock_of(driver: str) -> Callable[[], float]:
    """What tells how long calls take on a driver. Where they run on the caller's thread alone, that is the time that
    this thread had: what others take of a core between its turns is not counted."""
    return time.thread_time if driver == "local-sync" else time.perf_counter


def in_turns(
    reference: Callable[[], object],
    calls: Sequence[Callable[[], object]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Turns, list[Turns]]:
    """The times of a reference, and of some calls beside it.

    Args:
        seconds: that it takes in all, or what the least number of rounds does.
        clock: see `clock_of`.
    """
    start = clock()
    end, fair = start + seconds, start + FAIR * seconds
    counts = [_count(call, clock) for call in (reference, *calls)]
    own: list[float] = []
    times: list[list[tuple[float, float]]] = [[] for _ in calls]
    active = list(range(len(calls)))
    while len(own) < ROUNDS or (clock() < end and len(own) < MANY):
        base = _timed(reference, counts[0], clock)
        own.append(base)
        for number in active:
            times[number].append((_timed(calls[number], counts[number + 1], clock), base))
        if len(own) >= ROUNDS and clock() >= fair:
            active = [number for number in active if _ratio(times[number]) < HOPELESS]
            if calls and not active:
                break
    rows = [Turns(median(t for t, _ in rounds), _ratio(rounds), len(rounds)) for rounds in times]
    return Turns(median(own), 1.0, len(own)), rows


def _ratio(rounds: Sequence[tuple[float, float]]) -> float:
    return median(own / base for own, base in rounds)


def _timed(call: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    call()
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def _count(call: Callable[[], object], clock: Callable[[], float]) -> int:
    call()
    start = clock()
    call()
    return max(1, min(1000, int(LEAST / max(clock() - start, 1e-7))))
