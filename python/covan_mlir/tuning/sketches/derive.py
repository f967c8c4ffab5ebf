"""All sketches of a chain: the rules, applied from its end backwards until every step has a stage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.tuning.sketches.rules import Rule, rules
from covan_mlir.tuning.sketches.state import Stage, State

log = logging.getLogger(__name__)

MOST = 64
"""States of a step; a rule that makes more of them is left out."""


@dataclass(frozen=True)
class Sketch:
    """The structure of a chain's loop nest, without its numbers.

    Attributes:
        stages: of its steps, in their order.
        derivation: names of the rules that made something of it, in order.
    """

    chain: Chain
    stages: tuple[Stage, ...]
    structure: Structure
    derivation: tuple[str, ...]


def sketches(chain: Chain) -> tuple[Sketch, ...]:
    """The sketches of a chain with reductions, each once, those with less in scratch first."""
    states = [State(chain, len(chain.steps) - 1)]
    for at in range(len(chain.steps) - 1, -1, -1):
        states = [replace(state, at=at) for state in states]
        for rule in rules():
            states = _applied(rule, states)
    derived: dict[Structure, Sketch] = {}
    for state in states:
        if state.structure is not None and len(state.stages) == len(chain.steps):
            sketch = Sketch(chain, state.stages[::-1], state.structure, state.applied)
            derived.setdefault(state.structure, sketch)
    return tuple(sorted(derived.values(), key=lambda sketch: len(sketch.structure.cached)))


def _applied(rule: Rule, states: list[State]) -> list[State]:
    """The states after a rule; the same ones, if it goes wrong: a search does not end for it."""
    try:
        each = islice((new for state in states for new in _of_one(rule, state)), MOST + 1)
        after = list(each)
    except Exception as error:
        if rule.own:
            raise
        log.warning("the rule %s is left out: %s: %s", rule.name, type(error).__name__, error)
        return states
    if len(after) > MOST:
        log.warning("the rule %s is left out: it makes more than %d states of a step", rule.name, MOST)
        return states
    return list(dict.fromkeys(after))


def _of_one(rule: Rule, state: State) -> Iterator[State]:
    for new in rule.apply(state):
        if not isinstance(new, State) or new.chain != state.chain or new.at != state.at:
            raise TypeError("a rule gives states of the same step of the same chain")
        yield new if new == state else replace(new, applied=(*state.applied, rule.name))


def sketch_of(structure: Structure, derived: tuple[Sketch, ...]) -> Sketch | None:
    """The first sketch that covers a structure, of `sketches`: the one with the least in scratch."""
    return next((sketch for sketch in derived if sketch.structure.covers(structure)), None)
