"""The program that is predicted to take least, of those that rules make of one: cost-based backtracking (Jia et al.,
SOSP 2019, algorithm 2).

Programs that were met wait in a queue, the cheapest first. Of each, all that one rule makes are costed; those that take
less than `ALPHA` times the best so far wait in turn, so that a step that costs something may lead to one that gains
more. Large programs are gone through in windows, each cut from the next where few values cross.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from covan_mlir.subst.matching import Direction, Match, Matcher
from covan_mlir.subst.program import Cost, Store, behind, replaced

ALPHA = 1.05
"""How much more than the best a program may take and still be gone on with."""
WINDOW = (24, 48)
"""Operators in a window: at least, at most."""
PATIENCE = 24
"""Programs in a row that are gone on with in a window without meeting a better one."""
SLIGHT = 1e-3
"""The part of its time that a step has to be predicted to save, to be called better."""
WORTH = 1e-2
"""The part of its time that a program has to be predicted to save, to be used."""


@dataclass(frozen=True)
class Step:
    """A rule, applied.

    Attributes:
        new: the nodes that took the place of the match's results.
    """

    match: Match
    new: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """What a search gave.

    Attributes:
        roots: what the program computes, as nodes; those that were given where nothing is predicted to be faster.
        steps: that lead there, in their order.
        before, after: predicted seconds of a call.
        states: programs that were gone on with.
        costed: programs whose time was predicted.
        finished: whether the search ended by itself, and not by its time limit.
    """

    roots: tuple[int, ...]
    steps: tuple[Step, ...]
    before: float
    after: float
    states: int
    costed: int
    finished: bool


@dataclass(frozen=True)
class _State:
    """A window's part of a program.

    Attributes:
        roots: nodes that are read from elsewhere.
    """

    roots: tuple[int, ...]
    steps: tuple[Step, ...] = ()


def search(
    store: Store,
    roots: Sequence[int],
    rules: Sequence[Direction],
    cost: Cost,
    seconds: float,
    *,
    patience: int = PATIENCE,
    note: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Look for a program that takes less.

    Args:
        roots: what the program computes.
        rules: that may be applied.
        seconds: after which the best so far is taken.
        patience: see `PATIENCE`.
        note: is told how far it is.
    """
    return _Search(store, Matcher(store, rules), cost, patience, note, clock).run(tuple(roots), seconds)


class _Search:
    def __init__(
        self,
        store: Store,
        matcher: Matcher,
        cost: Cost,
        patience: int,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self.store = store
        self.matcher = matcher
        self.cost = cost
        self.patience = patience
        self.note = note
        self.clock = clock
        self.states = self.costed = 0

    def run(self, roots: tuple[int, ...], seconds: float) -> Outcome:
        began = self.clock()
        first = roots
        before = after = self._cost(roots, behind(self.store, roots))
        windows = cut(self.store, behind(self.store, roots))
        moved = {number: number for window in windows for number in window}
        steps: tuple[Step, ...] = ()
        finished = True
        fruitless: set[object] = set()
        for place, window in enumerate(windows):
            left = seconds - (self.clock() - began)
            if left <= 0:
                finished = False
                break
            inside = {moved[number] for number in window}
            share = left / (len(windows) - place)
            alike = shape_of_window(self.store, inside)
            if alike in fruitless:
                continue
            better, ended = self._window(inside, roots, self.clock() + share)
            finished = finished and ended
            if ended and not better.steps:
                fruitless.add(alike)
            if better.steps:
                now = dict(moved)
                for step in better.steps:
                    now = self._replaced(now, step)
                leading = tuple(now.get(number, number) for number in first)
                cheapest = self._cost(leading, behind(self.store, leading))
                if cheapest < after:  # of the whole, too
                    moved, roots, after, steps = now, leading, cheapest, steps + better.steps
            self.note(f"window {place + 1} of {len(windows)}: {len(steps)} steps, {after * 1e6:.1f} us")
        if after > before * (1 - WORTH):
            return Outcome(first, (), before, before, self.states, self.costed, finished)
        return Outcome(roots, steps, before, after, self.states, self.costed, finished)

    def _replaced(self, moved: dict[int, int], step: Step) -> dict[int, int]:
        """What the nodes of a program are after one more step."""
        order = behind(self.store, moved.values())
        after = replaced(self.store, order, dict(zip(step.match.results, step.new, strict=True)))
        return {number: after[value] for number, value in moved.items()}

    def _cost(self, roots: Sequence[int], order: Sequence[int]) -> float:
        self.costed += 1
        return self.cost(self.store, order, roots)

    def _window(self, inside: set[int], roots: Sequence[int], deadline: float) -> tuple[_State, bool]:
        """The cheapest part of a program that steps in a window lead to, and whether the search ended by itself."""
        order = behind(self.store, roots)
        read = {arg for number in order if number not in inside for arg in self.store[number].args} | set(roots)
        ends = frozenset(arg for number in inside for arg in self.store[number].args if arg not in inside)
        start = _State(tuple(number for number in order if number in inside and number in read))
        best = start
        least = self._cost(start.roots, behind(self.store, start.roots, ends))
        waiting: list[tuple[float, int, _State]] = [(least, 0, start)]
        met = {start.roots}
        count = without = 0
        while waiting:
            at, _, state = heapq.heappop(waiting)
            if at > ALPHA * least:
                continue
            if without >= self.patience:
                return best, True
            without += 1
            self.states += 1
            order = behind(self.store, state.roots, ends)
            for match in list(self.matcher.matches(order)):
                if self.clock() > deadline:
                    return best, False
                following = self._after(state, match, order)
                if following is None or following.roots in met:
                    continue
                met.add(following.roots)
                seconds = self._cost(following.roots, behind(self.store, following.roots, ends))
                if seconds < least * (1 - SLIGHT):
                    best, least, without = following, seconds, 0
                if seconds < ALPHA * least:
                    count += 1
                    heapq.heappush(waiting, (seconds, count, following))
        return best, True

    def _after(self, state: _State, match: Match, order: Sequence[int]) -> _State | None:
        new = self.matcher.built(match)
        if new is None or new == match.results:
            return None
        after = replaced(self.store, order, dict(zip(match.results, new, strict=True)))
        return _State(tuple(after[root] for root in state.roots), (*state.steps, Step(match, new)))


def shape_of_window(store: Store, inside: set[int]) -> object:
    """What a part of a program is, whatever its numbers: equal for layers that are built alike."""
    order = sorted(inside)
    place: dict[int, object] = {number: at for at, number in enumerate(order)}
    rows = []
    for number in order:
        node = store[number]
        for arg in node.args:
            if arg not in place:
                given = store[arg]
                place[arg] = ("given", len(place), given.shape, given.element, given.constant)
        label = node.op if node.known else node.op.partition(" ")[0]
        args = tuple(place[arg] for arg in node.args)
        rows.append((label, args, node.attributes, node.shape, node.element, node.constant))
    return tuple(rows)


def cut(store: Store, order: Sequence[int], window: tuple[int, int] = WINDOW) -> list[list[int]]:
    """A program's nodes in windows, each ending where few values go on to be read: of cuts that leave as many
    operators in a window as it may have, the one that fewest values cross.

    Args:
        order: operands first.
    """
    least, most = window
    last: dict[int, int] = {}
    for place, number in enumerate(order):
        for arg in store[number].args:
            last[arg] = place
    open_after: list[int] = []
    ends: dict[int, int] = {}
    crossing = 0
    for place, number in enumerate(order):
        if not store[number].constant and last.get(number, place) > place:
            crossing += 1
            ends[last[number]] = ends.get(last[number], 0) + 1
        crossing -= ends.get(place, 0)
        open_after.append(crossing)
    windows: list[list[int]] = []
    start, operators = 0, 0
    choice: tuple[int, int] | None = None
    place = 0
    while place < len(order):
        node = store[order[place]]
        operators += node.known and not node.constant
        if operators >= least and (choice is None or open_after[place] <= choice[0]):
            choice = open_after[place], place
        if operators >= most and choice is not None:
            windows.append(list(order[start : choice[1] + 1]))
            start, place, operators, choice = choice[1] + 1, choice[1], 0, None
        place += 1
    if start < len(order):
        windows.append(list(order[start:]))
    return windows
