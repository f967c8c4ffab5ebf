"""Strategies of searching a space, to compare: the tuner's own, with and without its model, chance, and Q-learning."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.measuring.measure import Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.tuning.cost_model import CostModel
from covan_mlir.tuning.search import Search
from covan_mlir.tuning.space import Point, Space

Steps = Generator[Candidate, float, None]
"""What is measured next; is sent its time over that of the default."""
Strategy = Callable[[Chain, Space, float, int], Steps]
"""Of a chain and its space, seconds of the default, and a seed: all schedules, each once; those that are not `blind` or
`informed` leave out the default, which was measured before."""
BATCH = 12


def by_chance(_: Chain, space: Space, __: float, seed: int) -> Steps:
    """All are equally likely."""
    for point in random.Random(seed).sample(space.points[1:], len(space.points) - 1):
        yield point.candidate


def by_prediction(_: Chain, space: Space, __: float, seed: int) -> Steps:
    """In the order of what templates predict."""
    for point in sorted(space.points[1:], key=lambda point: point.predicted):
        yield point.candidate


class Untaught(CostModel):
    """Knows nothing: all are equally good."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def seconds(self, chain: Chain, points: Sequence[Point]) -> list[float]:
        """Numbers that mean nothing."""
        return [self._random.random() for _ in points]


class Predicting(CostModel):
    """Learns nothing, and takes the templates' word."""

    def seconds(self, chain: Chain, points: Sequence[Point]) -> list[float]:
        """What templates predict."""
        return [point.predicted for point in points]


def evolution(chain: Chain, space: Space, seconds: float, seed: int) -> Steps:
    """Children of the best, in any order; the first batch is of what is predicted to be best."""
    return _evolution(chain, space, seconds, seed, Untaught(seed))


def evolution_predicted(chain: Chain, space: Space, seconds: float, seed: int) -> Steps:
    """Children of the best, as templates rank them."""
    return _evolution(chain, space, seconds, seed, Predicting())


def evolution_learned(chain: Chain, space: Space, seconds: float, seed: int) -> Steps:
    """The tuner's own: children of the best, as the learned model ranks them."""
    return _evolution(chain, space, seconds, seed, CostModel())


def _evolution(chain: Chain, space: Space, seconds: float, seed: int, model: CostModel) -> Steps:
    search, default = Search(chain, space, seed), space.default.candidate
    while batch := search.batch(BATCH, model):
        rows: list[Outcome] = []
        for candidate in batch:
            ratio = yield candidate
            rows.append(Outcome(candidate, ratio * seconds, ratio, 5))
        search.know([Outcome(default, seconds, 1.0, 5), *rows])
        if not isinstance(model, Untaught | Predicting):
            model.learn(search.samples())


def q_learning(_: Chain, space: Space, __: float, seed: int) -> Steps:
    """Tabular Q-learning: a walk from schedule to schedule. A state is the template and whether the last step was a
    gain; an action is the field that is changed; the reward is the logarithm of the time before over that after."""
    rate, discount, greedy = 0.3, 0.7, 0.8
    chooser = random.Random(seed)
    values: dict[tuple[str, bool], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    known: dict[Candidate, float] = {space.default.candidate: 1.0}
    at, gained = space.default, False

    def others(point: Point, field: str) -> list[Point]:
        """Schedules that differ in a field and were not measured."""
        return [
            other
            for other in space.neighbours(point)
            if other.candidate not in known and other.fields[field] != point.fields[field]
        ]

    while len(known) < len(space.points):
        actions = {field: near for field in at.fields if (near := others(at, field))}
        state = (at.candidate.template, gained)
        if actions:
            best = max(actions, key=lambda field: (values[state][field], chooser.random()))
            action = best if chooser.random() < greedy else chooser.choice(list(actions))
            new = chooser.choice(actions[action])
        else:  # nothing beside it is left: anywhere
            action = "jump"
            new = chooser.choice([point for point in space.points if point.candidate not in known])
        known[new.candidate] = yield new.candidate
        reward = math.log(known[at.candidate] / known[new.candidate])
        after = values[(new.candidate.template, reward > 0.0)]
        target = reward + discount * max(after.values(), default=0.0)
        values[state][action] += rate * (target - values[state][action])
        # As in annealing at no temperature, a loss is not gone on from, but for exploration.
        gained = reward > 0.0
        if gained or chooser.random() > greedy:
            at = new


def blind(strategy: Strategy) -> Strategy:
    """The same by someone who knows no predictions: the default is any schedule, and all are predicted to be equal."""

    def steps(chain: Chain, space: Space, seconds: float, seed: int) -> Steps:
        points = random.Random(seed).sample(space.points, len(space.points))
        first = yield points[0].candidate
        unknown = Space(tuple(replace(point, predicted=1.0) for point in points))
        inner = strategy(chain, unknown, first * seconds, seed)
        candidate = next(inner, None)
        while candidate is not None:
            ratio = yield candidate
            try:
                candidate = inner.send(ratio / first)
            except StopIteration:
                candidate = None

    return steps


def informed(strategy: Strategy) -> Strategy:
    """The default is measured first."""

    def steps(chain: Chain, space: Space, seconds: float, seed: int) -> Steps:
        yield space.default.candidate
        yield from strategy(chain, space, seconds, seed)

    return steps


STRATEGIES: dict[str, Strategy] = {
    "random": blind(by_chance),
    "Q-learning": blind(q_learning),
    "evolution": blind(evolution),
    "evolution, learned model": blind(evolution_learned),
    "predictions": informed(by_prediction),
    "predictions, evolution": informed(evolution_predicted),
    "predictions, evolution, learned model": informed(evolution_learned),
}
"""By name; the last one is the tuner's own."""
