"""How long a kernel takes, learned from those that were measured: what the templates' predictions are off by.

Gradient-boosted trees (`lightgbm`) give the logarithm of measured over predicted time from a schedule's fields, the
sizes of the chain and the prediction itself. Fast kernels weigh more: which of them is the fastest is what is asked.
Without the library, or before there is enough to learn from, a template is off by as much as it was so far.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from statistics import fmean
from typing import Any

import numpy as np

from covan_mlir.fred.chain import Chain
from covan_mlir.tuning.space import Point

log = logging.getLogger(__name__)

ENOUGH = 24
"""Measurements that trees are grown from."""
ROUNDS = 120


@dataclass(frozen=True)
class Sample:
    """A kernel that was measured.

    Attributes:
        chain: that it computes.
        seconds: that it took.
        share: of its task's best, at most 1: how much it counts.
    """

    chain: Chain
    point: Point
    seconds: float
    share: float


def features(chain: Chain, point: Point) -> dict[str, float]:
    """What is known of a kernel before it is measured, by name."""
    sizes = chain.nominal.known_sizes
    known = {
        "predicted": math.log(point.predicted),
        "summed": math.log(max(1, prod(sizes[axis] for axis in chain.swept))),
        "results": math.log(
            max(1, max(prod(sizes[axis] for axis in chain.values[name].axes) for name in chain.outputs))
        ),
        "read": math.log(max(1, sum(prod(sizes[axis] for axis in value.axes) for value in chain.inputs))),
        "steps": float(len(chain.steps)),
        "windows": float(len(chain.windowed)),
    }
    for number, size in enumerate(sorted(sizes.values(), reverse=True)[:6]):
        known[f"size {number}"] = math.log(size)
    for name, value in point.fields.items():
        known |= _numbers(f"{point.candidate.template}.{name}", value, list(chain.sizes))
    known[f"is {point.candidate.template}"] = 1.0
    return known


def _numbers(name: str, value: Any, axes: list[str]) -> dict[str, float]:
    """A field of a schedule as numbers: of an axis its place in the chain, of a list how long it is; of counts along
    axes each of them."""
    if isinstance(value, bool | int | float):
        return {name: float(value)}
    if isinstance(value, str):
        return {name: float(axes.index(value)) if value in axes else -1.0}
    if isinstance(value, list):
        counts = {str(pair[0]): pair[1] for pair in value if isinstance(pair, list) and len(pair) == 2}
        along = {f"{name} {axes.index(axis)}": math.log(count) for axis, count in counts.items() if axis in axes}
        return {name: float(len(value)), **along}
    return {}


@dataclass
class CostModel:
    """Predicts seconds; `learn` again as measurements come."""

    _trees: Any = None
    _columns: dict[str, int] = field(default_factory=dict)
    _off: Mapping[str, float] = field(default_factory=dict)

    def learn(self, samples: Sequence[Sample]) -> None:
        """Forget what was known, and learn from these."""
        by_template: dict[str, list[float]] = defaultdict(list)
        for sample in samples:
            by_template[sample.point.candidate.template].append(_off(sample))
        self._off = {name: fmean(values) for name, values in by_template.items()}
        self._trees = None
        library = _library()
        if library is None or len(samples) < ENOUGH:
            return
        rows = [features(sample.chain, sample.point) for sample in samples]
        self._columns = {name: number for number, name in enumerate(sorted({name for row in rows for name in row}))}
        data = library.Dataset(
            self._matrix(rows), [_off(sample) for sample in samples], weight=[sample.share for sample in samples]
        )
        settings = {
            "objective": "l2",
            "learning_rate": 0.1,
            "num_leaves": 15,
            "min_data_in_leaf": 4,
            "num_threads": 1,
            "deterministic": True,
            "seed": 0,
            "verbosity": -1,
        }
        self._trees = library.train(settings, data, num_boost_round=ROUNDS)

    def seconds(self, chain: Chain, points: Sequence[Point]) -> list[float]:
        """What the kernels of some schedules are expected to take."""
        if self._trees is None:
            off = [self._off.get(point.candidate.template, 0.0) for point in points]
        elif points:
            off = self._trees.predict(self._matrix([features(chain, point) for point in points]), num_threads=1)
        else:
            off = []
        return [point.predicted * math.exp(value) for point, value in zip(points, off, strict=True)]

    def _matrix(self, rows: Sequence[Mapping[str, float]]) -> np.ndarray[Any, Any]:
        matrix = np.full((len(rows), len(self._columns)), np.nan)
        for number, row in enumerate(rows):
            for name, value in row.items():
                if name in self._columns:
                    matrix[number, self._columns[name]] = value
        return matrix


def _off(sample: Sample) -> float:
    return math.log(sample.seconds / sample.point.predicted)


@cache
def _library() -> Any:
    try:
        import lightgbm
    except ImportError:
        log.info("lightgbm is not installed (pip install 'covan-mlir[tune]'): schedules are ranked by prediction")
        return None
    return lightgbm
