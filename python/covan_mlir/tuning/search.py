"""Which schedules of a chain are measured next: evolution from the best ones so far, ranked by the cost model.

::

    first batch: those that are predicted to be the best
    then:  parents   = the best that were measured
           children  = parents with one number changed, within their sketch, or with stages or fields of two of them
           batch     = of the children and of what is listed, those that the model likes best
                       + a few whole programs, at random: sketches are equally likely, and so are programs of each
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.measuring.measure import Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.tuning.cost_model import CostModel, Sample
from covan_mlir.tuning.space import Point, Space

PARENTS = 6
RANDOM = 0.15
"""Of a batch, what is taken at random: the model may be wrong about what it has not seen."""
CHANGES = 12
"""Programs that are not listed which a parent is changed into, or two parents are made into."""


@dataclass
class Search:
    """The search for one chain.

    Attributes:
        ratios: of what was measured, times over that of the default in the same turns; None where there is none.
        base: seconds of the default, the latest.
        asked: what was given out to be measured.
    """

    chain: Chain
    space: Space
    seed: int = 0
    ratios: dict[Candidate, float | None] = field(default_factory=dict)
    base: float | None = None
    asked: set[Candidate] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._known: dict[Candidate, Point] = dict(self.space.by_candidate)

    def know(self, outcomes: Iterable[Outcome]) -> None:
        """Take in what was measured."""
        for outcome in outcomes:
            if outcome.candidate == self.space.default.candidate:
                self.base = outcome.seconds or self.base
            if outcome.candidate not in self._known and (point := self.space.point(outcome.candidate)) is not None:
                self._known[outcome.candidate] = point
            if outcome.candidate in self._known:
                self.ratios[outcome.candidate] = outcome.ratio

    @property
    def best(self) -> list[tuple[Candidate, float]]:
        """What was measured, best first; the default has the ratio 1."""
        timed = {candidate: ratio for candidate, ratio in self.ratios.items() if ratio is not None}
        timed[self.space.default.candidate] = 1.0
        return sorted(timed.items(), key=lambda pair: (pair[1], pair[0].template, pair[0].schedule))

    @property
    def exhausted(self) -> bool:
        """Whether all was measured."""
        return not self.space.more and all(point.candidate in self.ratios for point in self.space.points[1:])

    def batch(self, count: int, model: CostModel) -> list[Candidate]:
        """The next ones to be measured: no more than so many, none twice, none if all were. Others of which nothing is
        known yet may be at work."""
        batch = self._batch(count, model)
        self.asked.update(batch)
        return batch

    def _batch(self, count: int, model: CostModel) -> list[Candidate]:
        taken = self.asked | self.ratios.keys()
        fresh = [point for point in self.space.points[1:] if point.candidate not in taken]
        if not self.ratios:
            return [point.candidate for point in sorted(fresh, key=lambda point: point.predicted)[:count]]
        chosen: dict[Candidate, None] = {}
        for _ in range(max(1, round(RANDOM * count))):
            point = self.space.sampled(self._random)
            if point is None or point.candidate in taken or point == self.space.default:
                point = self._random.choice(fresh) if fresh else None
            if point is not None:
                chosen[self._noted(point)] = None
        # What is listed is no more than the model can look at as a whole: evolution leads to the rest, and would stay
        # beside what was good at first.
        pool = {point.candidate: point for point in (*self._children(), *fresh) if point.candidate not in taken}
        for point in self._ranked(list(pool.values()), model):
            if len(chosen) >= count:
                break
            chosen[self._noted(point)] = None
        return list(chosen)

    def _ranked(self, points: Sequence[Point], model: CostModel) -> list[Point]:
        seconds = model.seconds(self.chain, points)
        return [point for _, _, point in sorted(zip(seconds, range(len(points)), points, strict=True))]

    def _noted(self, point: Point) -> Candidate:
        """The candidate of a point, which may be one that is not listed."""
        self._known.setdefault(point.candidate, point)
        return point.candidate

    def _children(self) -> list[Point]:
        parents = [self._known[candidate] for candidate, _ in self.best[:PARENTS]]
        children: dict[Candidate, Point] = {}
        for number, parent in enumerate(parents):
            for point in (*self.space.neighbours(parent), *self._changed(parent)):
                children.setdefault(point.candidate, point)
            for other in parents[number + 1 :]:
                new = self.space.stages_of(parent, other, self._random)
                for point in (*self.space.crossed(parent, other), *([new] if new is not None else [])):
                    children.setdefault(point.candidate, point)
        children.pop(self.space.default.candidate, None)
        return list(children.values())

    def _changed(self, parent: Point) -> list[Point]:
        changed = (self.space.changed(parent, self._random) for _ in range(CHANGES))
        return [point for point in changed if point is not None]

    def samples(self) -> list[Sample]:
        """What the cost model can learn from this chain."""
        if self.base is None:
            return []
        timed = {candidate: ratio for candidate, ratio in self.ratios.items() if ratio is not None}
        timed[self.space.default.candidate] = 1.0
        least = min(timed.values())
        return [
            Sample(self.chain, self._known[candidate], ratio * self.base, least / ratio)
            for candidate, ratio in timed.items()
        ]
