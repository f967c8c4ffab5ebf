"""Weak bisimilarity: silent steps are not observed, neither is divergence.

What is computed is Milner's weak bisimilarity (Communication and Concurrency, 1989, ch. 5), not the finer branching
bisimilarity (van Glabbeek & Weijland 1996): the greatest symmetric relation in which, if ``x --a--> x'``, then
``y ==TAU*== --a--> ==TAU*==> y'`` with ``x'`` and ``y'`` related, if ``x --TAU--> x'``, then ``y ==TAU*==> y'``
likewise, and if ``x`` terminates, then ``y`` reaches a terminating state by silent steps.

The system is first reduced (``silent``). States after all cycles are classified by normal forms (``acyclic``), states
on and between cycles by refinement (``cyclic``), states before all cycles by normal forms again. At no point is the
transitive closure of the silent steps built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np

from covan_mlir.prov.acyclic import NormalForms
from covan_mlir.prov.apartness import Moves
from covan_mlir.prov.cyclic import Refinement
from covan_mlir.prov.partition import Partition
from covan_mlir.prov.silent import layers, reduce_silent
from covan_mlir.prov.system import Coalgebra, IntArray


class WeakClasses:
    """The classes of weak bisimilarity of a system, and why states are in different ones (an ``Apartness``).

    Attributes:
        classes: shape (states,), the class of each state.
        reduced: the system without silent cycles and forced silent steps that the explanations speak of.
    """

    def __init__(self, system: Coalgebra) -> None:
        self.reduced = reduce_silent(system)
        below, core, above = layers(self.reduced.system)
        forms = NormalForms()
        classes: dict[int, int] = {}
        forms.classify(self.reduced, below, classes)
        self._founded = set(below)
        self._core = set(core.tolist())
        blocks = [classes.get(s, len(forms)) for s in range(self.reduced.system.states)]
        for s in above:
            blocks[s] += 1  # anything: the core does not reach them
        self._partition = Partition(blocks, len(forms) + 2)
        if core.size:
            Refinement(self.reduced, self._partition, core).run()
            lowest: dict[int, int] = {}  # of each block the state that silent steps within the block end in
            for s in self.reduced.order:
                if s in self._core:
                    lowest.setdefault(self._partition.block[s], s)
            number = {block: len(forms) + i for i, block in enumerate(lowest)}
            classes |= {s: number[self._partition.block[s]] for s in self._core}
            forms.adopt(self.reduced, list(lowest.values()), classes)
            forms.classify(self.reduced, above, classes)
        self._class = [classes[s] for s in range(self.reduced.system.states)]
        self.classes: IntArray = np.array(self._class, dtype=np.int64)[self.reduced.state]
        self.moves = lru_cache(maxsize=256)(self._moves)

    def block(self, state: int) -> int:
        """The class of a state of the reduced system."""
        return self._class[state]

    def _moves(self, state: int) -> Moves:
        """Weak moves in the reduced system; label 0 leads to all that silent steps reach, ``state`` included."""
        silently = self._closure({state})
        moves: Moves = {}
        for s in silently:
            for a, t in self.reduced.visible[s]:
                moves.setdefault(a, set()).add(t)
        moves = {a: self._closure(targets) for a, targets in moves.items()}
        moves[0] = silently
        return moves

    def _closure(self, states: set[int]) -> set[int]:
        seen, stack = set(states), list(states)
        while stack:
            for t in self.reduced.tau[stack.pop()]:
                if t not in seen:
                    seen.add(t)
                    stack.append(t)
        return seen

    def terminates(self, state: int) -> bool:
        """Whether silent steps lead from this state of the reduced system to a terminating one."""
        return self._ends[state]

    @cached_property
    def _ends(self) -> list[bool]:
        ends: list[bool] = self.reduced.system.terminating.tolist()
        for s in self.reduced.order:
            ends[s] = ends[s] or any(ends[t] for t in self.reduced.tau[s])
        return ends

    def attacks(self, s: int, t: int) -> tuple[Moves, Moves, Callable[[int], int]]:
        """See ``Apartness``; which moves are tried depends on how the two states were told apart."""
        if (s in self._founded) != (t in self._founded):
            # Only one can go on for ever: it does a visible step after which it still can.
            return self._lasting(s), self._lasting(t), lambda state: int(state in self._founded)
        if s in self._core and t in self._core:
            time = self._partition.parted(s, t)
            return self.moves(s), self.moves(t), lambda state: self._partition.block_at(state, time)
        # A single step of one of them goes unmatched, and leads to a class of a smaller number.
        return self._last(s), self._last(t), self.block

    def _last(self, state: int) -> Moves:
        """The single steps that are left after all silent ones within the class."""
        inner: int | None = state
        while inner is not None:
            state = inner
            inner = next((t for t in self.reduced.tau[state] if self.block(t) == self.block(state)), None)
        moves: Moves = {0: set(self.reduced.tau[state])}
        for a, t in self.reduced.visible[state]:
            moves.setdefault(a, set()).add(t)
        return moves

    def _lasting(self, state: int) -> Moves:
        lasting = {a: targets - self._founded for a, targets in self.moves(state).items() if a}
        return {a: targets for a, targets in lasting.items() if targets}
