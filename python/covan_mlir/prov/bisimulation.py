"""Comparing two systems: the greatest bisimulation between them, or what tells them apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from covan_mlir.prov.apartness import Apartness, StrongApartness, distinguish
from covan_mlir.prov.formula import Formula
from covan_mlir.prov.play import Play, play
from covan_mlir.prov.strong import strong_partition
from covan_mlir.prov.system import Coalgebra, IntArray, disjoint_union
from covan_mlir.prov.weak import WeakClasses


@dataclass(frozen=True, eq=False)
class Relation:
    """The greatest bisimulation between two systems, held as classes: states are related that are in the same class.

    Attributes:
        left: shape (states of the left system,), the class of each of its states.
        right: likewise for the right system.
    """

    left: IntArray
    right: IntArray

    def related(self, x: int, y: int) -> bool:
        """Whether ``x`` of the left system and ``y`` of the right one are bisimilar."""
        return bool(self.left[x] == self.right[y])

    def partners(self, x: int) -> list[int]:
        """The states of the right system bisimilar to ``x`` of the left one."""
        return np.flatnonzero(self.right == self.left[x]).tolist()

    @cached_property
    def classes(self) -> int:
        """Number of classes in the two systems together."""
        return int(np.unique(np.concatenate((self.left, self.right))).size)

    def __len__(self) -> int:
        """Number of related pairs."""
        size = int(max(self.left.max(), self.right.max())) + 1
        return int(np.bincount(self.left, minlength=size) @ np.bincount(self.right, minlength=size))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """All related pairs."""
        for x in range(self.left.size):
            for y in self.partners(x):
                yield x, y

    def blocks(self) -> Iterator[tuple[list[int], list[int]]]:
        """The classes: which left and which right states each holds; one of the two may be empty."""
        lists: dict[int, tuple[list[int], list[int]]] = {}
        for side, classes in enumerate((self.left, self.right)):
            for state, c in enumerate(classes.tolist()):
                lists.setdefault(c, ([], []))[side].append(state)
        return iter(lists.values())


@dataclass(frozen=True, eq=False)
class Distinction:
    """What tells two states apart.

    Attributes:
        formula: holds on the left and not on the right; None if it would be too large.
        play: one way the two sides come apart, with the silent steps in between.
    """

    formula: Formula | None
    play: Play

    def __str__(self) -> str:
        lines = str(self.play)
        return lines if self.formula is None else f"{lines}\nonly the left satisfies {self.formula}"


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of a comparison; true when the two states compared are bisimilar.

    Attributes:
        kind: ``strong`` or ``weak``.
        left, right: the two systems, which may be one and the same.
        start: the two states compared, by default the initial ones.
        relation: the greatest bisimulation between the systems, whatever the outcome.
    """

    kind: Literal["strong", "weak"]
    left: Coalgebra
    right: Coalgebra
    start: tuple[int, int]
    relation: Relation
    _apart: Apartness = field(repr=False)
    _limit: int = field(default=500_000, repr=False)

    def __bool__(self) -> bool:
        return self.relation.related(*self.start)

    @cached_property
    def distinction(self) -> Distinction | None:
        """What tells the two states apart; None if nothing does."""
        return None if self else self.distinguish(*self.start)

    def distinguish(self, x: int, y: int) -> Distinction | None:
        """What tells ``x`` of the left system from ``y`` of the right one; None if they are bisimilar."""
        if self.relation.related(x, y):
            return None
        joined, shift = _join(self.left, self.right)
        apart = self._apart
        weak = apart if isinstance(apart, WeakClasses) else None
        s, t = x, y + shift
        classes = np.concatenate((self.relation.left, self.relation.right))
        if weak:
            s, t = int(weak.reduced.state[s]), int(weak.reduced.state[t])
            block = weak.block
        else:

            def block(state: int) -> int:
                return int(classes[state])

        formula = distinguish(apart, joined.labels, block, s, t, self._limit)
        return Distinction(formula, play(joined, apart, weak, classes, (x, y + shift)))

    def __str__(self) -> str:
        if self:
            return f"{self.kind}ly bisimilar: {len(self.relation)} related pairs in {self.relation.classes} classes"
        return f"not {self.kind}ly bisimilar:\n{self.distinction}"


def _join(left: Coalgebra, right: Coalgebra) -> tuple[Coalgebra, int]:
    if left is right:
        return left, 0
    return disjoint_union(left, right), left.states


def strong_bisimulation(
    left: Coalgebra, right: Coalgebra | None = None, *, start: tuple[int, int] | None = None
) -> Verdict:
    """Compare by strong bisimilarity, in which silent steps are steps like any other.

    Partition refinement, see ``strong.strong_partition``.

    Args:
        left, right: two systems; without ``right`` the states of ``left`` are compared among themselves.
        start: the state of ``left`` and the state of ``right`` to compare; by default their initial ones.
    """
    right = left if right is None else right
    joined, shift = _join(left, right)
    partition = strong_partition(joined)
    classes = np.array(partition.block, dtype=np.int64)
    relation = Relation(classes[: left.states], classes[shift:])
    return Verdict(
        "strong", left, right, start or (left.initial, right.initial), relation, StrongApartness(joined, partition)
    )


def weak_bisimulation(
    left: Coalgebra, right: Coalgebra | None = None, *, start: tuple[int, int] | None = None
) -> Verdict:
    """Compare by weak bisimilarity: silent steps are not observed, divergence neither, termination is.

    Which equivalence that is, and how it is computed, is told at the top of ``weak``. Arguments as for
    ``strong_bisimulation``.
    """
    right = left if right is None else right
    joined, shift = _join(left, right)
    weak = WeakClasses(joined)
    relation = Relation(weak.classes[: left.states], weak.classes[shift:])
    return Verdict("weak", left, right, start or (left.initial, right.initial), relation, weak)
