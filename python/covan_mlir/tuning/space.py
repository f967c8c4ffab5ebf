"""All schedules of a chain on a target, whatever template they are of, and which of them are alike.

What templates list is known from the start. Templates that write more than they list (the loop nest) give whole
programs of a sketch at random, programs with one number changed, and programs made of the stages of two.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as data_field
from functools import cached_property
from random import Random
from typing import Any

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import compact
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.template import Match, Schedule
from covan_mlir.tuning.sketches.derive import Sketch, sketch_of, sketches

TRIES = 20
"""Programs that are sampled, of which one may be worth to be tried."""
WORTHLESS = 4.0
"""Times the time of the best one, as predicted: of such schedules the prediction is believed."""


@dataclass(frozen=True)
class Point:
    """A schedule.

    Attributes:
        predicted: seconds of its kernel.
        structure: of its loop nest, where its template says so.
    """

    candidate: Candidate
    predicted: float
    structure: Structure | None = None

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """Of the schedule, as JSON values."""
        fields: dict[str, Any] = json.loads(self.candidate.schedule)
        return fields


@dataclass(frozen=True)
class Space:
    """The schedules that may be worth to be tried.

    Attributes:
        points: those that are listed, the one that is chosen without measurements first.
        matches: of the chain, by template.
        sketches: of the chain.
    """

    points: tuple[Point, ...]
    matches: Mapping[str, Match[Any]] = data_field(default_factory=dict)
    sketches: tuple[Sketch, ...] = ()

    @property
    def more(self) -> bool:
        """Whether there are others than those that are listed."""
        return any(match.more for match in self.matches.values())

    def point(self, candidate: Candidate) -> Point | None:
        """The point of a schedule, listed or not; None: no template writes it."""
        if candidate in self.by_candidate or candidate.template not in self.matches:
            return self.by_candidate.get(candidate)
        match = self.matches[candidate.template]
        try:
            schedule = match.read(json.loads(candidate.schedule))
        except ValueError:  # of another version, or of another machine's
            return None
        return Point(candidate, match.predict(schedule), match.structure(schedule))

    def sampled(self, random: Random) -> Point | None:
        """A whole program: all sketches that are written are equally likely, of each all templates that write it, and
        of each of these all programs; None where none comes up that may be worth to be tried."""
        if not self.written:
            return random.choice(self.points)
        sketch = random.choice(self.written)
        name = random.choice([name for name in self.matches if self._writes(name, sketch)])
        match = self.matches[name]
        if not match.more:
            return random.choice(self._of_sketch[sketch, name])
        programs = (self._worth(name, match.sampled(sketch.structure, random)) for _ in range(TRIES))
        return next((point for point in programs if point is not None), None)

    def changed(self, point: Point, random: Random) -> Point | None:
        """A point that is not listed and differs from one in one number, of the same sketch; None: there is none."""
        match = self.matches.get(point.candidate.template)
        if match is None or not match.more:
            return None
        return self._worth(point.candidate.template, match.mutated(match.read(point.fields), random))

    def stages_of(self, first: Point, second: Point, random: Random) -> Point | None:
        """A point that is not listed, each stage of which is of one of two points of a template; None: there is
        none."""
        name = first.candidate.template
        match = self.matches.get(name)
        if match is None or not match.more or second.candidate.template != name:
            return None
        return self._worth(name, match.crossed(match.read(first.fields), match.read(second.fields), random))

    def _worth(self, name: str, schedule: Schedule | None) -> Point | None:
        if schedule is None:
            return None
        match = self.matches[name]
        predicted = match.predict(schedule)
        if predicted > WORTHLESS * self.default.predicted:
            return None
        return Point(Candidate(name, compact(schedule.to_json())), predicted, match.structure(schedule))

    @cached_property
    def _of_sketch(self) -> Mapping[tuple[Sketch, str], list[Point]]:
        """Listed points by sketch and template."""
        table: dict[tuple[Sketch, str], list[Point]] = defaultdict(list)
        for point in self.points:
            sketch = sketch_of(point.structure, self.sketches) if point.structure is not None else None
            if sketch is not None:
                table[sketch, point.candidate.template].append(point)
        return dict(table)

    @cached_property
    def written(self) -> list[Sketch]:
        """Sketches that some template writes."""
        return [sketch for sketch in self.sketches if any(self._writes(name, sketch) for name in self.matches)]

    def _writes(self, name: str, sketch: Sketch) -> bool:
        if (sketch, name) in self._of_sketch:
            return True
        match = self.matches[name]
        return match.more and match.sampled(sketch.structure, Random(0)) is not None

    @property
    def default(self) -> Point:
        """What is chosen without measurements."""
        return self.points[0]

    @cached_property
    def by_candidate(self) -> Mapping[Candidate, Point]:
        """Each point by its schedule."""
        return {point.candidate: point for point in self.points}

    def neighbours(self, point: Point) -> Sequence[Point]:
        """The listed points of the same template that differ from one in a single field."""
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
        """The listed points that have each field of one of two points of the same template."""
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
    matches = {candidate.template.name: candidate.match for candidate in listed.candidates}
    for candidate, schedule in listed.schedules():
        predicted = candidate.match.predict(schedule)
        if predicted <= WORTHLESS * least:
            point = Candidate(candidate.template.name, compact(schedule.to_json()))
            points.setdefault(point, Point(point, predicted, candidate.match.structure(schedule)))
    return Space(tuple(points.values()), matches, sketches(chain))
