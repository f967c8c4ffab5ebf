"""Tuning a program: measure schedules of its kernels until the time is up, and keep what makes it faster."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covan_mlir.compilation.captured import machine_of
from covan_mlir.compilation.origin import Origin
from covan_mlir.errors import InputError, RecordsError, TargetError
from covan_mlir.fred import chain_json
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.database import Database, Measurement, Setting, Workload, default_path
from covan_mlir.lowering.kernels.measuring.measure import Measurer, MeasuringError, Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import Recorded, compact
from covan_mlir.lowering.targets import parse
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.tuning import scheduler
from covan_mlir.tuning.cost_model import CostModel
from covan_mlir.tuning.in_program import WORTH, Finalists, Programs, decide
from covan_mlir.tuning.report import Row, Tuning
from covan_mlir.tuning.search import Search
from covan_mlir.tuning.tasks import Task, tasks_of

log = logging.getLogger(__name__)

BATCH = 12
"""Schedules that are built and timed together."""
SLICE = 0.12
"""Seconds that each of them is timed for, about."""
LAST = 0.3
"""Of all the time, what is kept for the program as a whole."""
WHOLE = 6.0
"""Seconds that the program is timed for at last, at most."""


@dataclass
class Tuned:
    """A task, its search, and what the scheduler knows of it."""

    task: Task
    search: Search
    progress: scheduler.Progress
    failures: int = 0


def records_path(records: str | os.PathLike[str] | None) -> Path:
    """The file that keeps what is measured; it is there, and can be written.

    Args:
        records: the one that was named; None: the user's own.

    Raises:
        RecordsError: there is none, or it cannot be used.
    """
    path = Path(records) if records is not None else default_path()
    if path is None:
        raise RecordsError("no records are kept: COVAN_RECORDS=off, or there is no home\nname a file for them")
    Database(path).close()
    return path


def tune_program(
    model: CompiledModel,
    origin: Origin,
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    *,
    minutes: float,
    records: Path,
    tell: Callable[[str], None] = lambda step: None,
    clock: Callable[[], float] = time.monotonic,
) -> Tuning:
    """Tune a compiled model; see `covan_mlir.tune`.

    Args:
        model: compiled without records, for this machine's CPU.
        arguments: that it is called with.
        records: the file that keeps what is measured; see `records_path`.
        clock: for tests.

    Raises:
        InputError: the arguments do not fit, or there is no lineage.
        TargetError: the program is for another machine.
        RecordsError: the file of records cannot be used.
    """
    target = tuned_target(model, origin)
    machine = target.machine
    model.checked(*arguments)  # before anything slow begins
    end = clock() + 60.0 * minutes
    setting = Setting.of("cpu", machine)
    tasks, left = tasks_of(model.lineage, target)
    for kernel, why in left.items():
        log.info("%s is not tuned: %s", kernel, why)
    with Database(records) as database:
        tuned = [begin(task, database, setting) for task in tasks]
        with Measurer(machine, target.winograd, model.driver, origin.options.extensions) as measurer:
            enough = _search(tuned, measurer, database, setting, end - LAST * 60.0 * minutes, tell, clock)
        finalists = [each for one in tuned if (each := _finalists(one)) is not None]
        programs = Programs(origin, model.target, setting, arguments)
        seconds = min(WHOLE, max(1.0, LAST * 60.0 * minutes / 4))
        chosen, before, after = decide(programs, model, finalists, seconds, tell)
        if chosen:
            database.choose(setting, [*_defaults(tuned, chosen), *chosen])
        rows = [_row(one, {record.workload: record for record in chosen}) for one in tuned]
    return Tuning(tuple(rows), left, before.seconds, after.ratio if chosen else 1.0, after.ratio, enough, str(records))


def tuned_target(model: CompiledModel, origin: Origin) -> CpuTarget:
    """The target that a model's kernels are tuned for.

    Raises:
        InputError: there is no lineage.
        TargetError: the program is for another machine.
    """
    if not model.lineage.actions:
        raise InputError("kernels are found by the lineage: compile with provenance=True")
    goal = parse(model.target)
    machine = machine_of(goal)
    if machine is None or goal.kind != "cpu" or not model.driver.startswith(("local", "openmp")):
        raise TargetError(f"{model.target} is not this machine's CPU: kernels are tuned where they run")
    return CpuTarget(machine, origin.options.winograd)


def begin(task: Task, database: Database, setting: Setting) -> Tuned:
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
    progress = scheduler.Progress(float(task.count), task.work, task.kind, [task.space.default.predicted])
    if search.base is not None:
        progress.times = [search.base, *([search.base * search.best[0][1]] * scheduler.SLICES)]
    return Tuned(task, search, progress, sum(bool(row.failure) for row in known))


def _search(
    tuned: Sequence[Tuned],
    measurer: Measurer,
    database: Database,
    setting: Setting,
    end: float,
    tell: Callable[[str], None],
    clock: Callable[[], float],
) -> bool:
    """Measures until the end; -> whether it stopped before, since little more is to be gained."""
    model = CostModel()
    while clock() < end:
        number = scheduler.next_task([one.progress for one in tuned])
        if number is None:
            return True
        one = tuned[number]
        model.learn([sample for other in tuned for sample in other.search.samples()])
        batch = one.search.batch(BATCH, model)
        if not batch:
            one.progress.done = True
            continue
        best = 1.0 / one.search.best[0][1]
        tell(
            f"{one.task.what} ({number + 1} of {len(tuned)} kernels): {best:.2f} times as fast so far, "
            f"{len(one.search.ratios)} of {len(one.task.space.points)} tried, {max(0.0, end - clock()):.0f} s left"
        )
        reference = one.task.space.default.candidate
        try:
            outcomes = measurer.measure(one.task.chain, reference, batch, SLICE * len(batch))
        except MeasuringError as error:
            log.warning("%s is not tuned any further: %s", one.task.what, error)
            one.progress.done = True
            continue
        _keep(database, setting, one.task, outcomes)
        for outcome in outcomes:
            if outcome.failure:
                one.failures += 1
                log.info("%s: %s", outcome.candidate, outcome.failure)
        one.search.know(outcomes)
        base = one.search.base or one.task.space.default.predicted
        if not one.progress.slices:
            one.progress.times = [base]
        one.progress.times.append(base * one.search.best[0][1])
    return False


def _keep(database: Database, setting: Setting, task: Task, outcomes: Sequence[Outcome]) -> None:
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


def _finalists(one: Tuned) -> Finalists | None:
    """The best schedules of a task, where there are better ones than the default."""
    better = tuple((candidate, ratio) for candidate, ratio in one.search.best if ratio < WORTH)
    if not better or one.search.base is None:
        return None
    return Finalists(one.task.kernel, one.task.workload, one.search.base, better)


def _defaults(tuned: Sequence[Tuned], chosen: Sequence[Recorded]) -> list[Recorded]:
    """The defaults of kernels that are none of those chosen: what earlier runs chose of them was not timed in this
    program."""
    taken = {record.workload for record in chosen}
    return [
        Recorded(one.task.workload, default.template, default.schedule, one.search.base)
        for one in tuned
        if one.task.workload not in taken and one.search.base is not None
        for default in [one.task.space.default.candidate]
    ]


def _row(one: Tuned, chosen: dict[str, Recorded]) -> Row:
    record = chosen.get(one.task.workload)
    return Row(
        kernel=one.task.kernel,
        what=one.task.what,
        count=one.task.count,
        default=one.task.space.default.candidate.template,
        seconds=one.search.base,
        tried=sum(ratio is not None for ratio in one.search.ratios.values()),
        failures=one.failures,
        points=len(one.task.space.points),
        best=one.search.best[0][1],
        chosen=f"{record.template} {record.schedule}" if record else "",
    )
