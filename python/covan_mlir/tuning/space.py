"""All schedules of a chain on a target, whatever template they are of, and which of them are alike."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import compact
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.lowering.kernels.target import KernelTarget

WORTHLESS = 4.0
"""Times the time of the best one, as predicted: of such schedules the prediction is believed."""


@dataclass(frozen=True)
class Point:
    """A schedule.

    Attributes:
        predicted: seconds of its kernel.
    """

    candidate: Candidate
    predicted: float

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """Of the schedule, as JSON values."""
        fields: dict[str, Any] = json.loads(self.candidate.schedule)
        return fields


@dataclass(frozen=True)
class Space:
    """The schedules that may be worth to be tried.

    Attributes:
        points: the one that is chosen without measurements first.
    """

    points: tuple[Point, ...]

    @property
    def default(self) -> Point:
        """What is chosen without measurements."""
        return self.points[0]

    @cached_property
    def by_candidate(self) -> Mapping[Candidate, Point]:
        """Each point by its schedule."""
        return {point.candidate: point for point in self.points}

    def neighbours(self, point: Point) -> Sequence[Point]:
        """The points of the same template that differ from one in a single field: what a mutation can make of it."""
        others: dict[Candidate, Point] = {}
        for field in point.fields:
            for other in self._without[_key(point, field)]:
                others.setdefault(other.candidate, other)
        others.pop(point.candidate, None)
        return list(others.values())

    @cached_property
    def _without(self) -> Mapping[str, list[Point]]:
        """Points by all of their fields but one."""
        table: dict[str, list[Point]] = defaultdict(list)
        for point in self.points:
            for field in point.fields:
                table[_key(point, field)].append(point)
        return table

    def crossed(self, first: Point, second: Point) -> Sequence[Point]:
        """The points that have each field of one of two points of the same template."""
        if first.candidate.template != second.candidate.template:
            return []
        return [
            point
            for point in self.points
            if point.candidate.template == first.candidate.template
            and all(value in (first.fields.get(name), second.fields.get(name)) for name, value in point.fields.items())
        ]


def _key(point: Point, field: str) -> str:
    rest = {name: value for name, value in point.fields.items() if name != field}
    return f"{point.candidate.template} {field} {compact(rest)}"


def space_of(chain: Chain, target: KernelTarget) -> Space | Refusal:
    """The space of a chain, or why it has none."""
    listed = choices(chain, target)
    if isinstance(listed, Refusal):
        return listed
    least = listed.candidates[0].seconds
    points: dict[Candidate, Point] = {}
    for candidate, schedule in listed.schedules():
        predicted = candidate.match.predict(schedule)
        if predicted <= WORTHLESS * least:
            point = Candidate(candidate.template.name, compact(schedule.to_json()))
            points.setdefault(point, Point(point, predicted))
    return Space(tuple(points.values()))
