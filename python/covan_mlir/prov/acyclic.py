"""Weak bisimilarity of states that no cycle holds or leads to: one pass from the ends, classes by normal forms.

States from which no cycle can be reached go first, as in Dovier, Piazza & Policriti (An efficient algorithm for
computing bisimulation equivalence, 2004). For weak bisimilarity a class is found by its normal form, the transitions
that Eloranta (Minimizing the number of transitions with respect to observation equivalence, 1991) shows to be
necessary: the silent steps that no other silent step implies, and the visible ones that neither a silent step nor
another visible one with the same label implies. The relation of weak transitions is never built.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

from covan_mlir.prov.silent import Reduced

_QUERIES = 10_000  # single searches for one state beyond which one search for all is cheaper


class NormalForms:
    """Classes of weak bisimilarity, numbered so that what a class reaches has a smaller number.

    Classes on cycles are the exception: they are adopted together from another algorithm, and reach each other.
    Their silent steps obey the rule, for silent steps form no cycle.

    Attributes:
        tau: necessary silent steps of each class, to other classes.
        visible: necessary visible steps of each class: label -> classes.
    """

    def __init__(self) -> None:
        self.tau: list[tuple[int, ...]] = []
        self.visible: list[dict[int, list[int]]] = []
        self._ends: list[bool] = []
        self._class_of: dict[object, int] = {}
        self._adopted = range(0)
        # Sets of classes reached by at least one silent step, as bits; only targets of silent steps have a bit.
        self._bit: dict[int, int] = {}
        self._reach: list[int] = []
        self._above: dict[int, list[int]] = {}  # class -> classes with a necessary silent step to it
        self._sources: dict[tuple[int, int], list[int]] = {}  # (label, class) -> classes with that necessary step
        self._offering: dict[int, list[int]] = {}  # label -> classes with a necessary step of that label

    def __len__(self) -> int:
        return len(self.tau)

    def classify(self, reduced: Reduced, order: list[int], classes: dict[int, int]) -> None:
        """Add to ``classes`` the class of each state in ``order``, in which every state comes after its successors."""
        ends = reduced.system.terminating.tolist()
        for s in order:
            tau = {classes[t] for t in reduced.tau[s]}
            visible = {(a, classes[t]) for a, t in reduced.visible[s]}
            steps = self._maximal(tau)
            needed = self._needed(steps, visible)
            ends_here = ends[s] and not any(self._ends[u] for u in steps)
            if len(steps) == 1 and not needed and not ends_here:
                classes[s] = steps[0]  # adds nothing to its one silent step
                continue
            key = (ends_here, frozenset(steps), frozenset(needed))
            if key not in self._class_of:
                self._class_of[key] = self._add(steps, ends_here)
                self._offer(len(self) - 1, needed)
            classes[s] = self._class_of[key]

    def adopt(self, reduced: Reduced, states: list[int], classes: dict[int, int]) -> None:
        """Give numbers to classes found otherwise, once and between two calls of ``classify``.

        Args:
            reduced: the system.
            states: a state of each class without silent steps within its class, each after those that the silent
                steps of its class reach.
            classes: classes so far; the state at position i of ``states``, and all of its class, have
                ``len(self) + i`` there already.
        """
        self._adopted = range(len(self), len(self) + len(states))
        ends = reduced.system.terminating.tolist()
        steps = [self._maximal_and_new({classes[t] for t in reduced.tau[s]}, ends[s]) for s in states]
        for number, s, (silent, ends_here) in zip(self._adopted, states, steps, strict=True):
            needed = self._needed(silent, {(a, classes[t]) for a, t in reduced.visible[s]})
            self._offer(number, needed)
            self._class_of[ends_here, frozenset(silent), frozenset(needed)] = number

    def _maximal_and_new(self, tau: set[int], ends: bool) -> tuple[list[int], bool]:
        steps = self._maximal(tau)
        ends_here = ends and not any(self._ends[u] for u in steps)
        self._add(steps, ends_here)
        return steps, ends_here

    def _needed(self, steps: list[int], visible: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """The visible steps that neither the silent ones nor each other imply."""
        by_label: dict[int, set[int]] = {}
        for a, c in visible:
            by_label.setdefault(a, set()).add(c)
        candidates = {(a, c) for a, targets in by_label.items() for c in self._maximal(targets)}
        if len(candidates) * len(steps) > _QUERIES:
            return candidates - self._all_implied(steps, candidates)
        return {(a, c) for a, c in candidates if not any(self._implied(u, a, c) for u in steps)}

    def _all_implied(self, steps: list[int], candidates: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Those visible steps that one of the silent ones implies, by one walk along all silent steps."""
        targets: dict[int, set[int]] = {a: set() for a, _ in candidates}
        seen, queue = set(steps), list(steps)
        for v in queue:
            for a in targets.keys() & self.visible[v].keys():
                targets[a].update(self.visible[v][a])
            fresh = [u for u in self.tau[v] if u not in seen]
            seen.update(fresh)
            queue += fresh
        below = {a: reduce(or_, (self._reach[w] for w in some), 0) for a, some in targets.items()}
        return {(a, c) for a, c in candidates if c in targets[a] or (c in self._bit and below[a] >> self._bit[c] & 1)}

    def _add(self, steps: list[int], ends_here: bool) -> int:
        new = len(self.tau)
        reach = 0
        for u in steps:
            reach |= self._reach[u] | (1 << self._bit.setdefault(u, len(self._bit)))
            self._above.setdefault(u, []).append(new)
        self.tau.append(tuple(steps))
        self.visible.append({})
        self._ends.append(ends_here or any(self._ends[u] for u in steps))
        self._reach.append(reach)
        return new

    def _offer(self, number: int, needed: set[tuple[int, int]]) -> None:
        offers = self.visible[number]
        for a, c in needed:
            offers.setdefault(a, []).append(c)
            self._sources.setdefault((a, c), []).append(number)
        for a in offers:
            self._offering.setdefault(a, []).append(number)

    def _bound(self, u: int) -> int:
        """All that visible steps from ``u`` lead to has smaller numbers than this."""
        return self._adopted.stop if u in self._adopted else u

    def _reaches(self, u: int, c: int) -> bool:
        """Whether ``u`` has silent steps to ``c``, or is ``c``."""
        if u == c:
            return True
        bit = self._bit.get(c)
        return bit is not None and c < u and bool(self._reach[u] >> bit & 1)

    def _maximal(self, classes: set[int]) -> list[int]:
        """Those that no other of them has silent steps to."""
        if len(classes) == 1:
            return list(classes)
        kept: list[int] = []
        below = 0
        for c in sorted(classes, reverse=True):
            bit = self._bit.get(c)
            if bit is None or not below >> bit & 1:
                kept.append(c)
                below |= self._reach[c]
        return kept

    def _implied(self, u: int, a: int, c: int) -> bool:
        """Whether ``u`` can do ``a``, with silent steps before and after, and be in ``c``."""
        if c >= self._bound(u) or a not in self._offering:
            return False
        if any(self._reaches(w, c) for w in self.visible[u].get(a, ())):
            return True
        if not self.tau[u]:
            return False
        # Three searches, from either end and by label, in turn: whichever is exhausted first has the answer.
        searches = self._from_target(u, a, c), self._from_source(u, a, c), self._by_label(u, a, c)
        return any(any(answers) for answers in zip(*searches, strict=False))

    def _from_target(self, u: int, a: int, c: int) -> Iterator[bool]:
        seen, queue = {c}, [c]
        for w in queue:
            for v in self._sources.get((a, w), ()):
                yield self._reaches(u, v)
            for higher in self._above.get(w, ()):
                if higher < self._bound(u) and higher not in seen:
                    seen.add(higher)
                    queue.append(higher)
                yield False

    def _from_source(self, u: int, a: int, c: int) -> Iterator[bool]:
        seen, queue = {u}, [u]
        for v in queue:
            for w in self.visible[v].get(a, ()):
                yield self._reaches(w, c)
            for lower in self.tau[v]:
                if self._bound(lower) > c and lower not in seen:
                    seen.add(lower)
                    queue.append(lower)
                yield False

    def _by_label(self, u: int, a: int, c: int) -> Iterator[bool]:
        for v in reversed(self._offering[a]):
            if c < self._bound(v) and self._reaches(u, v):
                for w in self.visible[v][a]:
                    yield self._reaches(w, c)
            else:
                yield False
