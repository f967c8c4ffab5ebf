"""Why two states are not bisimilar: attacks read off the refinement, and formulas built of them.

After Cleaveland (On automatically explaining bisimulation inequivalence, 1990): two states lie in different blocks
because one of them had a step into a block that the other's like steps all missed. That step, and formulas that tell
its target from all those the other side could answer with, distinguish the two states. The answers were in other
blocks than the target at an earlier time already, so the construction ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from covan_mlir.prov.formula import Can, Formula, Not, Terminates
from covan_mlir.prov.partition import Partition
from covan_mlir.prov.system import Coalgebra

Moves = dict[int, set[int]]


class Attack(NamedTuple):
    """A step of one of two states that the other cannot match.

    Attributes:
        flipped: the second of the two states makes it.
        label: position of the label; 0 is TAU. None when the one state terminates and the other does not.
        target: where the step leads.
        answers: where the other state may go by the same label; none is equivalent to ``target``.
    """

    flipped: bool
    label: int | None
    target: int
    answers: tuple[int, ...]


class Apartness(Protocol):
    """What an algorithm remembers of why states are in different classes."""

    def moves(self, state: int) -> Moves:
        """Where each label leads, in the sense (strong or weak) of the equivalence."""

    def terminates(self, state: int) -> bool:
        """Likewise, whether the state terminates."""

    def attacks(self, s: int, t: int) -> tuple[Moves, Moves, Callable[[int], int]]:
        """The moves of each of two inequivalent states to try, and the blocks in which one of them goes unmatched.

        Trying ends: the answers to an unmatched move are told from its target by a smaller attack.
        """


class StrongApartness:
    """Apartness from the history of strong refinement."""

    def __init__(self, system: Coalgebra, partition: Partition) -> None:
        self._system = system
        self._partition = partition

    def moves(self, state: int) -> Moves:
        span = slice(self._system.first[state], self._system.first[state + 1])
        moves: Moves = {}
        for a, t in zip(self._system.label[span].tolist(), self._system.dst[span].tolist(), strict=True):
            moves.setdefault(a, set()).add(t)
        return moves

    def terminates(self, state: int) -> bool:
        return bool(self._system.terminating[state])

    def attacks(self, s: int, t: int) -> tuple[Moves, Moves, Callable[[int], int]]:
        time = self._partition.parted(s, t)
        return self.moves(s), self.moves(t), lambda state: self._partition.block_at(state, time)


def attack(apart: Apartness, s: int, t: int) -> Attack:
    """The unmatched step of ``s`` or ``t``, which must be inequivalent, that leaves the fewest answers."""
    if apart.terminates(s) != apart.terminates(t):
        return Attack(apart.terminates(t), None, -1, ())
    mine, yours, block = apart.attacks(s, t)
    best: Attack | None = None
    for flipped, moves, other in ((False, mine, t), (True, yours, s)):
        replies = apart.moves(other)
        for label in sorted(moves):
            answers = replies.get(label, set())
            matched = {block(state) for state in answers}
            for target in sorted(moves[label]):
                if block(target) not in matched and (best is None or len(answers) < len(best.answers)):
                    best = Attack(flipped, label, target, tuple(sorted(answers)))
                    break
    if best is None:
        raise AssertionError(f"states {s} and {t} are in different classes, and no step tells them apart")
    return best


def distinguish(
    apart: Apartness, labels: tuple[object, ...], classes: Callable[[int], int], s: int, t: int, limit: int
) -> Formula | None:
    """A formula that ``s`` satisfies and ``t`` does not; None if that takes more than about ``limit`` moves to look at.

    ``classes`` are the final ones: of equivalent answers only one is told apart.
    """
    known: dict[tuple[int, int], Formula] = {}
    attacks: dict[tuple[int, int], tuple[Attack, list[tuple[int, int]]]] = {}
    work = limit
    pending = [(s, t)]
    while pending:
        pair = pending[-1]
        if _key(classes, pair) in known:
            pending.pop()
            continue
        if pair not in attacks:
            move = attack(apart, *pair)
            answers = {classes(answer): answer for answer in move.answers}
            needed = [(move.target, answer) for answer in answers.values()]
            attacks[pair] = move, needed
            work -= 1 + len(needed) + sum(len(states) for state in pair for states in apart.moves(state).values())
            if work < 0:
                return None
        move, needed = attacks[pair]
        if missing := [p for p in needed if _key(classes, p) not in known]:
            pending += missing
            continue
        pending.pop()
        formula: Formula
        if move.label is None:
            formula = Terminates()
        else:
            parts = {id(f): f for f in (known[_key(classes, p)] for p in needed)}
            formula = Can(labels[move.label], tuple(parts.values()))
            formula.depth  # noqa: B018  cached bottom-up, where a late call would recurse too deep
        x, y = _key(classes, pair)
        opposite = Not(formula)
        known[x, y], known[y, x] = (opposite, formula) if move.flipped else (formula, opposite)
    return known[_key(classes, (s, t))]


def _key(classes: Callable[[int], int], pair: tuple[int, int]) -> tuple[int, int]:
    return classes(pair[0]), classes(pair[1])
