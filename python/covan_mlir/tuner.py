"""`tune`: kernels that are measured, and not only predicted, to be the best."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compile import compile_module
from covan_mlir.errors import InputError
from covan_mlir.frontend.capture import Model
from covan_mlir.support.interrupts import orderly
from covan_mlir.tuning.report import Tuning


@orderly()
def tune(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    minutes: float = 10.0,
    records: str | os.PathLike[str] | None = None,
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
        options: as for `compile_module`; ``records`` of them is not looked at.
        progress: is told what is being done.

    Raises:
        ExportError, CompileError, InputError, TargetError: as `compile_module`; or the time is no positive number.
        RecordsError: the file of records cannot be used.
    """
    from covan_mlir.tuning.tune import records_path, tune_program

    if not minutes > 0:
        raise InputError(f"minutes={minutes!r}: give a positive number of minutes")
    path = records_path(records)  # before anything slow begins
    chosen = replace(options or CompileOptions(), records=None)
    executable = compile_module(model, args, kwargs, options=chosen, progress=progress)
    assert executable.origin is not None
    arguments = (args, dict(kwargs or {}))
    if not args and not kwargs and (known := executable.origin.captured.program.example_inputs) is not None:
        arguments = known
    return tune_program(
        executable,
        executable.origin,
        arguments,
        minutes=minutes,
        records=path,
        tell=progress or (lambda step: None),
    )


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
