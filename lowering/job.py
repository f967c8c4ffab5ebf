"""One compilation, as the worker runs it: bytecode of the torch dialect in, program and sites out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from covan_mlir.lowering import stages
from covan_mlir.lowering.frozen_graph import FrozenGraph
from covan_mlir.lowering.history import HistoryObserver
from covan_mlir.lowering.pass_history import PassHistory
from covan_mlir.lowering.pass_prints import PassPrints
from covan_mlir.lowering.phase_graph import PhaseObserver
from covan_mlir.lowering.pipeline import Observer, PipelineState, StepError, instrument, run
from covan_mlir.lowering.request import FUSING, SUPEROPTIMISE, TO_LINALG, Job
from covan_mlir.lowering.result import CompilerDiagnostic, JobResult, StepFailure
from covan_mlir.lowering.sequence import Setting, pipeline
from covan_mlir.lowering.shared_constants import appended
from covan_mlir.lowering.sites import SiteObserver
from covan_mlir.lowering.targets.resolve import executable_target
from covan_mlir.machine import host
from covan_mlir.passes.framework import extensions, progress
from covan_mlir.provenance.observed import Observed
from covan_mlir.provenance.substitution import SubstitutedGraph


class JobError(Exception):
    """A step failed for good."""

    def __init__(self, failure: StepFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def compile_job(
    bytecode: bytes, job: Job, told: Callable[[str], None], prints: PassPrints | None = None
) -> tuple[JobResult, bytes]:
    """-> (what was found out, the program).

    Args:
        told: is given each step's name before it runs.
        prints: for ``trace="passes"``.

    Raises:
        JobError: a step failed.
    """
    _load(job)
    try:
        return _compiled(bytecode, job, told, prints)
    except JobError as error:
        if error.failure.own_pass != SUPEROPTIMISE:
            raise
        result, program = _compiled(bytecode, replace(job, superoptimise=0), told, prints)
        return replace(result, why_unsubstituted=error.failure), program


def _compiled(
    bytecode: bytes, job: Job, told: Callable[[str], None], prints: PassPrints | None
) -> tuple[JobResult, bytes]:
    """The program by torch-mlir's lowering, or by IREE's torch input where that cannot lower it."""
    refusal: StepFailure | None = None
    if job.frontend in ("auto", "linalg"):
        try:
            return _through_linalg(bytecode, job, told, prints)
        except JobError as error:
            if job.frontend == "linalg" or error.failure.phase not in TO_LINALG:
                raise
            refusal = error.failure
    try:
        result, program = _attempt("torch", bytecode, job, told, prints)
    except JobError as error:
        if refusal is None:
            raise
        # The first refusal names the operation; the second one usually repeats it in other words.
        diagnostics = refusal.diagnostics + error.failure.diagnostics
        raise JobError(replace(error.failure, diagnostics=diagnostics)) from error
    return replace(result, why_torch=refusal), program


def _through_linalg(
    bytecode: bytes, job: Job, told: Callable[[str], None], prints: PassPrints | None
) -> tuple[JobResult, bytes]:
    """The program by torch-mlir's lowering: without kernels of our own where a pass of ours fails.

    A user's own steps may be what fails it, and who asks for every kernel wants to know: these are told.
    """
    try:
        return _attempt("linalg", bytecode, job, told, prints)
    except JobError as error:
        if not _only_fusing(error.failure) or not job.fuse or job.fuse == "always" or job.extra:
            raise
        result, program = _attempt("linalg", bytecode, replace(job, fuse=False), told, prints)
        return replace(result, why_unfused=error.failure), program


def _only_fusing(failure: StepFailure) -> bool:
    """Whether what failed is there for chains of reductions alone."""
    return failure.phase in FUSING or failure.own_pass in (*stages.FOR_CHAINS, stages.INTEGERS)


def _load(job: Job) -> None:
    for path in job.extensions:
        try:
            extensions.load(path)
        except extensions.ExtensionError as error:
            raise JobError(StepFailure("extensions", str(error))) from error


def _attempt(
    frontend: Literal["linalg", "torch"],
    bytecode: bytes,
    job: Job,
    told: Callable[[str], None],
    prints: PassPrints | None,
) -> tuple[JobResult, bytes]:
    from torch_mlir import ir as torch_ir

    from covan_mlir import dialects

    told("target")
    if job.machine is not None:
        host.assume(job.machine)
    stages.prepare_target(job)  # LLVM ends the process on a CPU that it does not know: here, where it is expected to
    context = torch_ir.Context()
    dialects.load(context)
    with context:
        module = torch_ir.Module.parse(bytecode)
    state = PipelineState(module)
    stages.set_facts(module, job)
    if job.superoptimise:
        told("superoptimise")
    try:
        with progress.telling(lambda text: told(f"superoptimise: {text}")):
            stages.run(stages.prepared(job), state)
    except StepError as error:
        failure = StepFailure("superoptimise", str(error), error.diagnostics, own_pass=error.own_pass)
        raise JobError(failure) from error
    substituted = stages.substituted(module)
    border = stages.Border(job)
    observers = _Observers(job, prints, border) if job.provenance else None
    try:
        steps = pipeline(Setting(job, frontend, border))
    except StepError as error:
        raise JobError(StepFailure("extra", str(error), error.diagnostics)) from error
    keep = _Keeper(job.reproducer, state, border)
    step_name = ""

    def before(name: str, state: PipelineState) -> None:
        nonlocal step_name
        step_name = name
        told(name)
        keep(name)
        if observers is not None:
            observers.before(name, state)

    try:
        run(instrument(steps, observers.all if observers is not None else ()), state, before)
    except StepError as error:
        said = _of_actions(error.diagnostics, substituted)
        failure = StepFailure(step_name, str(error), said, job.reproducer, own_pass=error.own_pass)
        raise JobError(failure) from error
    finally:
        border.close()
    keep.forget()
    program, constants = appended(state)
    result = JobResult(
        frontend=frontend,
        seconds=state.seconds,
        observed=observers.observed if observers is not None else None,
        unseen=observers.unseen if observers is not None else {},
        requires=executable_target(job.flags).requires() if job.kind == "cpu" else {},
        shared=border.shared,
        broken=observers.broken if observers is not None else "",
        fusions=tuple(border.decisions),
        substituted=substituted,
        left_over=tuple(border.left_over),
        constants=constants,
    )
    return result, program


def _of_actions(
    diagnostics: tuple[CompilerDiagnostic, ...], substituted: SubstitutedGraph | None
) -> tuple[CompilerDiagnostic, ...]:
    """Diagnostics that name actions: the caller does not know the parts of a program that rules made."""
    owners = {part.id: part.actions for part in substituted.parts} if substituted is not None else {}

    def named(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({action for id_ in ids for action in owners.get(id_, (id_,))}))

    return tuple(replace(said, ids=named(said.ids)) for said in diagnostics) if owners else tuple(diagnostics)


class _Observers:
    """Those of a program with a ledger."""

    def __init__(self, job: Job, prints: PassPrints | None, border: stages.Border) -> None:
        self._sites = SiteObserver(kernels=border.kernels)
        read = self._sites.read
        self._phases = PhaseObserver(read)
        self._passes: PassHistory | None = None
        if job.trace == "passes":
            assert prints is not None, "this worker was not started for single passes"
            self._passes = PassHistory(read, prints=prints)
        self._history = self._passes or HistoryObserver(read)
        self._frozen = FrozenGraph(self._sites)
        self.all: tuple[Observer, ...] = (self._sites, self._history, self._phases, self._frozen)

    def before(self, step: str, state: PipelineState) -> None:
        if self._passes is not None:
            self._passes.before(step, state)

    @property
    def observed(self) -> Observed:
        return Observed(
            graph=self._sites.graph,
            bodies=self._sites.bodies,
            commands=self._sites.commands,
            buffers=self._sites.buffers,
            history=tuple(self._history.steps),
            phases=tuple(self._phases.phases),
        )

    @property
    def broken(self) -> str:
        return self._frozen.broken

    @property
    def unseen(self) -> dict[str, int]:
        return self._passes.unseen if self._passes is not None else {}


class _Keeper:
    """Writes the IR before each step, so that it is there when the step takes the process down."""

    def __init__(self, path: str | None, state: PipelineState, border: stages.Border) -> None:
        self._path = path
        self._state = state
        self._border = border

    def __call__(self, step: str) -> None:
        if self._path is None:
            return
        temporary = f"{self._path}.{os.getpid()}"
        with self._border.whole(self._state):
            text = self._state.module.operation.get_asm(enable_debug_info=True)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(f"// input of step {step}\n{text}")
        os.replace(temporary, self._path)

    def forget(self) -> None:
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path)
