"""Formulas of Hennessy-Milner logic: what tells two states apart, in a form that can be checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from covan_mlir.prov.system import TAU, BoolArray, Coalgebra, Label


@dataclass(frozen=True, eq=False)
class Can:
    """The state can do ``label`` and then satisfy all of ``then``. Formulas share parts: they are graphs, not trees.

    Read weakly, silent steps may come before and after, and ``TAU`` stands for any number of silent steps, also none.
    """

    label: Label
    then: tuple[Formula, ...] = ()

    @cached_property
    def depth(self) -> int:
        """Nested steps, this one included."""
        return 1 + max((part.depth for part in self.then), default=0)

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True, eq=False)
class Not:
    """The state does not satisfy ``body``."""

    body: Formula

    @property
    def depth(self) -> int:
        """Nested steps."""
        return self.body.depth

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True, eq=False)
class Terminates:
    """The state terminates; read weakly, it can reach a terminating state by silent steps."""

    depth = 0

    def __str__(self) -> str:
        return "✓"


Formula = Can | Not | Terminates


def text(formula: Formula, *, depth: int = 8, width: int = 3) -> str:
    """``⟨a⟩(φ ∧ ¬✓)``; left out, as ``…``, is what lies deeper than ``depth`` steps or stands after ``width`` parts."""
    if isinstance(formula, Terminates):
        return "✓"
    if isinstance(formula, Not):
        return "¬" + text(formula.body, depth=depth, width=width)
    if depth == 0:
        return "…"
    step = f"⟨{formula.label}⟩"
    parts = [text(part, depth=depth - 1, width=width) for part in formula.then[:width]]
    if len(formula.then) > width:
        parts.append("…")
    return step + (f"({' ∧ '.join(parts)})" if len(parts) > 1 else "".join(parts))


def satisfying(system: Coalgebra, formula: Formula, *, weak: bool) -> BoolArray:
    """The states that satisfy a formula: shape (states,). Time O(distinct parts x transitions)."""
    silent = system.label == 0
    src, dst = system.src[silent], system.dst[silent]

    def before_silent(states: BoolArray) -> BoolArray:
        states = states.copy()
        while True:
            more = src[states[dst]]
            more = more[~states[more]]
            if more.size == 0:
                return states
            states[more] = True

    position = {label: i for i, label in enumerate(system.labels)}
    known: dict[int, BoolArray] = {}
    pending: list[Formula] = [formula]
    while pending:
        part = pending[-1]
        below = part.then if isinstance(part, Can) else (part.body,) if isinstance(part, Not) else ()
        if missing := [p for p in below if id(p) not in known]:
            pending += missing
            continue
        pending.pop()
        if isinstance(part, Not):
            known[id(part)] = ~known[id(part.body)]
        elif isinstance(part, Terminates):
            known[id(part)] = before_silent(system.terminating) if weak else system.terminating.copy()
        else:
            states = np.ones(system.states, dtype=np.bool_)
            for p in part.then:
                states &= known[id(p)]
            if weak:
                states = before_silent(states)
            if not weak or part.label is not TAU:
                doing = (system.label == position.get(part.label, -1)) & states[system.dst]
                states = np.zeros_like(states)
                states[system.src[doing]] = True
                if weak:
                    states = before_silent(states)
            known[id(part)] = states
    return known[id(formula)]
