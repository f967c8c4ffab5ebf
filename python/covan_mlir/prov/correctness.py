"""Observational correctness of a rewrite: what the target executes is what the source executes, up to abstraction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from covan_mlir.prov.abstraction import Abstraction, Path, Refined, Word, refine
from covan_mlir.prov.bisimulation import Relation, Verdict, weak_bisimulation
from covan_mlir.prov.reflection import Reflected, reflect
from covan_mlir.prov.system import TAU, Coalgebra, Label, Transition

_PAIRS = 500_000  # pairs of states walked to find out which of several words are performed


@dataclass(frozen=True, eq=False)
class Correctness:
    """The outcome of ``observationally_correct``; true when the rewrite is correct.

    Attributes:
        source, target: the two graphs.
        abstraction: the relation between their actions.
        reflected: the action-reflected source.
        refined: the action-reflected target, its actions refined.
        verdict: the weak bisimilarity of these two, eliminated actions being silent.
    """

    source: Coalgebra
    target: Coalgebra
    abstraction: Abstraction
    reflected: Reflected
    refined: Refined
    verdict: Verdict

    def __bool__(self) -> bool:
        return bool(self.verdict)

    def __str__(self) -> str:
        return f"observationally correct: {self.verdict}" if self else f"not observationally correct: {self.verdict}"

    @property
    def values(self) -> Relation:
        """The relation with the action states forgotten: which values of the source are which of the target."""
        relation = self.verdict.relation
        return Relation(relation.left[: self.source.states], relation.right[: self.target.states])

    @cached_property
    def eliminated(self) -> tuple[int, ...]:
        """Control states of the source that no control state of the target is related to."""
        left, right = self.values.left, self.values.right
        return tuple(np.flatnonzero(~np.isin(left, right)).tolist())

    def performed(self, execution: int) -> tuple[Transition, ...]:
        """The source's executions that one of the target's, given by its position, performs: its trace.

        An execution of the source belongs to it if its action state is related to a moment of the target's action
        state, and the state before to the moment before. Bisimilar twins are all named.
        """
        positions = {i for path in self._paths[execution] for i in self._matches(path)}
        return tuple(self.source.transition(i) for i in sorted(positions))

    def performers(self, execution: int) -> tuple[Transition, ...]:
        """The target's executions that perform one of the source's, given by its position."""
        return tuple(self.target.transition(t) for t in sorted(self._performers.get(execution, ())))

    @cached_property
    def _performers(self) -> dict[int, set[int]]:
        performers: dict[int, set[int]] = {}
        for execution, paths in self._paths.items():
            for path in paths:
                for i in self._matches(path):
                    performers.setdefault(i, set()).add(execution)
        return performers

    @cached_property
    def _paths(self) -> dict[int, list[Path]]:
        paths: dict[int, list[Path]] = {i: [] for i in range(self.target.src.size)}
        for path in self.refined.paths:
            paths[path.execution].append(path)
        return paths

    @cached_property
    def _executions(self) -> dict[tuple[int, Label, int], list[int]]:
        """Source executions by class of the state before, label, class of the action state."""
        left = self.verdict.relation.left.tolist()
        index: dict[tuple[int, Label, int], list[int]] = {}
        action = self.source.states
        for i, (x, label, _) in enumerate(self.source.transitions()):
            if label is not TAU:
                index.setdefault((left[x], label, left[action]), []).append(i)
                action += 1
        return index

    def _matches(self, path: Path) -> list[int]:
        right = self.verdict.relation.right
        before = int(self.target.src[path.execution])
        positions: list[int] = []
        for letter, state in zip(path.word, path.states, strict=False):
            positions += self._executions.get((int(right[before]), letter, int(right[state])), ())
            before = state
        return positions


def observationally_correct(
    source: Coalgebra, target: Coalgebra, abstraction: Abstraction | None = None, *, share: bool | None = None
) -> Correctness:
    """Check a rewrite: weak bisimilarity of the action-reflected graphs up to the abstraction.

    Every action of the target is refined into the primitive ones it performs, eliminated actions become silent, and
    the two reflected systems are compared. Related are then control states with control states, action states of the
    source with moments of action states of the target, terminating states with terminating ones. A state of the
    source that is related only to a moment within an action was eliminated by fusion.

    An abstraction with one word for each action gives an exact answer. With several, an execution performs those
    words of its action that the source can perform between states that the two graphs can reach, and end from, in
    step; a correct answer is then correct, but where both the words and the graph leave a choice, a rewrite may be
    refused that a finer choice would accept.

    Args:
        source: the graph before, over primitive actions.
        target: the graph after, over generated actions; primitive ones stand for themselves.
        abstraction: by default every action stands for itself.
        share: see ``refine``; by default as the source is deterministic.
    """
    abstraction = abstraction or Abstraction()
    if share is None:
        share = _deterministic(source)
    keep = None
    if any(len(abstraction.words(label)) > 1 for label in target.labels[1:]):
        keep = _performed_words(source, target, abstraction)
    refined = refine(target, abstraction, share=share, keep=keep)
    reflected = reflect(source)
    before = _silence(reflected.system, source, abstraction)
    single = {word[0] for word in abstraction.eliminated if len(word) == 1}
    after = refined.system.relabel(lambda label: TAU if label in single else label)
    return Correctness(source, target, abstraction, reflected, refined, weak_bisimulation(before, after))


def _silence(reflected: Coalgebra, source: Coalgebra, abstraction: Abstraction) -> Coalgebra:
    """The reflected source with its eliminated actions silent."""
    hidden = abstraction.hidden(source)
    if not hidden:
        return reflected
    action = source.states - 1 + np.cumsum(source.label != 0)  # the action state of each visible transition
    entering = np.flatnonzero((reflected.dst >= source.states) & np.isin(reflected.dst, action[hidden]))
    return reflected.hide(entering)


def _deterministic(system: Coalgebra) -> bool:
    """Whether no state has two transitions with the same visible label."""
    same = (system.src[1:] == system.src[:-1]) & (system.label[1:] == system.label[:-1]) & (system.label[1:] != 0)
    return not bool(same.any())


def _performed_words(source: Coalgebra, target: Coalgebra, abstraction: Abstraction) -> list[tuple[int, Word]] | None:
    """The words that the source can perform where the target does: by walking both in step, from start to end.

    Only pairs of states from which both can end in step count, if there are any. None if there are too many pairs.
    """
    unshared = refine(target, abstraction, share=False)
    single = {word[0] for word in abstraction.eliminated if len(word) == 1}
    system = unshared.system
    mine = source.hide(abstraction.hidden(source))
    yours = system.relabel(lambda label: TAU if label in single else label)
    start = (mine.initial, yours.initial)
    before: dict[tuple[int, int], list[tuple[int, int]]] = {start: []}
    queue = [start]
    for pair in queue:
        x, y = pair
        left, right = mine.successors(x), yours.successors(y)
        following = [(t, y) for a, t in left if a is TAU] + [(x, t) for a, t in right if a is TAU]
        following += [(s, t) for a, s in left if a is not TAU for b, t in right if a == b]
        for after in following:
            if after not in before:
                before[after] = []
                queue.append(after)
                if len(queue) > _PAIRS:
                    return None
            before[after].append(pair)
    ending = [(x, y) for x, y in queue if mine.terminating[x] and yours.terminating[y]]
    live = set(ending)
    for pair in ending:
        fresh = [p for p in before[pair] if p not in live]
        live.update(fresh)
        ending += fresh
    moments = {y for _, y in live or before}
    kept = [path for path in unshared.paths if path.states[-1] in moments]
    # An execution none of whose words can be performed keeps all, so that the comparison tells what is wrong.
    performed = {path.execution for path in kept}
    kept += [path for path in unshared.paths if path.execution not in performed]
    return [(path.execution, path.word) for path in kept]
