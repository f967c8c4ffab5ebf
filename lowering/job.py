"""One compilation, as the worker runs it: bytecode of the torch dialect in, program and sites out."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering import extra_steps, inlined, iree_phases, parameters, source_lines, torch_to_linalg
from covan_mlir.lowering.history import HistoryObserver
from covan_mlir.lowering.kernels import targets
from covan_mlir.lowering.kernels.cpu import team
from covan_mlir.lowering.kernels.fused import Fusion
from covan_mlir.lowering.kernels.reductions import demote
from covan_mlir.lowering.pass_history import PassHistory
from covan_mlir.lowering.pass_prints import PassPrints
from covan_mlir.lowering.phase_graph import PhaseObserver
from covan_mlir.lowering.pipeline import State, Step, StepError, instrument, run
from covan_mlir.lowering.request import Job
from covan_mlir.lowering.sites import SiteObserver
from covan_mlir.lowering.targets.resolve import executable_target
from covan_mlir.passes import extensions

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
            if job.frontend == "linalg" or error.row["phase"] not in {step.name for step in torch_to_linalg.STEPS}:
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
    from covan_mlir.dialects import prov

    told("target")
    kernel_target = targets.of(job)
    context = torch_ir.Context()
    dialects.load(context)
    with context:
        module = torch_ir.Module.parse(bytecode)
    table = prov.detach_table(module) if job.provenance else None
    observer = SiteObserver() if table is not None else None
    history = _history(job, observer.read, prints) if observer is not None else None
    phases = PhaseObserver(observer.read) if observer is not None else None
    steps: list[Step] = list(torch_to_linalg.STEPS) if frontend == "linalg" else []
    attach = inlined.steps(job.functions) if job.attached else ()
    if attach:
        steps.insert(0, attach[0])
    fusion = None
    if job.fuse and frontend == "linalg" and kernel_target is not None:
        actions = source_lines.actions(table) if table is not None and targets.names_lines(job) else {}
        always, narrow = job.fuse == "always", demote.FLAG in job.flags
        fusion = Fusion(kernel_target, always, len(job.weights), job.sizes, actions, narrow=narrow)
    if fusion is not None:
        steps += fusion.steps()
    steps.append(iree_phases.enter(job.flags, job.devices))
    if attach:
        steps.append(attach[1])
    if job.weights and frontend == "linalg":
        steps.append(parameters.externalize(job.weights))
    if fusion is not None:
        steps.append(fusion.embedding())
    steps += iree_phases.STEPS
    if fusion is not None and job.kind == "cpu":
        steps.insert(1 + [step.name for step in steps].index(team.AFTER), team.STEP)
    if job.extra:
        try:
            steps = extra_steps.insert(steps, job.extra)
        except StepError as error:
            row = {"message": str(error), "diagnostics": error.diagnostics, "reproducer": None}
            raise JobError({"phase": "extra", **row}) from error
    state = State(module)
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
        "shared": fusion.shared if fusion else {},
        "fusion": [decision.to_json() for decision in fusion.decisions] if fusion else [],
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
