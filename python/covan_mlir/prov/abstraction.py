"""Action abstraction: which sequences of primitive actions a generated action stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from covan_mlir.prov.system import TAU, Coalgebra, Label

Word = tuple[Label, ...]


@dataclass(frozen=True)
class Abstraction:
    """A relation between words of primitive actions and generated actions; many-to-many.

    ``(("Conv", "ReLU"), "ConvReLU")`` says that ConvReLU performs Conv and then ReLU. ``((), "copy")``: the compiler
    put in a copy that performs nothing. ``(("Dropout",), TAU)``: Dropout was eliminated. An action that stands on the
    right of no pair performs itself. Words read in the direction in which the systems are walked, see ``reversed``.

    Where several words are given for one action, each of its executions performs those that the source performs at
    that place (``observationally_correct`` finds out which).
    """

    rules: frozenset[tuple[Word, Label]] = frozenset()

    @classmethod
    def of(cls, *rules: tuple[Sequence[Label], Label]) -> Abstraction:
        """``Abstraction.of((["Conv", "ReLU"], "ConvReLU"), (["Dropout"], TAU))``."""
        for word, generated in rules:
            if isinstance(word, str):
                raise TypeError(f"a word is a sequence of labels: write [{word!r}], not {word!r}")
            if TAU in word or (generated is TAU and not word):
                raise ValueError(f"TAU is not an action: {word} ⇝ {generated}")
        return cls(frozenset((tuple(word), generated) for word, generated in rules))

    @cached_property
    def _words(self) -> dict[Label, tuple[Word, ...]]:
        words: dict[Label, list[Word]] = {}
        for word, generated in self.rules:
            words.setdefault(generated, []).append(word)
        return {generated: tuple(sorted(some, key=repr)) for generated, some in words.items()}

    def words(self, generated: Label) -> tuple[Word, ...]:
        """What the action stands for; itself, if no rule says otherwise."""
        return self._words.get(generated, ((generated,),))

    @property
    def eliminated(self) -> tuple[Word, ...]:
        """The words related to TAU."""
        return self._words.get(TAU, ())

    def reversed(self) -> Abstraction:
        """The same with every word backwards, for systems walked from results to operands."""
        return Abstraction(frozenset((word[::-1], generated) for word, generated in self.rules))

    def then(self, later: Abstraction) -> Abstraction:
        """The abstraction of two rewrites in a row: this one's generated actions are the primitive ones of ``later``.

        Longer words related to TAU in ``later`` become words of primitive actions likewise.
        """
        rules: set[tuple[Word, Label]] = {(word, TAU) for word in self.eliminated}
        for word, generated in later.rules:
            for parts in product(*(self.words(letter) for letter in word)):
                performed: Word = tuple(letter for part in parts for letter in part)
                if performed or generated is not TAU:
                    rules.add((performed, generated))
        used = {generated for _, generated in later.rules}
        rules |= {(word, generated) for word, generated in self.rules if generated not in used}
        return Abstraction(frozenset(rules))

    def hidden(self, system: Coalgebra) -> list[int]:
        """Positions of the transitions that are eliminated, in a system over primitive actions.

        Single letters are eliminated wherever they occur. A longer word is where its inner states serve it alone: one
        transition in, one out, no termination; elsewhere they survive, and so do the actions.
        """
        letters = {word[0] for word in self.eliminated if len(word) == 1}
        single = [a for a, label in enumerate(system.labels) if label in letters]
        positions = set(np.flatnonzero(np.isin(system.label, single)).tolist())
        longer = [word for word in self.eliminated if len(word) > 1]
        if longer:
            private = (np.bincount(system.dst, minlength=system.states) == 1) & (np.diff(system.first) == 1)
            private &= ~system.terminating
            private[system.initial] = False
            for word in longer:
                for start in range(system.src.size):
                    positions.update(self._occurrence(system, word, start, private.tolist()))
        return sorted(positions)

    @staticmethod
    def _occurrence(system: Coalgebra, word: Word, start: int, private: list[bool]) -> list[int]:
        path = [start]
        for i, letter in enumerate(word):
            if system.labels[system.label[path[i]]] != letter:
                return []
            state = int(system.dst[path[i]])
            if i + 1 < len(word):
                if not private[state]:
                    return []
                path.append(int(system.first[state]))
        return path


class Path(NamedTuple):
    """How one execution of a generated action performs one word.

    Attributes:
        execution: position of the target's transition.
        word: the primitive actions.
        states: states of the refined system, one after each action, the last of them the end of the action state.
    """

    execution: int
    word: Word
    states: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Refined:
    """An action-reflected target in which every generated action is refined into the primitive ones it performs.

    ``x --Conv--> [ConvReLU, after Conv] --ReLU--> [ConvReLU] --TAU--> y`` stands for ``x --ConvReLU--> y``: the inner
    states of the word are moments within the action state.

    Attributes:
        system: states ``0 .. controls - 1`` are the target's own.
        controls: number of control states.
        paths: all words performed, in the order of the target's transitions.
    """

    system: Coalgebra
    controls: int
    paths: tuple[Path, ...]


def refine(
    target: Coalgebra, abstraction: Abstraction, *, share: bool, keep: Iterable[tuple[int, Word]] | None = None
) -> Refined:
    """Reflect a target and refine its actions.

    Args:
        target: a system over generated actions.
        abstraction: what they perform.
        share: whether words that leave a state with the same actions go through the same inner states, as they do
            when the source is deterministic; otherwise each goes its own way.
        keep: the words to perform, as pairs (position of a transition, word); by default all.
    """
    chosen = None if keep is None else set(keep)
    table: dict[Label, int] = {TAU: 0}
    src: list[int] = []
    label: list[int] = []
    dst: list[int] = []
    paths: list[Path] = []
    inner: dict[tuple[object, ...], int] = {}
    about: list[tuple[int, Word, int]] = []  # execution, word, letters done

    def add(s: int, a: Label, t: int) -> None:
        src.append(s)
        label.append(table.setdefault(a, len(table)))
        dst.append(t)

    def state(execution: int, word: Word, done: int) -> int:
        about.append((execution, word, done))
        return target.states + len(about) - 1

    for execution, (x, generated, y) in enumerate(target.transitions()):
        if generated is TAU:
            add(x, TAU, y)
            continue
        for word in abstraction.words(generated):
            if chosen is not None and (execution, word) not in chosen:
                continue
            at, states = x, list[int]()
            for done in range(1, len(word)):
                key = (x, word[:done]) if share else (execution, word, done)
                if key not in inner:
                    inner[key] = state(execution, word, done)
                    add(at, word[done - 1], inner[key])
                at = inner[key]
                states.append(at)
            end = state(execution, word, len(word))
            add(at, word[-1] if word else TAU, end)
            add(end, TAU, y)
            paths.append(Path(execution, word, (*states, end)))

    def name(number: int) -> str:
        if number < target.states:
            return target.name(number)
        execution, word, done = about[number - target.states]
        x, generated, y = target.transition(execution)
        moment = "" if done >= len(word) else f", after {'·'.join(map(str, word[:done]))}"
        return f"[{generated}: {target.name(x)} → {target.name(y)}{moment}]"

    system = Coalgebra.from_arrays(
        target.states + len(about),
        src,
        label,
        dst,
        labels=tuple(table),
        terminating=np.flatnonzero(target.terminating),
        initial=target.initial,
        naming=name,
    )
    return Refined(system, target.states, tuple(paths))
