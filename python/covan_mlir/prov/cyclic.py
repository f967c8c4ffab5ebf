"""Weak bisimilarity of states that can reach a cycle: refinement by weak signatures."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import reduce

import numpy as np

from covan_mlir.prov.partition import Partition
from covan_mlir.prov.silent import Reduced
from covan_mlir.prov.system import IntArray

_LEVELS = 1000  # silent steps nested deeper than this are walked in Python, not level by level in numpy
_ROOM = 3_000_000  # elements of sets held at a time
_BITS = 5_000_000_000  # states times blocks, for two tables of that many bits
_VISITS = 5_000_000  # states times labels
_PATIENCE = 40  # random rounds that make few blocks; one that makes none counts for several
_RANGE = 1 << 61  # two such numbers add up within int64


class Refinement:
    """Refines a partition of a reduced system until the states of every block have equal weak signatures.

    The weak signature of a state is its set of (label, block) such that a state of the block is reached by that label
    with silent steps before and after, of blocks reached by silent steps alone, and of weak termination. Equal
    signatures throughout is weak bisimilarity (Milner, Communication and Concurrency, 1989, ch. 5).

    Comparing signatures set by set costs the transitive closure, so it is done only where the sets stay small: when
    few states are left to compare, as along a deep graph. Otherwise the signatures' greatest elements in a few random
    orders are compared, which pass along silent steps as plain numbers; states that differ there do differ. What
    stays together is checked step by step against one state of its block, and what fails splits the block again.
    """

    def __init__(self, reduced: Reduced, partition: Partition, open_states: IntArray) -> None:
        """``open_states`` may be split; the blocks of the others are final, and none of them reaches an open one."""
        self.reduced = reduced
        self.partition = partition
        self.open = open_states
        self._random = np.random.default_rng(0)
        self._too_many = 1 + open_states.size  # so many states at a time that their signatures would not fit
        self._levels = _silent_levels(reduced)
        self._rank = [0] * reduced.system.states
        for position, s in enumerate(reduced.order):
            self._rank[s] = position
        self._tau_before: list[list[int]] = [[] for _ in self._rank]
        self._before: list[list[int]] = [[] for _ in self._rank]
        for s in open_states.tolist():
            for t in reduced.tau[s]:
                self._tau_before[t].append(s)
            for _, t in reduced.visible[s]:
                self._before[t].append(s)

    def run(self) -> None:
        """Refine to the end."""
        ends = self._spread(self.reduced.system.terminating.astype(np.int64))
        self.partition.split_by(self.open, ends[self.open])
        slow = 0
        while slow < _PATIENCE:
            new_blocks = self._sketch()
            slow += 1 if new_blocks else _PATIENCE // 4
            if new_blocks > self.open.size // 1000:
                slow = 0
        if self._follow(self.open.tolist()):
            return
        # From here on signatures may split further, but cannot tell that all is done: not all were compared.
        while failures := self._failures():
            self.partition.time += 1
            changed = [s for b, groups in failures.items() for s in self.partition.split(b, groups)]
            if len(changed) > self.open.size // 1000:
                self._sketch()
            self._follow(changed)

    def _follow(self, changed: list[int]) -> bool:
        """Split by exact signatures where they may have changed, until none has; false if the sets grow too large."""
        partition = self.partition
        while dirty := {s for s in self._reaching(changed) if len(partition.members[partition.block[s]]) > 1}:
            signatures: Mapping[int, Hashable] | None = None
            if len(dirty) < self._too_many:
                signatures = self._signatures(dirty)
            if signatures is None:
                self._too_many = min(self._too_many, 1 + len(dirty) // 4)
                signatures = self._wide_signatures(dirty)
            if signatures is None:
                return False
            partition.time += 1
            groups: dict[int, dict[Hashable, list[int]]] = {}
            for s, signature in signatures.items():
                groups.setdefault(partition.block[s], {}).setdefault(signature, []).append(s)
            # What is not dirty reaches no new block number, and what is dirty does: they differ without looking.
            changed = [s for b, parts in groups.items() for s in partition.split(b, list(parts.values()))]
        return True

    def _sketch(self) -> int:
        """One random round; returns how many blocks it made."""
        blocks, system = len(self.partition), self.reduced.system
        block = np.array(self.partition.block, dtype=np.int64)
        key = np.zeros(self.open.size, dtype=np.int64)
        for _ in range(2):
            reached = self._spread(self._random.integers(_RANGE, size=blocks)[block])
            offered = self._random.integers(_RANGE, size=len(system.labels))[system.label] + reached[system.dst]
            offered[system.label == 0] = -1
            greatest = np.full(system.states, -1, dtype=np.int64)
            np.maximum.at(greatest, system.src, offered)
            for feature in (reached, self._spread(greatest)):
                dense = np.unique(feature[self.open], return_inverse=True)[1].astype(np.int64)
                key = np.unique(key * self.open.size + dense, return_inverse=True)[1].astype(np.int64)
        self.partition.time += 1
        self.partition.split_by(self.open, key)
        return len(self.partition) - blocks

    def _spread(self, values: IntArray) -> IntArray:
        """The greatest value among the states reached by silent steps, for each state."""
        if self._levels is None:
            out = values.tolist()
            for s in self.reduced.order:
                if silent := self.reduced.tau[s]:
                    out[s] = max(out[s], *[out[t] for t in silent])
            return np.array(out, dtype=np.int64)
        spread = values.copy()
        for states, targets, starts in self._levels:
            spread[states] = np.maximum(spread[states], np.maximum.reduceat(spread[targets], starts))
        return spread

    def _signatures(self, states: set[int]) -> dict[int, frozenset[int]] | None:
        """Exact weak signatures, as codes ``label + labels * block``; silent reachability has label 0.

        None if the sets would hold too much.
        """
        room = _ROOM
        tau, visible, block = self.reduced.tau, self.reduced.visible, self.partition.block
        shift = len(self.reduced.system.labels)
        acting = self._silently_reached(states)
        reached: dict[int, frozenset[int]] = {}
        targets = {t for s in acting for _, t in visible[s]}
        for s in self._silently_reached(targets.union(acting)):
            reached[s] = _union({block[s] * shift}, [reached[t] for t in tau[s]])
            room -= len(reached[s])
            if room < 0:
                return None
        signature: dict[int, frozenset[int]] = {}
        for s in acting:
            own = {code + a for a, t in visible[s] for code in reached[t]}
            own |= reached[s]
            signature[s] = _union(own, [signature[t] for t in tau[s]])
            room -= len(signature[s])
            if room < 0:
                return None
        return {s: signature[s] for s in states}

    def _wide_signatures(self, states: set[int]) -> dict[int, int] | None:
        """Numbers that are equal where exact weak signatures are; label by label, with sets of blocks as bits.

        None if that would take too much memory or time.
        """
        size, labels = self.reduced.system.states, len(self.reduced.system.labels)
        if size * len(self.partition) > _BITS or size * labels > _VISITS:
            return None
        tau, visible, block = self.reduced.tau, self.reduced.visible, self.partition.block
        reached: list[int] = [0] * size
        for s in self.reduced.order:
            bits = 1 << block[s]
            for t in tau[s]:
                bits |= reached[t]
            reached[s] = bits
        number = self._numbered(dict.fromkeys(states, 0), reached)
        for label in range(1, labels):
            after: list[int] = [0] * size
            for s in self.reduced.order:
                bits = 0
                for a, t in visible[s]:
                    if a == label:
                        bits |= reached[t]
                for t in tau[s]:
                    bits |= after[t]
                after[s] = bits
            number = self._numbered(number, after)
        return number

    @staticmethod
    def _numbered(number: dict[int, int], sets: list[int]) -> dict[int, int]:
        seen: dict[tuple[int, int], int] = {}
        return {s: seen.setdefault((n, sets[s]), len(seen)) for s, n in number.items()}

    def _silently_reached(self, states: Iterable[int]) -> list[int]:
        """The states that these reach by silent steps, and they themselves; each after its silent successors."""
        seen = set(states)
        stack = list(seen)
        while stack:
            for t in self.reduced.tau[stack.pop()]:
                if t not in seen:
                    seen.add(t)
                    stack.append(t)
        return sorted(seen, key=self._rank.__getitem__)

    def _failures(self) -> dict[int, list[list[int]]]:
        """The blocks with a state that cannot match another's step; those who can do that step, and the others.

        That nothing fails means that the blocks are classes of weak bisimilarity. It is enough to look at single
        steps, to compare with one state of each block that has no silent step within the block, and to ask the
        steps of that one only of states that have none either: the others take such a silent step first.
        """
        block, tau, visible = self.partition.block, self.reduced.tau, self.reduced.visible
        failures: dict[int, list[list[int]]] = {}
        for b in {block[s] for s in self.open.tolist()}:
            members = self.partition.members[b]
            if len(members) == 1:
                continue
            steps = {s: {(0, block[t]) for t in tau[s]} | {(a, block[t]) for a, t in visible[s]} for s in members}
            last = {s for s in members if (0, b) not in steps[s]}
            chosen = min(last)
            known: dict[tuple[int, int], bool] = {}
            for s in members:
                wanted = steps[s] - steps[chosen] - {(0, b)}
                failed = next((step for step in wanted if not self._can(chosen, step, known)), None)
                if failed is None and s in last:
                    failed = next((step for step in steps[chosen] - steps[s] if not self._can(s, step)), None)
                if failed is not None:
                    able = members & self._able(failed)
                    failures[b] = [list(able), list(members - able)]
                    break
        return failures

    def _can(self, state: int, step: tuple[int, int], known: dict[tuple[int, int], bool] | None = None) -> bool:
        """Whether the state can do a label and be in a block, with silent steps before and after."""
        if known is not None and step in known:
            return known[step]
        label, aim = step
        block, tau, visible = self.partition.block, self.reduced.tau, self.reduced.visible
        queue = [(state, label == 0)]
        seen = set(queue)
        reachable = False
        for s, done in queue:
            if done and block[s] == aim:
                reachable = True
                break
            after = [(t, done) for t in tau[s]]
            if not done:
                after += [(t, True) for a, t in visible[s] if a == label]
            fresh = [at for at in after if at not in seen]
            seen.update(fresh)
            queue += fresh
        if known is not None:
            known[step] = reachable
        return reachable

    def _able(self, step: tuple[int, int]) -> set[int]:
        """All states that can do a label and be in a block, with silent steps before and after."""
        label, aim = step
        states = self._backwards(self.partition.members[aim])
        if label == 0:
            return states
        visible = self.reduced.visible
        doing = [s for t in states for s in self._before[t] if (label, t) in visible[s]]
        return self._backwards(doing)

    def _reaching(self, states: list[int]) -> set[int]:
        """The states whose signature speaks of one of these."""
        silently = self._backwards(states)
        return silently | self._backwards([s for t in silently for s in self._before[t]])

    def _backwards(self, states: Iterable[int]) -> set[int]:
        seen = set(states)
        stack = list(seen)
        while stack:
            for s in self._tau_before[stack.pop()]:
                if s not in seen:
                    seen.add(s)
                    stack.append(s)
        return seen


def _union(own: set[int], others: list[frozenset[int]]) -> frozenset[int]:
    """The union, without a copy if one of the others holds everything already."""
    if not others:
        return frozenset(own)
    largest = max(others, key=len)
    own.difference_update(largest)
    rest = reduce(set.union, (other - largest for other in others if other is not largest), own)
    return largest.union(rest) if rest else largest


def _silent_levels(reduced: Reduced) -> list[tuple[IntArray, IntArray, IntArray]] | None:
    """Per height of silent steps: states, their silent successors in one array, where each state's begin in it."""
    height = [0] * reduced.system.states
    for s in reduced.order:
        for t in reduced.tau[s]:
            height[s] = max(height[s], height[t] + 1)
    if max(height) > _LEVELS:
        return None
    by_height: list[list[int]] = [[] for _ in range(max(height) + 1)]
    for s, h in enumerate(height):
        by_height[h].append(s)
    levels = []
    for states in by_height[1:]:
        counts = np.array([len(reduced.tau[s]) for s in states])
        targets = np.array([t for s in states for t in reduced.tau[s]], dtype=np.int64)
        levels.append((np.array(states, dtype=np.int64), targets, np.cumsum(counts) - counts))
    return levels
