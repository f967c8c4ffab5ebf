"""The last choice, between the best few of each kernel: inside of the program, with its neighbours, caches and threads.

A kernel that is the fastest alone may not be in its program. Programs are compiled with the best schedules of all
kernels, with the second best, and so on, and each kernel is timed in each of them. The program with what is best there
then runs in turns with the one that prediction gives: if it is not faster as a whole, nothing is chosen.
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
from covan_mlir.lowering.kernels.measuring.timing import Turns, in_turns
from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.profiling import run as profiling
from covan_mlir.runtime.compiled import CompiledModel

log = logging.getLogger(__name__)

WORTH = 0.98
"""Times the default's time, above which a schedule is not worth to be chosen."""
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
        kernel: its name in the program.
        seconds: of the default, alone.
        ranked: schedules and times alone over the default's, best first.
    """

    kernel: str
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


def decide(
    programs: Programs, base: CompiledModel, finalists: Sequence[Finalists], seconds: float, tell: Callable[[str], None]
) -> tuple[tuple[Recorded, ...], Turns, Turns]:
    """The schedules that make the program faster, and the times of the program without them and with them, in turns.

    Args:
        base: the program with what is predicted to be best.
        finalists: of the kernels that have any.
        seconds: that the programs are timed for, at last.
        tell: is told the name of each step before it runs.
    """
    rank = max((len(each.ranked) for each in finalists), default=0)
    if not rank:
        (turns, _) = in_turns(programs.caller(base), [], seconds / 4)
        return (), turns, turns
    best = _records(finalists, {each.workload: each.ranked[0] for each in finalists})
    try:
        tell("timing kernels inside of the program")
        best = _best_inside(programs, base, finalists, min(rank, RANKS), tell)
    except ProfileError as error:
        log.warning("kernels are not timed inside of the program (%s): those that are the best alone count", error)
    tell("timing the program")
    tuned = programs.program(best)
    before, (after,) = in_turns(programs.caller(base), [programs.caller(tuned)], seconds)
    return (best if after.ratio < 1.0 else ()), before, after


def _best_inside(
    programs: Programs, base: CompiledModel, finalists: Sequence[Finalists], ranks: int, tell: Callable[[str], None]
) -> tuple[Recorded, ...]:
    own = programs.kernel_seconds(base)
    chosen: dict[str, tuple[Candidate, float]] = {}
    least = {each.workload: WORTH * own.get(each.kernel, each.seconds) for each in finalists}
    for rank in range(ranks):
        tell(f"timing kernels inside of the program, {rank + 1} of {ranks}")
        tried = {each.workload: each.ranked[min(rank, len(each.ranked) - 1)] for each in finalists}
        inside = programs.kernel_seconds(programs.program(_records(finalists, tried)))
        for each in finalists:
            took = inside.get(each.kernel)
            if took is not None and took < least[each.workload]:
                least[each.workload], chosen[each.workload] = took, tried[each.workload]
    return _records(finalists, chosen)


def _records(finalists: Sequence[Finalists], chosen: Chosen) -> tuple[Recorded, ...]:
    return tuple(
        Recorded(each.workload, candidate.template, candidate.schedule, ratio * each.seconds)
        for each in finalists
        if each.workload in chosen
        for candidate, ratio in [chosen[each.workload]]
    )
