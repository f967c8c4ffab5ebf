"""The data of a profile: the time of each site over many calls, and what it says of sites and their actions.

All times add up. A call's total is the time from the arrival of its first work at the device's queue to that of the
next call's; where kernels run at once, each instant is divided among them; what is left is outside of kernels. Figures
are means over the middle half of the calls by their totals: means add up as medians do not, and the middle half
leaves out what the system did to a few of the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from covan_mlir.machine.description import Ceilings
from covan_mlir.profiling.costs import Costs
from covan_mlir.profiling.join import Event
from covan_mlir.provenance.model import LineageData, Site
from covan_mlir.support.typed_json import JsonObject

By = Literal["line", "module", "stage", "site"]

# Where nothing was measured (a device other than the CPU), one byte weighs as much as this many FLOPs.
_BALANCE = 10.0


class Statistics(JsonObject, frozen=True):
    """Nanoseconds per call: of all calls the least, median and 90th percentile; of the middle half the mean."""

    mean: float
    min: float
    median: float
    p90: float


class Roofline(JsonObject, frozen=True):
    """How a site stands to the machine's ceilings.

    Attributes:
        flops, bytes: per call, by counting (`covan_mlir.profiling.costs`).
        intensity: FLOPs per byte.
        peak, bandwidth: fraction of the machine's measured peak and bandwidth; None where those are not known.
        divided: some of its parts stand in other sites too: their FLOPs are divided by time.
    """

    flops: float
    bytes: float
    intensity: float
    peak: float | None
    bandwidth: float | None
    divided: bool


@dataclass(frozen=True, eq=False)
class ProfileData:
    """Times of one program's sites, call by call.

    Attributes:
        lineage: of the program.
        program: SHA-256 of the vmfb.
        target: what the program was compiled for.
        driver: the device on which it was profiled.
        totals: nanoseconds of each call, profiled.
        times: by site, nanoseconds in each call; a site that runs several times a call: their sum. Sites of which
            the device gives no time (fills and copies) are missing.
        runs: by site, how often it runs in a call.
        timeline: the dispatches of the call whose total is the median.
        unprofiled: median nanoseconds of a call on the executable's own device without the profiler.
        symbols: what the symbols in the lineage's types stood for.
        machine: ceilings of this machine's processor; None if the device is another.
        notes: what a reader should know, in sentences.
    """

    lineage: LineageData
    program: str
    target: str
    driver: str
    totals: tuple[float, ...]
    times: Mapping[int, tuple[float, ...]]
    runs: Mapping[int, int]
    timeline: tuple[Event, ...] = ()
    unprofiled: float | None = None
    symbols: Mapping[str, int] = field(default_factory=dict)
    machine: Ceilings | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def middle(self) -> tuple[int, ...]:
        """The calls of the middle half by their totals, at least one."""
        order = sorted(range(len(self.totals)), key=self.totals.__getitem__)
        cut = len(order) // 4
        return tuple(order[cut : len(order) - cut])

    @cached_property
    def total(self) -> float:
        """Nanoseconds of a call."""
        return self._mean(self.totals)

    @cached_property
    def outside(self) -> float:
        """Nanoseconds of a call in which no kernel runs: the host's work, waiting, transfers."""
        return self.total - sum(self.time(site) for site in self.times)

    @property
    def overhead(self) -> float | None:
        """How much longer a call takes for being profiled, as a fraction; below zero: Python's call costs more."""
        if not self.unprofiled:
            return None
        return float(np.median(self.totals)) / self.unprofiled - 1.0

    def time(self, site: Site | int) -> float:
        """Nanoseconds that a call spends in a site; 0 if the device gives no time for it."""
        index = self.lineage.site(site).id
        return self._mean(self.times[index]) if index in self.times else 0.0

    def statistics(self, site: Site | int | None = None) -> Statistics:
        """Of a site; of whole calls without one.

        Raises:
            KeyError: there is no such site, or the device gives no time for it.
        """
        values = self.totals if site is None else self.times[self.lineage.site(site).id]
        least, median, p90 = (float(x) for x in np.percentile(values, (0, 50, 90)))
        return Statistics(self._mean(values), least, median, p90)

    def roofline(self, site: Site | int) -> Roofline | None:
        """None for a site without a time."""
        timed = self.lineage.site(site)
        time = self.time(timed)
        if not time:
            return None
        parts = [self.lineage.parts[i] for i in timed.parts]
        runs = self.runs[timed.id]
        divided = [part for part in parts if len(self._timed_sites[part.id]) > 1]
        flops = runs * sum(self._costs.flops(part) * self._part_share(part.id, timed.id) for part in parts)
        moved = runs * sum(self._costs.traffic(timed).values())
        machine = self.machine
        return Roofline(
            flops,
            moved,
            flops / moved if moved else 0.0,
            flops / (time * 1e-9 * machine.flops) if machine else None,
            moved / (time * 1e-9 * machine.bandwidth) if machine else None,
            bool(divided),
        )

    def shares(self, site: Site | int) -> dict[int, float]:
        """How a site's time is divided among its actions, by id: fractions that add up to 1.

        An estimate: in proportion to the least time in which the machine could compute each action's FLOPs and move
        what it reads and writes across the site's border. Empty for a site without actions.
        """
        timed = self.lineage.site(site)
        weights = dict.fromkeys(timed.trace, 0.0)
        moved = self._costs.traffic(timed)
        for i in timed.parts:
            part = self.lineage.parts[i]
            owners = [action for action in part.owners if action in weights]
            for action in owners:  # of what substitutions made one, each has an equal share
                weight = self._weight(self._costs.flops(part), moved[i]) * self._part_share(i, timed.id)
                weights[action] += weight / len(owners)
        whole = sum(weights.values())
        if not whole:
            return dict.fromkeys(weights, 1.0 / len(weights)) if weights else {}
        return {action: weight / whole for action, weight in weights.items()}

    def __repr__(self) -> str:
        return f"<Profile of {len(self.totals)} calls of {self.total / 1e6:.3f} ms, {len(self.times)} sites>"

    def _mean(self, values: Sequence[float]) -> float:
        return sum(values[i] for i in self.middle) / len(self.middle)

    @cached_property
    def _costs(self) -> Costs:
        return Costs(self.lineage, self.symbols)

    @cached_property
    def _timed_sites(self) -> Mapping[int, list[int]]:
        """By part, the sites with a time that perform it."""
        timed: dict[int, list[int]] = {part: [] for part in self.lineage.parts}
        for site in self.times:
            for part in self.lineage.sites[site].parts:
                timed[part].append(site)
        return timed

    def _part_share(self, part: int, site: int) -> float:
        """The fraction of a part that a site performs: by time, if several do."""
        sites = self._timed_sites[part]
        if len(sites) < 2:
            return 1.0
        whole = sum(self.time(i) for i in sites)
        return self.time(site) / whole if whole else 1.0 / len(sites)

    def _weight(self, flops: float, moved: float) -> float:
        if self.machine is not None:
            return self.machine.seconds(flops, moved)
        return max(flops, moved * _BALANCE)
