"""Finite labelled coalgebras: what a computation graph is when only its behaviour counts.

A state offers a finite set of transitions (label, next state), and may terminate: a coalgebra of the functor
``X -> P(L x X) x 2``. States are the numbers ``0 .. states - 1``, transitions three parallel arrays, labels interned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Label = Hashable


class Silent(Enum):
    """The type of the silent label, so that no name a user gives to an operator can be mistaken for it."""

    TAU = "τ"

    def __repr__(self) -> str:
        return "TAU"

    def __str__(self) -> str:
        return "τ"


TAU: Final = Silent.TAU


class Transition(NamedTuple):
    """``source --label--> target``."""

    source: int
    label: Label
    target: int


class Operation(NamedTuple):
    """One node of a dataflow graph: ``results = op(operands)``; operands and results are names of values."""

    op: str
    operands: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Coalgebra:
    """A finite coalgebra with silent steps, termination and an initial state.

    Make one with ``Coalgebra.of``, ``Coalgebra.from_arrays`` or ``from_dataflow``: they bring the transitions into
    the canonical form that the algorithms rely on. Two coalgebras are equal when they have the same states,
    transitions, terminating states and initial state; the names of states do not count.

    Attributes:
        states: number of states, at least one.
        labels: the labels that occur, ``labels[0]`` being ``TAU`` whether it occurs or not.
        src, label, dst: one entry per transition, ``int64``; sorted by (src, label, dst), without repetitions.
            ``label`` holds positions in ``labels``.
        terminating: ``bool`` of shape (states,).
        initial: the state where the graph starts.
        naming: gives a state the name that people read.
    """

    states: int
    labels: tuple[Label, ...]
    src: IntArray
    label: IntArray
    dst: IntArray
    terminating: BoolArray
    initial: int = 0
    naming: Callable[[int], str] = field(default=str, repr=False)

    @classmethod
    def from_arrays(
        cls,
        states: int,
        src: npt.ArrayLike,
        label: npt.ArrayLike,
        dst: npt.ArrayLike,
        *,
        labels: Sequence[Label],
        terminating: npt.ArrayLike = (),
        initial: int = 0,
        naming: Callable[[int], str] = str,
    ) -> Coalgebra:
        """Build from arrays of transitions.

        Args:
            states: number of states.
            src, label, dst: shape (transitions,); ``label`` holds positions in ``labels``.
            labels: any order, repetitions allowed; ``TAU`` need not be among them.
            terminating: a boolean mask of shape (states,) or a list of states.
            initial: the initial state.
            naming: names of states for people.

        Raises:
            ValueError: when shapes differ or a number names no state or label.
        """
        src, label, dst = (np.asarray(a, dtype=np.int64).reshape(-1) for a in (src, label, dst))
        if not src.shape == label.shape == dst.shape:
            raise ValueError(f"src, label and dst differ in length: {src.size}, {label.size}, {dst.size}")
        for what, values, bound in (("src", src, states), ("dst", dst, states), ("label", label, len(labels))):
            if values.size and not 0 <= values.min() <= values.max() < bound:
                raise ValueError(f"{what} holds a number outside 0..{bound - 1}")
        if not 0 <= initial < states:
            raise ValueError(f"initial state {initial} is not one of the {states} states")
        mask = np.zeros(states, dtype=np.bool_)
        ends = np.asarray(terminating)
        if ends.size and ends.dtype == np.bool_ and ends.shape != mask.shape:
            raise ValueError(f"terminating has shape {ends.shape}, expected ({states},)")
        if ends.size:
            mask[ends] = True

        used = np.zeros(len(labels), dtype=np.bool_)
        used[label] = True
        table: dict[Label, int] = {TAU: 0}
        renumber = np.zeros(max(len(labels), 1), dtype=np.int64)
        for old in np.flatnonzero(used).tolist():
            renumber[old] = table.setdefault(labels[old], len(table))
        label = renumber[label]
        order = np.lexsort((dst, label, src))
        src, label, dst = src[order], label[order], dst[order]
        keep = np.ones(src.size, dtype=np.bool_)
        keep[1:] = (src[1:] != src[:-1]) | (label[1:] != label[:-1]) | (dst[1:] != dst[:-1])
        return cls(states, tuple(table), src[keep], label[keep], dst[keep], mask, initial, naming)

    @classmethod
    def of(
        cls,
        transitions: Iterable[tuple[Hashable, Label, Hashable]],
        *,
        initial: Hashable | None = None,
        terminating: Iterable[Hashable] = (),
        states: Iterable[Hashable] = (),
    ) -> Coalgebra:
        """Build from triples ``(state, label, state)`` over any hashable states, numbered as they first occur.

        Args:
            transitions: the triples; a silent one has the label ``TAU``.
            initial: the initial state; by default the first one mentioned.
            terminating: the states that may terminate.
            states: further states, or all in the order wanted.
        """
        number: dict[Hashable, int] = {}
        for state in states:
            number.setdefault(state, len(number))
        table: dict[Label, int] = {}
        triples = [
            (
                number.setdefault(source, len(number)),
                table.setdefault(label, len(table)),
                number.setdefault(target, len(number)),
            )
            for source, label, target in transitions
        ]
        ends = [number.setdefault(state, len(number)) for state in terminating]
        start = 0 if initial is None else number.setdefault(initial, len(number))
        names = [str(state) for state in number]
        rows = np.array(triples, dtype=np.int64).reshape(-1, 3)
        return cls.from_arrays(
            max(len(number), 1),
            rows[:, 0],
            rows[:, 1],
            rows[:, 2],
            labels=tuple(table),
            terminating=np.array(ends, dtype=np.int64),
            initial=start,
            naming=names.__getitem__ if names else str,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coalgebra):
            return NotImplemented
        if (self.states, self.initial, self.src.size) != (other.states, other.initial, other.src.size):
            return False
        if set(self.labels) != set(other.labels) or not np.array_equal(self.terminating, other.terminating):
            return False
        position = {label: i for i, label in enumerate(self.labels)}
        label = np.array([position[label] for label in other.labels], dtype=np.int64)[other.label]
        order = np.lexsort((other.dst, label, other.src))
        theirs = (other.src[order], label[order], other.dst[order])
        return all(np.array_equal(a, b) for a, b in zip((self.src, self.label, self.dst), theirs, strict=True))

    def __hash__(self) -> int:
        return hash((self.states, self.initial, self.src.size, frozenset(self.labels)))

    @cached_property
    def first(self) -> IntArray:
        """Shape (states + 1,): the transitions of state ``s`` are ``first[s] .. first[s + 1] - 1``."""
        return np.searchsorted(self.src, np.arange(self.states + 1)).astype(np.int64)

    def name(self, state: int) -> str:
        """The name that people read."""
        return self.naming(state)

    def transition(self, index: int) -> Transition:
        """The transition at a position of ``src``, ``label`` and ``dst``."""
        return Transition(int(self.src[index]), self.labels[self.label[index]], int(self.dst[index]))

    def transitions(self) -> Iterator[Transition]:
        """All transitions, in canonical order."""
        return map(self.transition, range(self.src.size))

    def successors(self, state: int) -> list[tuple[Label, int]]:
        """What the state can do: (label, next state)."""
        span = slice(self.first[state], self.first[state + 1])
        return [(self.labels[a], t) for a, t in zip(self.label[span].tolist(), self.dst[span].tolist(), strict=True)]

    def relabel(self, rename: Callable[[Label], Label]) -> Coalgebra:
        """The system with every visible label renamed; a label renamed to ``TAU`` is hidden. TAU stays."""
        labels = [TAU, *(rename(label) for label in self.labels[1:])]
        return self._with(self.label, labels)

    def hide(self, transitions: npt.ArrayLike) -> Coalgebra:
        """The system with the transitions at these positions made silent."""
        label = self.label.copy()
        label[np.asarray(transitions, dtype=np.int64)] = 0
        return self._with(label, self.labels)

    def _with(self, label: IntArray, labels: Sequence[Label]) -> Coalgebra:
        return Coalgebra.from_arrays(
            self.states,
            self.src,
            label,
            self.dst,
            labels=labels,
            terminating=self.terminating,
            initial=self.initial,
            naming=self.naming,
        )


_LIKE_A_LABEL = re.compile(r"\.\d+$|>\d+$|^(input|output) \d+$|^['\"]")


def disjoint_union(left: Coalgebra, right: Coalgebra) -> Coalgebra:
    """Both systems side by side: states of ``right`` come after those of ``left``; initial is that of ``left``."""
    shift = left.states

    def name(state: int) -> str:
        return left.name(state) if state < shift else right.name(state - shift)

    return Coalgebra.from_arrays(
        left.states + right.states,
        np.concatenate((left.src, right.src + shift)),
        np.concatenate((left.label, right.label + len(left.labels))),
        np.concatenate((left.dst, right.dst + shift)),
        labels=(*left.labels, *right.labels),
        terminating=np.concatenate((left.terminating, right.terminating)),
        initial=left.initial,
        naming=name,
    )


def from_dataflow(
    operations: Iterable[Operation | tuple[str, Sequence[str], Sequence[str]]],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    observe: Literal["definitions", "uses"] = "definitions",
) -> Coalgebra:
    """The coalgebra of a labelled dataflow graph: its values are the states, its operations the transitions.

    ``observe="definitions"`` walks from the outputs back to what each value is computed from. It is deterministic,
    and two values are bisimilar exactly when they unfold to the same term: merging twins, duplicating an operation
    and deleting a dead one are invisible. ``observe="uses"`` walks with the data, from the inputs to what each value
    is used for; it sees all three.

    Labels are ``op`` for an operation of one operand and one result, else ``op.i`` for operand i, and ``op.i>j`` for
    operand i and result j where there are several results. A state ``start`` has a transition ``output i`` (``uses``:
    ``input i``) to each output (input), and the last transition of every walk, ``input i`` (``output i``), or the
    operation without operands, leads to the one terminating state, ``end``. An operation whose own name reads like one
    of these labels, as ``f.0``, stands in quotes in its labels: so no two transitions share a label that differ in
    operation, operand or result.

    Args:
        operations: (op, operands, results), in any order.
        inputs: names of the graph's inputs.
        outputs: names of the values the graph returns.
        observe: the direction.

    Raises:
        ValueError: for a value defined twice, or used and never defined.
    """
    nodes = [Operation(op, tuple(operands), tuple(results)) for op, operands, results in operations]
    edges: list[tuple[str, str, str]] = []  # with the data: (from value, label, to value)
    begin, finish = ("\0start", "\0end")
    edges += [(begin, f"input {i}", value) for i, value in enumerate(inputs)]
    for name, operands, results in nodes:
        op = repr(name) if _LIKE_A_LABEL.search(name) else name
        for j, result in enumerate(results):
            suffix = f">{j}" if len(results) > 1 else ""
            if not operands:
                edges.append((begin, op + suffix, result))
            for i, operand in enumerate(operands):
                single = len(operands) == 1 and not suffix
                edges.append((operand, op if single else f"{op}.{i}{suffix}", result))
    edges += [(value, f"output {i}", finish) for i, value in enumerate(outputs)]

    defined = [*inputs, *(result for node in nodes for result in node.results)]
    if len(set(defined)) != len(defined):
        twice = next(value for i, value in enumerate(defined) if value in defined[:i])
        raise ValueError(f"value {twice!r} is defined twice")
    missing = {source for source, _, _ in edges} - {begin, *defined}
    if missing:
        raise ValueError(f"value {min(missing)!r} is used and never defined")

    if observe == "definitions":
        edges = [(target, label, source) for source, label, target in edges]
        begin, finish = finish, begin
    number = {value: i for i, value in enumerate((begin, *defined, finish))}
    names = ["start", *defined, "end"]
    table: dict[Label, int] = {}
    rows = [(number[s], table.setdefault(label, len(table)), number[t]) for s, label, t in edges]
    triples = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Coalgebra.from_arrays(
        len(number),
        triples[:, 0],
        triples[:, 1],
        triples[:, 2],
        labels=tuple(table),
        terminating=[number[finish]],
        initial=0,
        naming=names.__getitem__,
    )
