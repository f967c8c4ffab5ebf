"""The last choice, between the best few of each kernel: inside of the program, with its neighbours, caches and threads.

A kernel that is the fastest alone may not be in its program. Programs are compiled with the best schedules of all
kernels, with the second best, and so on, and each kernel is timed in each of them; where several programs run one, the
sum over them counts. The programs with what is best there then run in turns with those that prediction gives: none of
the kernels of one that is not faster as a whole is chosen.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from covan_mlir.compilation.captured import compile_captured
from covan_mlir.compilation.origin import Origin
from covan_mlir.errors import ProfileError
from covan_mlir.lowering import targets
from covan_mlir.lowering.kernels.database import Database, Setting
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.measuring.timing import clock_of, in_turns
from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.profiling import run as profiling
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.tuning.session import WORTH

log = logging.getLogger(__name__)

RANKS = 3
"""Schedules of a kernel that are tried in the program."""
CALLS = 30
"""That each program is profiled for."""

Chosen = Mapping[str, tuple[Candidate, float]]
"""By workload: a schedule, and its time alone over that of the default."""


@dataclass(frozen=True)
class Finalists:
    """The best schedules of a kernel.

    Attributes:
        seconds: of the default, alone.
        ranked: schedules and times alone over the default's, best first.
    """

    workload: str
    seconds: float
    ranked: tuple[tuple[Candidate, float], ...]


class Programs:
    """Compiles one model with one schedule or another.

    Args:
        arguments: that it is called with, by place and by name.
    """

    def __init__(
        self, origin: Origin, target: str, setting: Setting, arguments: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> None:
        self._origin, self._target, self._setting, self._arguments = origin, target, setting, arguments

    def program(self, records: Sequence[Recorded]) -> CompiledModel:
        """The model with these schedules, and those that are predicted to be best for all else."""
        goals = targets.parse_all(self._target)
        with tempfile.TemporaryDirectory(prefix="covan-tune-") as folder:
            path = Path(folder) / "records.sqlite"
            with Database(path) as database:
                database.choose(self._setting, records)
            options = replace(self._origin.options, records=path, cache=False)
            return CompiledModel(compile_captured(self._origin.captured, goals, options))

    def caller(self, model: CompiledModel) -> Callable[[], object]:
        """A call of a program, which changes nothing of the model, nor of the arguments."""
        args, kwargs = self._arguments
        passed, _ = model.full_arguments(model.checked(args, kwargs))
        program, count = model.program, len(model.signature.results)
        return lambda: program.invoke(passed, count)

    def kernel_seconds(self, model: CompiledModel) -> dict[str, float]:
        """The time that a call of a program spends in each kernel.

        Raises:
            ProfileError: the device gives no times.
        """
        args, kwargs = self._arguments
        profile = profiling.profile(model, args, kwargs, repeat=CALLS)
        seconds: dict[str, float] = {}
        for site in model.lineage.sites:
            if site.id in profile.times:
                name = site.kernel.removesuffix("_parts").removesuffix("_merge")
                seconds[name] = seconds.get(name, 0.0) + profile.time(site) * 1e-9
        return seconds


@dataclass(frozen=True)
class Entry:
    """A program, at the last choice.

    Attributes:
        base: it, with what is predicted to be best.
        kernels: the names of its kernels, by workload.
    """

    programs: Programs
    base: CompiledModel
    kernels: Mapping[str, Sequence[str]]

    def of(self, records: Sequence[Recorded]) -> tuple[Recorded, ...]:
        """Those that are for its kernels."""
        return tuple(record for record in records if record.workload in self.kernels)

    def inside(self, model: CompiledModel) -> dict[str, float]:
        """Seconds of a call, by workload.

        Raises:
            ProfileError: the device gives no times.
        """
        own = self.programs.kernel_seconds(model)
        return {
            name: sum(own[kernel] for kernel in kernels if kernel in own)
            for name, kernels in self.kernels.items()
            if any(kernel in own for kernel in kernels)
        }


@dataclass(frozen=True)
class Verdict:
    """What became of a program.

    Attributes:
        seconds: of a call with what is predicted to be best.
        ratio: of a call with what is chosen to that, in turns; 1 where nothing is.
        tried: of the program that was tried first.
    """

    seconds: float
    ratio: float
    tried: float


def decide(
    entries: Sequence[Entry], finalists: Sequence[Finalists], seconds: float, tell: Callable[[str], None]
) -> tuple[tuple[Recorded, ...], list[Verdict]]:
    """The schedules that make programs faster, and none of them slower; and what became of each.

    Args:
        finalists: of the kernels that have any.
        seconds: that the programs are timed for, at last, each time.
        tell: is told the name of each step before it runs.
    """
    best = _records(finalists, {each.workload: each.ranked[0] for each in finalists})
    if finalists:
        try:
            tell("timing kernels inside of the program")
            ranks = min(max(len(each.ranked) for each in finalists), RANKS)
            best = _best_inside(entries, finalists, ranks, tell)
        except ProfileError as error:
            log.warning("kernels are not timed inside of the program (%s): those that are the best alone count", error)
        tell("timing the program")
    return _faster(entries, best, seconds)


def _faster(
    entries: Sequence[Entry], best: Sequence[Recorded], seconds: float
) -> tuple[tuple[Recorded, ...], list[Verdict]]:
    """Without the kernels of programs that are not faster; those that share some of them are asked again."""
    verdicts: dict[int, Verdict] = {}
    timed: dict[int, tuple[Recorded, ...]] = {}
    while waiting := [n for n, entry in enumerate(entries) if n not in timed or timed[n] != entry.of(best)]:
        number = waiting[0]
        entry, own = entries[number], entries[number].of(best)
        timed[number] = own
        if number in verdicts and not own:
            verdicts[number] = replace(verdicts[number], ratio=1.0)
            continue
        calls = [entry.programs.caller(entry.programs.program(own))] if own else []
        clock, own_seconds = clock_of(entry.base.driver), seconds if own else seconds / 4
        before, after = in_turns(entry.programs.caller(entry.base), calls, own_seconds, clock)
        ratio = after[0].ratio if own else 1.0
        tried = verdicts[number].tried if number in verdicts else ratio
        verdicts[number] = Verdict(before.seconds, min(1.0, ratio), tried)
        if own and ratio >= 1.0:
            best = [record for record in best if record not in own]
    return tuple(best), [verdicts[n] for n in range(len(entries))]


def _best_inside(
    entries: Sequence[Entry], finalists: Sequence[Finalists], ranks: int, tell: Callable[[str], None]
) -> tuple[Recorded, ...]:
    def inside(records: Sequence[Recorded] | None) -> dict[str, float]:
        total: dict[str, float] = {}
        for entry in entries:
            model = entry.base if records is None else entry.programs.program(entry.of(records))
            for name, took in entry.inside(model).items():
                total[name] = total.get(name, 0.0) + took
        return total

    own = inside(None)
    chosen: dict[str, tuple[Candidate, float]] = {}
    least = {each.workload: WORTH * own[each.workload] for each in finalists if each.workload in own}
    for rank in range(ranks):
        tell(f"timing kernels inside of the program, {rank + 1} of {ranks}")
        tried = {each.workload: each.ranked[min(rank, len(each.ranked) - 1)] for each in finalists}
        took = inside(_records(finalists, tried))
        for name in least:
            if name in took and took[name] < least[name]:
                least[name], chosen[name] = took[name], tried[name]
    return _records(finalists, chosen)


def _records(finalists: Sequence[Finalists], chosen: Chosen) -> tuple[Recorded, ...]:
    return tuple(
        Recorded(each.workload, candidate.template, candidate.schedule, ratio * each.seconds)
        for each in finalists
        if each.workload in chosen
        for candidate, ratio in [chosen[each.workload]]
    )
