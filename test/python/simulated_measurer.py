"""A machine that is made up: a formula gives times, for tests of what is tried, whatever kernels really take."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cache

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.measure import Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.machine.description import Machine
from covan_mlir.tuning.space import Point, Space, space_of


def truth(point: Point) -> float:
    """Another machine than the one that is predicted: it likes other tiles, and is not quite the same twice."""
    fields = point.fields
    liked = 0.35 * math.cos(fields.get("rows", 1)) + 0.2 * math.sin(fields.get("vectors", 1))
    liked += 0.15 * math.cos(math.log2(fields.get("depth", 1) or 1) * 2) + 0.1 * (fields.get("height", 0) % 3)
    noise = int(hashlib.sha256(point.candidate.schedule.encode()).hexdigest()[:4], 16) / 0xFFFF
    return point.predicted * math.exp(liked + 0.03 * noise)


def measured(points: Space, batch: Sequence[Candidate]) -> list[Outcome]:
    """What becomes of some schedules, the default before them."""
    base = truth(points.default)
    rows = [points.default.candidate, *batch]
    times = {c: truth(point) for c in rows if (point := points.point(c)) is not None}
    return [Outcome(c, seconds, seconds / base, 5) for c, seconds in times.items()]


class SimulatedMeasurer:
    """In the place of `covan_mlir.lowering.kernels.measuring.measure.Measurer`."""

    slots = 1

    def __init__(self, machine: Machine, winograd: int, driver: str, extensions: Sequence[str] = ()) -> None:
        self._target = CpuTarget(machine, winograd)
        self._space = cache(lambda chain: space_of(chain, self._target))

    def __enter__(self) -> SimulatedMeasurer:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def measure(
        self, chain: Chain, reference: Candidate, candidates: Sequence[Candidate], seconds: float
    ) -> list[Outcome]:
        """See there."""
        points = self._space(chain)
        assert not isinstance(points, Refusal)
        return measured(points, candidates)
