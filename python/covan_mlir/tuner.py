"""`tune`: kernels that are measured, and not only predicted, to be the best."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compile import compile_module
from covan_mlir.errors import InputError
from covan_mlir.frontend.capture import Model
from covan_mlir.support.interrupts import orderly
from covan_mlir.tuning.report import Tuning

Example = tuple[Model, tuple[Any, ...]] | tuple[Model, tuple[Any, ...], Mapping[str, Any]]
"""A model and its arguments, by place, and by name if there are any."""


@orderly()
def tune(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    minutes: float = 10.0,
    records: str | os.PathLike[str] | None = None,
    scheduler: str | None = None,
    options: CompileOptions | None = None,
    progress: Callable[[str], None] | None = None,
) -> Tuning:
    """Measure schedules of a model's kernels on this machine; later compilations take those that make it faster.

    Nothing is lost when it is stopped: what was measured is kept, and not measured again. The machine should have
    nothing else to do meanwhile.

    Args:
        model, args, kwargs: as for `compile_module`; an exported program may be called with what it was exported for.
        minutes: that it takes, about; the compilation of the model comes first.
        records: the file that keeps what is measured; by default the user's own, which compilations look into.
        scheduler: address of a scheduler of Dask's: its workers that are machines like this one (``covan worker``)
            measure kernels; None: they are measured here.
        options: as for `compile_module`; ``records`` of them is not looked at.
        progress: is told what is being done.

    Raises:
        ExportError, CompileError, InputError, TargetError: as `compile_module`; or the time is no positive number.
        RecordsError: the file of records cannot be used.
    """
    (tuning,) = tune_models(
        [(model, args, kwargs or {})],
        minutes=minutes,
        records=records,
        scheduler=scheduler,
        options=options,
        progress=progress,
    )
    return tuning


@orderly()
def tune_models(
    models: Sequence[Example],
    *,
    minutes: float = 10.0,
    limits: Sequence[float] = (),
    records: str | os.PathLike[str] | None = None,
    scheduler: str | None = None,
    options: CompileOptions | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Tuning, ...]:
    """Tune several models as one: kernels that some of them share are measured once, and time goes to what takes most
    off the sum of their calls' latencies (Zheng et al. 2020, section 6: f1).

    Args:
        models: each with its arguments, and its named arguments if it has any.
        minutes: that it takes in all, about; compilations come first.
        limits: by model, seconds of a call that are good enough: a model below gets no more time (f2); 0: none are.
        records, scheduler, options, progress: as for `tune`.

    Returns: what became of each.

    Raises:
        ExportError, CompileError, InputError, TargetError, RecordsError: as `tune`; or there are no models, or not as
            many limits, if there are any.
    """
    from covan_mlir.tuning.tune import Program, records_path, tune_programs

    if not minutes > 0:
        raise InputError(f"minutes={minutes!r}: give a positive number of minutes")
    if not models:
        raise InputError("there is no model to tune\ngive some")
    if limits and (len(limits) != len(models) or not all(limit >= 0 for limit in limits)):
        raise InputError(f"limits={limits!r}: give one number of seconds for each model, or 0")
    path = records_path(records)  # before anything slow begins
    chosen = replace(options or CompileOptions(), records=None)
    programs = []
    for (model, args, *rest), limit in zip(models, limits or [0.0] * len(models), strict=True):
        kwargs = dict(rest[0]) if rest else {}
        executable = compile_module(model, args, kwargs, options=chosen, progress=progress)
        assert executable.origin is not None
        arguments = (args, kwargs)
        if not args and not kwargs and (known := executable.origin.captured.program.example_inputs) is not None:
            arguments = known
        programs.append(Program(executable, executable.origin, arguments, limit))
    tell = progress or (lambda step: None)
    return tuple(tune_programs(programs, minutes=minutes, records=path, scheduler=scheduler, tell=tell))


def sketches(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: CompileOptions | None = None,
    progress: Callable[[str], None] | None = None,
) -> str:
    """The sketches of a model's kernels on this machine's CPU, each as a loop nest; nothing is measured.

    Args:
        model, args, kwargs, options, progress: as for `tune`.

    Raises:
        ExportError, CompileError, InputError: as `compile_module`.
        TargetError: the program is for another machine.
    """
    from covan_mlir.tuning.sketches.listing import listing
    from covan_mlir.tuning.tune import tuned_target

    chosen = replace(options or CompileOptions(), records=None)
    executable = compile_module(model, args, kwargs, options=chosen, progress=progress)
    assert executable.origin is not None
    return listing(executable.lineage, tuned_target(executable, executable.origin))
