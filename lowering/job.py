"""One compilation, as the worker runs it: bytecode of the torch dialect in, program and sites out."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering import extra_steps, plan, stages
from covan_mlir.lowering.history import HistoryObserver
from covan_mlir.lowering.pass_history import PassHistory
from covan_mlir.lowering.pass_prints import PassPrints
from covan_mlir.lowering.phase_graph import PhaseObserver
from covan_mlir.lowering.pipeline import State, StepError, instrument, run
from covan_mlir.lowering.request import Job
from covan_mlir.lowering.sites import SiteObserver
from covan_mlir.lowering.targets.resolve import executable_target
from covan_mlir.passes.framework import extensions

log = logging.getLogger(__name__)


class JobError(Exception):
    """A step failed for good; ``row`` is what the caller's side needs to raise `CompileError`."""

    def __init__(self, row: dict[str, Any]) -> None:
        super().__init__(row["message"])
        self.row = row


def compile_job(
    bytecode: bytes, job: Job, told: Callable[[str], None], prints: PassPrints | None = None
) -> tuple[dict[str, Any], bytes]:
    """-> (what was found out, the program).

    Args:
        told: is given each step's name before it runs.
        prints: for ``trace="passes"``.

    Raises:
        JobError: a step failed.
    """
    _load(job)
    reason: dict[str, Any] | None = None
    if job.frontend in ("auto", "linalg"):
        try:
            return _attempt("linalg", bytecode, job, told, prints)
        except JobError as error:
            if job.frontend == "linalg" or error.row["phase"] not in {stage.name for stage in stages.TORCH}:
                raise
            reason = error.row
    try:
        result, program = _attempt("torch", bytecode, job, told, prints)
    except JobError as error:
        if reason:  # the first refusal names the operation; the second one usually repeats it in other words
            error.row["diagnostics"] = reason["diagnostics"] + error.row["diagnostics"]
        raise
    result["why_torch"] = reason
    return result, program


def _load(job: Job) -> None:
    for path in job.extensions:
        try:
            extensions.load(path)
        except extensions.ExtensionError as error:
            row: dict[str, Any] = {"message": str(error), "diagnostics": [], "reproducer": None}
            raise JobError({"phase": "extensions", **row}) from error


def _attempt(
    frontend: str, bytecode: bytes, job: Job, told: Callable[[str], None], prints: PassPrints | None
) -> tuple[dict[str, Any], bytes]:
    from torch_mlir import ir as torch_ir

    from covan_mlir import dialects

    told("target")
    stages.prepare_target(job)  # LLVM ends the process on a CPU that it does not know: here, where it is expected to
    context = torch_ir.Context()
    dialects.load(context)
    with context:
        module = torch_ir.Module.parse(bytecode)
    state = State(module)
    stages.run(stages.prepared(job), state)
    stages.set_device(module, job)
    observer = SiteObserver() if job.provenance else None
    history = _history(job, observer.read, prints) if observer is not None else None
    phases = PhaseObserver(observer.read) if observer is not None else None
    border = stages.Border(job)
    steps = plan.steps(job, frontend, border)
    if job.extra:
        try:
            steps = extra_steps.insert(steps, job.extra)
        except StepError as error:
            row = {"message": str(error), "diagnostics": error.diagnostics, "reproducer": None}
            raise JobError({"phase": "extra", **row}) from error
    keep = _Keeper(job.reproducer, state)
    step_name = ""

    def before(name: str, state: State) -> None:
        nonlocal step_name
        step_name = name
        told(name)
        keep(name)
        if isinstance(history, PassHistory):
            history.before(name, state)

    try:
        run(instrument(steps, [o for o in (observer, history, phases) if o is not None]), state, before)
    except StepError as error:
        raise JobError(
            {
                "phase": step_name,
                "message": str(error),
                "diagnostics": error.diagnostics,
                "reproducer": job.reproducer,
            }
        ) from error
    keep.forget()
    result = {
        "frontend": frontend,
        "seconds": state.seconds,
        "sites": [asdict(site) for site in observer.sites] if observer else [],
        "commands": observer.commands if observer else [],
        "graph": observer.graph if observer else {},
        "history": history.steps if history else [],
        "unseen": history.unseen if isinstance(history, PassHistory) else {},
        "phases": phases.phases if phases else [],
        "requires": executable_target(job.flags).requires() if job.kind == "cpu" else {},
        "shared": border.shared,
        "fusion": border.decisions,
    }
    return result, state.output


def _history(job: Job, read: TraceReader, prints: PassPrints | None) -> HistoryObserver:
    if job.trace != "passes":
        return HistoryObserver(read)
    assert prints is not None, "this worker was not started for single passes"
    return PassHistory(read, prints=prints)


class _Keeper:
    """Writes the IR before each step, so that it is there when the step takes the process down."""

    def __init__(self, path: str | None, state: State) -> None:
        self._path = path
        self._state = state

    def __call__(self, step: str) -> None:
        if self._path is None:
            return
        temporary = f"{self._path}.{os.getpid()}"
        text = self._state.module.operation.get_asm(enable_debug_info=True)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(f"// input of step {step}\n{text}")
        os.replace(temporary, self._path)

    def forget(self) -> None:
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path)
