"""From a program and its arguments to a profile: record, join, and divide among kernels that ran at once."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from covan_mlir.artifacts.variant import Variant
from covan_mlir.errors import InputError, ProfileError
from covan_mlir.machine import host
from covan_mlir.machine.description import Ceilings
from covan_mlir.profiling.join import Event, join
from covan_mlir.profiling.profile import Profile
from covan_mlir.profiling.store import checksum
from covan_mlir.runtime import profile as recorder
from covan_mlir.runtime import team, values
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.runtime.profile_events import Call
from covan_mlir.runtime.tool_files import ToolArgument


def profile(model: CompiledModel, args: tuple[Any, ...], kwargs: dict[str, Any], *, repeat: int) -> Profile:
    """Profile a model's calls with these arguments; see `covan_mlir.Executable.profile`."""
    arguments = model.checked(args, kwargs)
    passed, tensors = model.full_arguments(arguments)
    given = iter([ToolArgument(values.host_array(value, dtype), dtype) for dtype, value in tensors])
    notes, driver = [], model.driver
    if driver == team.DRIVER:  # the profiler is a program of IREE's, and has no such threads
        driver = "local-task"
        notes.append(f"calls share kernels with OpenMP threads (device {team.DRIVER!r}); profiled on {driver!r}")
    program = model.program_on(driver)
    return measure(
        model.variant,
        model.signature.function,
        driver,
        [ToolArgument(value) if isinstance(value, int | float) else next(given) for value in passed],
        model.raw_weights(),
        arguments.symbols,
        lambda: program.invoke(passed, len(model.signature.results)),
        repeat=repeat,
        notes=notes,
    )


def measure(
    variant: Variant,
    function: str,
    driver: str,
    arguments: Sequence[ToolArgument],
    weights: Mapping[str, np.ndarray[Any, Any]],
    symbols: Mapping[str, int],
    call: Callable[[], Any],
    *,
    repeat: int,
    notes: Sequence[str] = (),
) -> Profile:
    """Profile a program.

    Args:
        driver: on which the executable runs it.
        symbols: what the symbols in types stand for with these arguments.
        call: runs the program once, without the profiler.
        repeat: how many calls count.
        notes: what else whoever reads the profile has to know.

    Raises:
        InputError: ``repeat`` is no positive number.
        ProfileError: there is no lineage; the device gives no times; what ran is not what the lineage lists.
    """
    if type(repeat) is not int or repeat < 1:
        raise InputError(f"repeat={repeat!r}: give the number of calls to be timed, at least 1")
    if not variant.lineage.commands:
        raise ProfileError("the program has no lineage\nCompile the model again with provenance")
    notes = list(notes)
    unprofiled = _unprofiled(call, repeat)
    calls = recorder.record(variant.program, function, driver, arguments, weights, repeat=repeat)
    machine = None
    if driver.startswith("local"):
        machine = host.host()
        if machine.speeds in ("read", "preset"):
            notes.append("the machine's peak and bandwidth cannot be measured: those of processors of its kind count")
    else:
        notes.append(f"the peak and bandwidth of the device of {driver} are not measured: no fractions of them")
    events = join(variant.lineage, calls)
    missing = sum(site.phase == "call" and site.kind == "transfer" for site in variant.lineage.sites)
    if missing:
        notes.append(
            f"the device gives no time for {missing} fill{'s' if missing > 1 else ''} or copies: they count as outside"
        )
    threads = 1 if driver == "local-sync" else None
    profile = profile_of(
        variant,
        driver,
        calls,
        events,
        symbols=symbols,
        unprofiled=unprofiled,
        ceilings=machine.ceilings(threads) if machine else None,
        notes=notes,
    )
    if machine is None or not _beyond(profile):
        return profile
    if machine.speeds == "measured":
        profile = replace(profile, machine=host.remeasured().ceilings(threads))
        why = "the machine's measured peak: the machine was busy when it was measured"
    else:
        why = "the peak that is assumed of the machine"
    if _beyond(profile):
        profile = replace(profile, notes=(*profile.notes, f"a site computes faster than {why}"))
    return profile


def _beyond(profile: Profile) -> bool:
    return any((roofline.peak or 0.0) > 1.0 for roofline in map(profile.roofline, profile.times) if roofline)


def profile_of(
    variant: Variant,
    driver: str,
    calls: Sequence[Call],
    events: Sequence[Sequence[Event]],
    *,
    symbols: Mapping[str, int],
    unprofiled: float | None,
    ceilings: Ceilings | None,
    notes: Sequence[str] = (),
) -> Profile:
    """A profile from joined events.

    Raises:
        ProfileError: calls differ in which sites run, or kernels ran longer than the calls took.
    """
    runs = [Counter(event.site for event in dispatches) for dispatches in events]
    if any(counts != runs[0] for counts in runs):
        raise ProfileError("calls with the same arguments ran different sites")
    spent = [divided(dispatches) for dispatches in events]
    totals = tuple(float(call.total) for call in calls)
    order = sorted(range(len(totals)), key=totals.__getitem__)
    profile = Profile(
        lineage=variant.lineage,
        program=checksum(variant.program),
        target=variant.target,
        driver=driver,
        totals=totals,
        times={site: tuple(durations[site] for durations in spent) for site in sorted(runs[0])},
        runs=dict(runs[0]),
        timeline=tuple(events[order[len(order) // 2]]),
        unprofiled=unprofiled,
        symbols=dict(symbols),
        machine=ceilings,
        notes=tuple(notes),
    )
    if profile.outside < 0:
        raise ProfileError(
            f"kernels ran {-profile.outside / 1e3:.1f} us longer than the calls took: the device's clock is wrong"
        )
    return profile


def divided(events: Sequence[Event]) -> dict[int, float]:
    """Nanoseconds by site; an instant in which several kernels run is divided evenly among them.

    So the sum is the time in which any kernel ran.
    """
    steps: Counter[int] = Counter()
    for event in events:
        steps[event.start] += 1
        steps[event.start + event.duration] -= 1
    # An event's share is the difference of the integral of 1 / (kernels running) between its end and its start.
    integral: dict[int, float] = {}
    running, before, value = 0, 0, 0.0
    for at in sorted(steps):
        if running:
            value += (at - before) / running
        integral[at] = value
        running, before = running + steps[at], at
    shares: dict[int, float] = {}
    for event in events:
        shares[event.site] = (
            shares.get(event.site, 0.0) + integral[event.start + event.duration] - integral[event.start]
        )
    return shares


def _unprofiled(call: Callable[[], Any], repeat: int) -> float:
    """Median nanoseconds of a call."""
    samples = []
    for _ in range(recorder.WARM_UP + repeat):
        start = time.perf_counter_ns()
        call()
        samples.append(time.perf_counter_ns() - start)
    return float(statistics.median(samples[recorder.WARM_UP :]))
