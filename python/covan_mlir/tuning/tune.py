"""Tuning programs: measure schedules of their kernels until the time is up, and keep what makes them faster."""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from covan_mlir.compilation.captured import machine_of
from covan_mlir.compilation.origin import Origin
from covan_mlir.errors import InputError, RecordsError, TargetError
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.database import Database, Setting, default_path
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.measure import Measurer
from covan_mlir.lowering.kernels.measuring.timing import clock_of, in_turns
from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.lowering.kernels.reductions.operands import traffic
from covan_mlir.lowering.kernels.shipped import schedules as shipped_schedules
from covan_mlir.lowering.targets import parse
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.tuning.in_program import Entry, Finalists, Programs, Verdict, decide
from covan_mlir.tuning.remote import Remote, Workers
from covan_mlir.tuning.report import Row, Tuning
from covan_mlir.tuning.session import WORTH, Load, Measures, Session, Tuned, begin
from covan_mlir.tuning.space import Space
from covan_mlir.tuning.tasks import Task, tasks_of

log = logging.getLogger(__name__)

LAST = 0.3
"""Of all the time, what is kept for the programs as a whole."""
WHOLE = 6.0
"""Seconds that a program is timed for at last, at most."""
FIRST = 0.2
"""Seconds that a program is timed for at first."""


@dataclass(frozen=True)
class Program:
    """A compiled model.

    Attributes:
        model: compiled without records, for this machine's CPU.
        arguments: that it is called with, by place and by name.
        limit: seconds of a call that are good enough; 0: none are.
    """

    model: CompiledModel
    origin: Origin
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    limit: float = 0.0


@dataclass(frozen=True)
class _Work:
    """What there is to tune in a program."""

    program: Program
    tasks: Sequence[Task]
    left: Mapping[str, str]
    programs: Programs
    seconds: float

    @property
    def entry(self) -> Entry:
        kernels: dict[str, list[str]] = defaultdict(list)
        for task in self.tasks:
            kernels[task.workload].append(task.kernel)
        return Entry(self.programs, self.program.model, kernels)


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


def tune_programs(
    programs: Sequence[Program],
    *,
    minutes: float,
    records: Path,
    scheduler: str | None = None,
    tell: Callable[[str], None] = lambda step: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Tuning]:
    """Tune compiled models, as one: what several of them run is measured once; see `covan_mlir.tune`.

    Args:
        records: the file that keeps what is measured; see `records_path`.
        scheduler: address of Dask's, whose workers measure kernels; None: they are measured here.
        clock: for tests.

    Returns: what became of each.

    Raises:
        InputError: the arguments do not fit, there is no lineage, or no worker.
        TargetError: a program is for another machine.
        RecordsError: the file of records cannot be used.
    """
    targets = [tuned_target(each.model, each.origin) for each in programs]
    for each in programs:
        each.model.checked(*each.arguments)  # before anything slow begins
    end = clock() + 60.0 * minutes
    machine = targets[0].machine
    setting = Setting.of("cpu", machine)
    spaces: dict[str, Space | Refusal] = {}
    work = [_work(each, target, setting, spaces) for each, target in zip(programs, targets, strict=True)]
    with Database(records) as database:
        tuned = _distinct(work, database, setting)
        names = {one.task.workload: number for number, one in enumerate(tuned)}
        with ExitStack() as processes:
            workers = processes.enter_context(Workers.of(scheduler, setting)) if scheduler else None

            @cache
            def measurer(driver: str) -> Measures:
                first, target = next((p, t) for p, t in zip(programs, targets, strict=True) if p.model.driver == driver)
                how = (machine, target.winograd, driver, first.origin.options.extensions)
                return processes.enter_context(Measurer(*how)) if workers is None else Remote(workers, *how)

            loads = [_load(each, names) for each in work]
            last = end - LAST * 60.0 * minutes
            enough = Session(tuned, loads, measurer, database, setting, last, tell, clock).run()
        finalists = [best for one in tuned if (best := _finalists(one)) is not None]
        seconds = min(WHOLE, max(1.0, LAST * 60.0 * minutes / 4 / len(programs)))
        chosen, verdicts = decide([each.entry for each in work], finalists, seconds, tell)
        shipped = {record.workload for record in shipped_schedules("cpu", machine)}
        others = [each for each in _defaults(tuned, chosen) if chosen or each.workload in shipped]
        database.choose(setting, [*others, *chosen])
    by_name = {one.task.workload: one for one in tuned}
    return [
        _tuning(each, by_name, chosen, verdict, enough, records) for each, verdict in zip(work, verdicts, strict=True)
    ]


def _work(program: Program, target: CpuTarget, setting: Setting, spaces: dict[str, Space | Refusal]) -> _Work:
    tasks, left = tasks_of(program.model.lineage, target, spaces)
    for kernel, why in left.items():
        log.info("%s is not tuned: %s", kernel, why)
    programs = Programs(program.origin, program.model.target, setting, program.arguments)
    before, _ = in_turns(programs.caller(program.model), [], FIRST, clock_of(program.model.driver))
    return _Work(program, tasks, left, programs, before.seconds)


def _distinct(work: Sequence[_Work], database: Database, setting: Setting) -> list[Tuned]:
    """A search for each thing that kernels compute, whatever they are called, and whichever programs run them."""
    tuned: dict[str, Tuned] = {}
    for each in work:
        for task in each.tasks:
            if task.workload not in tuned:
                tuned[task.workload] = begin(task, database, setting, each.program.model.driver)
    return list(tuned.values())


def _load(work: _Work, numbers: Mapping[str, int]) -> Load:
    counts: dict[int, float] = defaultdict(float)
    for task in work.tasks:
        counts[numbers[task.workload]] += task.count
    return Load(counts, work.seconds, work.program.limit)


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


def _finalists(one: Tuned) -> Finalists | None:
    """The best schedules of a task, where there are better ones than the default."""
    better = tuple((candidate, ratio) for candidate, ratio in one.search.best if ratio < WORTH)
    if not better or one.search.base is None:
        return None
    return Finalists(one.task.workload, one.search.base, better)


def _defaults(tuned: Sequence[Tuned], chosen: Sequence[Recorded]) -> list[Recorded]:
    """The defaults of kernels that are none of those chosen: what earlier runs chose of them, or is shipped, was not
    timed in these programs."""
    taken = {record.workload for record in chosen}
    return [
        Recorded(one.task.workload, default.template, default.schedule, one.search.base)
        for one in tuned
        if one.task.workload not in taken and one.search.base is not None
        for default in [one.task.space.default.candidate]
    ]


def _tuning(
    work: _Work,
    tuned: Mapping[str, Tuned],
    chosen: Sequence[Recorded],
    verdict: Verdict,
    enough: bool,
    records: Path,
) -> Tuning:
    by_name = {record.workload: record for record in chosen}
    rows = tuple(_row(task, tuned[task.workload], by_name.get(task.workload)) for task in work.tasks)
    told = (rows, work.left, verdict.seconds, verdict.ratio, verdict.tried, enough, str(records))
    model = work.program.model
    ceilings = tuned_target(model, work.program.origin).machine.ceilings(1 if model.driver == "local-sync" else None)
    return Tuning(*told, ceilings.flops, ceilings.bandwidth)


def _row(task: Task, one: Tuned, record: Recorded | None) -> Row:
    return Row(
        kernel=task.kernel,
        what=task.what,
        count=task.count,
        default=task.space.default.candidate.template,
        seconds=one.search.base,
        tried=sum(ratio is not None for ratio in one.search.ratios.values()),
        failures=one.failures,
        points=len(task.space.points),
        best=one.search.best[0][1],
        chosen=f"{record.template} {record.schedule}" if record else "",
        flops=float(task.chain.contraction_flops),
        moved=float(traffic(task.chain)),
        curve=one.curve,
    )
