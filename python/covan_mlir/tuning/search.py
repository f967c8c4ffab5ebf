"""Which schedules of a chain are measured next: evolution from the best ones so far, ranked by the cost model.

::

    first batch: those that are predicted to be the best
    then:  parents   = the best that were measured
           children  = parents with one field changed, or with fields of two of them
           batch     = of the children that were not measured, those that the model likes best
                       + a few of all, at random
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


@dataclass
class Search:
    """The search for one chain.

    Attributes:
        ratios: of what was measured, times over that of the default in the same turns; None where there is none.
        base: seconds of the default, the latest.
    """

    chain: Chain
    space: Space
    seed: int = 0
    ratios: dict[Candidate, float | None] = field(default_factory=dict)
    base: float | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def know(self, outcomes: Iterable[Outcome]) -> None:
        """Take in what was measured."""
        for outcome in outcomes:
            if outcome.candidate == self.space.default.candidate:
                self.base = outcome.seconds or self.base
            if outcome.candidate in self.space.by_candidate:
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
        return all(point.candidate in self.ratios for point in self.space.points[1:])

    def batch(self, count: int, model: CostModel) -> list[Candidate]:
        """The next ones to be measured: no more than so many, none twice, none if all were."""
        fresh = [point for point in self.space.points[1:] if point.candidate not in self.ratios]
        if not self.ratios:
            return [point.candidate for point in sorted(fresh, key=lambda point: point.predicted)[:count]]
        chosen: dict[Candidate, None] = {}
        for point in self._random.sample(fresh, min(len(fresh), max(1, round(RANDOM * count)))):
            chosen[point.candidate] = None
        known = {point.candidate for point in fresh}
        children = [point for point in self._children() if point.candidate in known] or fresh
        for point in self._ranked(children, model):
            if len(chosen) >= count:
                break
            chosen[point.candidate] = None
        for point in self._ranked(fresh, model) if len(chosen) < count else ():
            if len(chosen) >= count:
                break
            chosen[point.candidate] = None
        return list(chosen)

    def _ranked(self, points: Sequence[Point], model: CostModel) -> list[Point]:
        seconds = model.seconds(self.chain, points)
        return [point for _, _, point in sorted(zip(seconds, range(len(points)), points, strict=True))]

    def _children(self) -> list[Point]:
        parents = [self.space.by_candidate[candidate] for candidate, _ in self.best[:PARENTS]]
        children: dict[Candidate, Point] = {}
        for number, parent in enumerate(parents):
            for point in self.space.neighbours(parent):
                children.setdefault(point.candidate, point)
            for other in parents[number + 1 :]:
                for point in self.space.crossed(parent, other):
                    children.setdefault(point.candidate, point)
        return list(children.values())

    def samples(self) -> list[Sample]:
        """What the cost model can learn from this chain."""
        if self.base is None:
            return []
        timed = {candidate: ratio for candidate, ratio in self.ratios.items() if ratio is not None}
        timed[self.space.default.candidate] = 1.0
        least = min(timed.values())
        return [
            Sample(self.chain, self.space.by_candidate[candidate], ratio * self.base, least / ratio)
            for candidate, ratio in timed.items()
        ]
