"""One way two inequivalent states come apart, told as moves and answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from covan_mlir.prov.apartness import Apartness, attack
from covan_mlir.prov.system import TAU, Coalgebra, IntArray, Label
from covan_mlir.prov.weak import WeakClasses

_SHOWN = 4  # answers or possibilities that are spelled out
_TOLD = 6  # moves that are spelled out at the beginning and at the end
_LONG = 50_000  # moves after which a play is broken off


@dataclass(frozen=True)
class Walk:
    """Transitions in a row, silent ones included: a state's name, and then label and name of each further state."""

    start: str
    steps: tuple[tuple[Label, str], ...] = ()

    def __str__(self) -> str:
        return self.start + "".join(f" --{label}--> {name}" for label, name in self.steps)


@dataclass(frozen=True)
class Move:
    """What one side can do and how the other could answer.

    Attributes:
        side: the side that moves.
        label: what it does; None when it terminates.
        walk: how, silent steps included.
        answers: ways the other side can do the same, to different classes of states; the play goes on with the
            first.
        more: how many further classes of states it could end in.
        instead: labels that the other side can do, where it has no answer.
    """

    side: Literal["left", "right"]
    label: Label | None
    walk: Walk
    answers: tuple[Walk, ...]
    more: int = 0
    instead: tuple[str, ...] = ()

    def __str__(self) -> str:
        other = "right" if self.side == "left" else "left"
        does = "can terminate" if self.label is None else f"can do {self.label}"
        head = f"{self.side} {does}: {self.walk}"
        if self.label is None or not self.answers:
            what = "terminate" if self.label is None else f"do {self.label}"
            rest = f"; it can do {', '.join(self.instead)}" if self.instead else "; it can do nothing"
            return f"{head}\n  {other} cannot {what}{rest}"
        shown = [f"  {other} answers: {answer}" for answer in self.answers]
        if len(shown) > 1:
            shown[0] += "  (followed here)"
        return "\n".join([head, *shown, *([f"  … and {self.more} more"] if self.more else [])])


@dataclass(frozen=True)
class Play:
    """Moves until one has no answer.

    Attributes:
        left, right: names of the two states that are compared.
        moves: what happens, in order.
        finished: whether it was told to its end.
    """

    left: str
    right: str
    moves: tuple[Move, ...]
    finished: bool = True

    def __str__(self) -> str:
        told = [f"left is at {self.left}, right at {self.right}", *map(str, self.moves)]
        if len(told) > 2 * _TOLD:
            told[_TOLD:-_TOLD] = [f"… {len(told) - 2 * _TOLD} moves that are answered …"]
        return "\n".join(told if self.finished else [*told, "…"])


def play(
    system: Coalgebra, apart: Apartness, weak: WeakClasses | None, classes: IntArray, start: tuple[int, int]
) -> Play:
    """Attack from ``start`` until there is no answer.

    Args:
        system: both systems in one, as they were given.
        apart: why states are apart; of the reduced system where ``weak`` is given.
        classes: the class of each state of ``system``.
        start: the two states, left and right.
    """
    teller = _Teller(system, weak is not None, classes)
    x, y = start
    moves: list[Move] = []
    finished = False
    while not finished and len(moves) < _LONG:
        s, t = (int(weak.reduced.state[x]), int(weak.reduced.state[y])) if weak else (x, y)
        step = attack(apart, s, t)
        mover, other = (y, x) if step.flipped else (x, y)
        side: Literal["left", "right"] = "right" if step.flipped else "left"
        if step.label is None:
            finished = True
            moves.append(Move(side, None, teller.ending(mover), (), 0, teller.offers(other)))
            continue
        aim = weak.block(step.target) if weak else int(classes[step.target])
        walk, mover = teller.walk(mover, step.label, aim)
        ends = sorted({weak.block(answer) if weak else int(classes[answer]) for answer in step.answers})
        answers = [teller.walk(other, step.label, end) for end in ends[:_SHOWN]]
        answers.sort(key=lambda answer: len(answer[0].steps))
        ways = tuple(way for way, _ in answers)
        finished = not ways
        instead = teller.offers(other) if finished else ()
        moves.append(Move(side, system.labels[step.label], walk, ways, len(ends) - len(ways), instead))
        if ways:
            x, y = (answers[0][1], mover) if step.flipped else (mover, answers[0][1])
    return Play(system.name(start[0]), system.name(start[1]), tuple(moves), finished)


class _Teller:
    """Finds walks in the system as the user gave it."""

    def __init__(self, system: Coalgebra, weak: bool, classes: IntArray) -> None:
        self._system = system
        self._weak = weak
        self._classes = classes
        self._first = system.first.tolist()

    def ending(self, start: int) -> Walk:
        """A shortest walk to termination."""
        if not self._weak:
            return Walk(self._system.name(start))
        return self._search(start, 0, lambda state: bool(self._system.terminating[state]))[0]

    def walk(self, start: int, label: int, aim: int) -> tuple[Walk, int]:
        """A shortest walk that does ``label`` and ends in the class ``aim``, and where it ends.

        In the weak sense silent steps may come before and after, and label 0 is any number of them.
        """
        return self._search(start, label, lambda state: int(self._classes[state]) == aim)

    def _search(self, start: int, label: int, goal: Callable[[int], bool]) -> tuple[Walk, int]:
        begin = (start, self._weak and label == 0)
        before: dict[tuple[int, bool], tuple[tuple[int, bool], int]] = {}
        queue = deque([begin])
        seen = {begin}
        while queue:
            at = queue.popleft()
            state, done = at
            if done and goal(state):
                return self._trace(begin, at, before), state
            for i in range(self._first[state], self._first[state + 1]):
                a, target = int(self._system.label[i]), int(self._system.dst[i])
                steps = [(target, True)] if not done and a == label else []
                if self._weak and a == 0:
                    steps.append((target, done))
                for step in steps:
                    if step not in seen:
                        seen.add(step)
                        before[step] = at, a
                        queue.append(step)
        raise AssertionError(f"state {start} has no such walk")

    def _trace(
        self,
        begin: tuple[int, bool],
        end: tuple[int, bool],
        before: dict[tuple[int, bool], tuple[tuple[int, bool], int]],
    ) -> Walk:
        steps: list[tuple[Label, str]] = []
        while end != begin:
            previous, label = before[end]
            steps.append((self._system.labels[label], self._system.name(end[0])))
            end = previous
        return Walk(self._system.name(begin[0]), tuple(reversed(steps)))

    def offers(self, state: int) -> tuple[str, ...]:
        """What the state can do, in the weak sense after silent steps; at most a handful, for people."""
        seen, queue = {state}, deque([state])
        offered: dict[str, None] = {}
        while queue and len(offered) <= _SHOWN:
            at = queue.popleft()
            if self._system.terminating[at]:
                offered["terminate"] = None
            for label, target in self._system.successors(at):
                if label is not TAU or not self._weak:
                    offered[str(label)] = None
                elif target not in seen:
                    seen.add(target)
                    queue.append(target)
        names = list(offered)
        return (*names[:_SHOWN], "…") if len(names) > _SHOWN else tuple(names)
