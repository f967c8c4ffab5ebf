"""The search for the kernels of some programs: batches of schedules are measured until the time is up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.database import Database, Measurement, Setting, Workload
from covan_mlir.lowering.kernels.measuring.measure import MeasuringError, Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import compact
from covan_mlir.tuning import scheduler
from covan_mlir.tuning.cost_model import CostModel
from covan_mlir.tuning.search import Search
from covan_mlir.tuning.tasks import Task

log = logging.getLogger(__name__)

BATCH = 12
"""Schedules that are built and timed together."""
SLICE = 0.12
"""Seconds that each of them is timed for, about."""
WORTH = 0.98
"""Times the default's time, above which a schedule is not worth to be chosen."""
GRACE = 20.0
"""Seconds that are waited for batches which others are at work on, when the time is up."""


class Measures(Protocol):
    """Who measures.

    Attributes:
        slots: batches that it takes at once, in threads of their own if these are several.
    """

    @property
    def slots(self) -> int: ...

    def measure(
        self, chain: Chain, reference: Candidate, candidates: Sequence[Candidate], seconds: float
    ) -> list[Outcome]:
        """See `covan_mlir.lowering.kernels.measuring.measure.Measurer`."""
        ...


@dataclass
class Tuned:
    """A task, its search, and what the scheduler knows of it.

    Attributes:
        driver: that the program runs on in which the task was seen first.
        curve: after each batch, seconds since the beginning, schedules that were tried, and the best time over that of
            the default.
    """

    task: Task
    search: Search
    progress: scheduler.Progress
    failures: int = 0
    driver: str = ""
    curve: tuple[tuple[float, int, float], ...] = ()


@dataclass(frozen=True)
class Load:
    """A program, as the search sees it.

    Attributes:
        counts: how often a call runs each task, by its number.
        seconds: of a call with what is predicted to be best.
        limit: seconds that are enough; 0: none are.
    """

    counts: dict[int, float]
    seconds: float
    limit: float = 0.0


@dataclass(frozen=True)
class Session:
    """All that a search needs.

    Attributes:
        measurers: by driver.
        end: when it ends, on ``clock``.
        tell: is told what is being done.
    """

    tuned: Sequence[Tuned]
    loads: Sequence[Load]
    measurers: Callable[[str], Measures]
    database: Database
    setting: Setting
    end: float
    tell: Callable[[str], None]
    clock: Callable[[], float]

    def calls(self) -> list[scheduler.Call]:
        """The programs' calls. What of one is not tuned takes what its kernels alone do not explain."""
        return [
            scheduler.Call(load.counts, max(0.0, load.seconds - self._first(load)), load.limit) for load in self.loads
        ]

    def _first(self, load: Load) -> float:
        return sum(count * self.tuned[number].progress.times[0] for number, count in load.counts.items())

    def run(self) -> bool:
        """Measure until the end; -> whether it stopped before, since little more is to be gained."""
        start, model = self.clock(), CostModel()
        slots = max((self.measurers(one.driver).slots for one in self.tuned), default=1)
        if slots == 1:  # in this thread: nothing is left behind when it is interrupted
            while self.clock() < self.end:
                if (number := self._next(())) is None:
                    return True
                if batch := self._batch(number, model):
                    self._measured(number, self._asked(number, batch), start)
            return False
        threads = ThreadPoolExecutor(slots)
        running: dict[Future[list[Outcome] | MeasuringError], int] = {}
        try:
            while self.clock() < self.end:
                number = self._next(list(running.values())) if len(running) < slots else None
                if number is None and not running:
                    return True
                if number is not None:
                    if batch := self._batch(number, model):
                        running[threads.submit(self._asked, number, batch)] = number
                    continue
                ready, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in ready:
                    self._measured(running.pop(future), future.result(), start)
            ready, _ = wait(running, timeout=GRACE)  # in one thread, the last batch is ended, too
            for future in ready:
                self._measured(running.pop(future), future.result(), start)
            return False
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def _next(self, busy: Collection[int]) -> int | None:
        tasks, calls = [one.progress for one in self.tuned], self.calls()
        number = scheduler.next_task(tasks, calls, busy)
        # Whoever is idle goes on with a task that others are at work on.
        return scheduler.next_task(tasks, calls) if number is None and busy else number

    def _batch(self, number: int, model: CostModel) -> list[Candidate]:
        """What is measured next of a task; empty: there is nothing left."""
        one = self.tuned[number]
        model.learn([sample for other in self.tuned for sample in other.search.samples()])
        batch = one.search.batch(BATCH, model)
        if not batch:
            one.progress.done = True
            return []
        tasks = [each.progress for each in self.tuned]
        calls = self.calls()
        now = sum(call.seconds(tasks) for call in calls)
        faster = sum(call.rest + self._first(load) for call, load in zip(calls, self.loads, strict=True)) / now
        self.tell(
            f"calls {faster:.3f} times as fast as predicted so far, "
            f"{max(0.0, self.end - self.clock()):.0f} s left; {one.task.what} ({number + 1} of {len(tasks)} kernels): "
            f"{1.0 / one.search.best[0][1]:.2f} times, {len(one.search.ratios)} of {len(one.task.space.points)} tried"
        )
        return batch

    def _asked(self, number: int, batch: Sequence[Candidate]) -> list[Outcome] | MeasuringError:
        one = self.tuned[number]
        reference = one.task.space.default.candidate
        try:
            return self.measurers(one.driver).measure(one.task.chain, reference, batch, SLICE * len(batch))
        except MeasuringError as error:
            return error

    def _measured(self, number: int, outcomes: list[Outcome] | MeasuringError, start: float) -> None:
        """Take in what became of a batch."""
        one = self.tuned[number]
        if isinstance(outcomes, MeasuringError):
            log.warning("%s is not tuned any further: %s", one.task.what, outcomes)
            one.progress.done = True
            return
        keep(self.database, self.setting, one.task, outcomes)
        for outcome in outcomes:
            if outcome.failure:
                one.failures += 1
                log.info("%s: %s", outcome.candidate, outcome.failure)
        one.search.know(outcomes)
        best = one.search.best[0][1]
        if not one.progress.slices:
            one.progress.times = [one.search.base or one.task.space.default.predicted]
        # The first time is kept: another moment of the machine, in which all is slower or faster, is no loss nor gain.
        one.progress.times.append(one.progress.times[0] * best)
        one.curve = (*one.curve, (self.clock() - start, len(one.search.ratios), best))


def begin(task: Task, database: Database, setting: Setting, driver: str = "") -> Tuned:
    """A task with what is known of it from earlier runs. Where another kernel was predicted to be the best then, times
    over its time say nothing: such schedules are measured again."""
    search = Search(task.chain, task.space)
    against = str(task.space.default.candidate)
    known = [row for row in database.measurements(setting, task.workload) if row.failure or row.against == against]
    search.know(
        Outcome(
            Candidate(row.template, row.schedule),
            row.seconds,
            row.seconds / row.reference if row.seconds is not None and row.reference else None,
            row.rounds,
            row.failure,
        )
        for row in known
    )
    progress = scheduler.Progress(task.work, task.kind, [task.space.default.predicted])
    if search.base is not None:
        progress.times = [search.base, *([search.base * search.best[0][1]] * scheduler.SLICES)]
    return Tuned(task, search, progress, sum(bool(row.failure) for row in known), driver)


def keep(database: Database, setting: Setting, task: Task, outcomes: Sequence[Outcome]) -> None:
    """Write down what was measured of a task."""
    rows = [
        Measurement(
            task.workload,
            outcome.candidate.template,
            outcome.candidate.schedule,
            outcome.seconds,
            str(task.space.default.candidate),
            outcome.seconds / outcome.ratio if outcome.seconds is not None and outcome.ratio else None,
            outcome.rounds,
            outcome.failure,
        )
        for outcome in outcomes
    ]
    database.add(setting, Workload(task.workload, compact(chain_json.dump(task.chain))), rows)
