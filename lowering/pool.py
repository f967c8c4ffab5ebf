"""The caller's side of the worker: compile in another process, survive whatever happens there.

One idle worker is kept for the next compilation, and one for the next that is traced pass by pass. A worker that
crashed, hung or was interrupted is thrown away; a worker that reported an error is not.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from covan_mlir.lowering import messages
from covan_mlir.lowering.cache import answers, question
from covan_mlir.lowering.request import TO_LINALG, Job
from covan_mlir.lowering.result import JobResult, StepFailure
from covan_mlir.support.processes import frames
from covan_mlir.support.processes.child import LOG_TAIL, Child, ending, lacking, out_of_memory

log = logging.getLogger(__name__)

# IREE's Python interface never frees the context of a session, some megabytes a compilation.
JOBS_PER_WORKER = 50


@dataclass
class WorkerError(Exception):
    """A compilation that gave no program.

    Attributes:
        failure: of the step that was running.
        crashed: the process is gone, rather than having answered.
    """

    failure: StepFailure
    crashed: bool = False


class _Worker(Child):
    """One process that compiles."""

    def __init__(self, trace: str) -> None:
        self.trace = trace
        # What compilers keep in files goes with the worker, however it ends: removed by `stop`, or by the worker's own
        # watch if this process is gone; not by a finaliser, which forks would inherit.
        self.folder = tempfile.mkdtemp(prefix="covan-compiler-")
        self.surroundings = question.surroundings()
        self.jobs = 0
        try:
            super().__init__("covan_mlir.lowering.worker", [self.folder, trace])
        except BaseException:
            self._remove_folder()
            raise

    def stop(self) -> None:
        super().stop()
        self._remove_folder()

    def said(self) -> str:
        """The end of what the compiler printed."""
        if self.trace != "passes":
            return self.tail()
        # complaints about folders that `pass_prints` keeps the compiler from making
        return "\n".join(line for line in self.tail(0).splitlines() if self.folder not in line)[-LOG_TAIL:]

    def _remove_folder(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


_lock = threading.Lock()
_idle: list[_Worker] = []


def prepare(trace: str = "phases") -> None:
    """Start a worker in the background if none is idle: its imports overlap with the export of the model."""
    with _lock:
        _forget_inherited()
        if not _idle_for(trace):
            try:
                _idle.append(_Worker(trace))
            except OSError as error:  # it may be there when the worker is needed
                log.warning("the compiler cannot be started yet: %s", lacking(error))


def _take(trace: str) -> _Worker:
    with _lock:
        _forget_inherited()
        for worker in _idle_for(trace):
            _idle.remove(worker)
            if worker.process.poll() is None:
                return worker
            worker.stop()
    return _Worker(trace)


def _idle_for(trace: str) -> list[_Worker]:
    return [worker for worker in _idle if worker.trace == trace]


def _give(worker: _Worker, job: Job) -> None:
    worker.jobs += 1
    with _lock:
        # What a file of the user's has registered there would be registered for all that comes after.
        if not job.extensions and not _idle_for(worker.trace) and worker.jobs < JOBS_PER_WORKER:
            _idle.append(worker)
            return
    worker.stop()


def _forget_inherited() -> None:
    # After a fork the pipes are shared with the parent, whose worker it is.
    _idle[:] = [worker for worker in _idle if worker.owner == os.getpid()]


@atexit.register
def shutdown() -> None:
    """Stop the idle workers."""
    with _lock:
        while _idle:
            worker = _idle.pop()
            if worker.owner == os.getpid():
                worker.stop()


def compile_program(
    bytecode: bytes,
    job: Job,
    *,
    timeout: float | None = None,
    progress: Callable[[str], None] | None = None,
    cache: bool = True,
) -> tuple[JobResult, bytes]:
    """Compile in a worker: see `covan_mlir.lowering.job.compile_job`.

    With ``cache``, an answer that is known from an earlier compilation is taken from disk, and a new one is kept there.
    Failures are not kept, nor is what came after a crash: it may have been the machine's fault.

    A crash while torch-mlir lowers the program to linalg counts as "cannot lower": with ``frontend="auto"`` the
    program then takes IREE's torch input in a fresh worker, as after an error.

    Raises:
        WorkerError: it failed, crashed, ran out of memory or of time.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    place = answers.place(bytecode, job) if cache else None
    if cache and (kernels := answers.kernels()) is not None:
        job = replace(job, machine_code=str(kernels.folder))
    if place is not None and (known := place.read()) is not None:
        return known
    try:
        return _once(bytecode, job, deadline, progress, place)
    except WorkerError as error:
        failure = error.failure
        if not (job.frontend == "auto" and error.crashed and failure.phase in TO_LINALG):
            raise
        log.warning("torch-mlir crashed in %s (%s)", failure.phase, failure.message)
        result, program = _once(bytecode, replace(job, frontend="torch"), deadline, progress)
        return replace(result, why_torch=failure), program


def _once(
    bytecode: bytes,
    job: Job,
    deadline: float | None,
    progress: Callable[[str], None] | None,
    place: answers.Place | None = None,
) -> tuple[JobResult, bytes]:
    try:
        worker = _take(job.trace)
    except OSError as error:
        raise WorkerError(StepFailure("start", f"the compiler cannot be started: {lacking(error)}")) from error
    worker.pipe.deadline = deadline
    step = "start"
    try:
        frames.send(worker.pipe, job, [bytecode])
        while True:
            answer, blobs = frames.receive(worker.pipe, messages.ANSWERS)
            match answer:
                case messages.Entered(step):
                    if progress:
                        progress(step)
                case messages.Done(result):
                    _give(worker, job)
                    if place is not None:
                        place.keep(result, blobs[0], worker.surroundings)
                    return result, blobs[0]
                case messages.Failed(failure):
                    _give(worker, job)
                    raise WorkerError(failure)
    except TimeoutError:
        worker.process.kill()
        raise _lost(worker, step, job, "took longer than the time allowed and was stopped") from None
    except (EOFError, OSError):
        raise _lost(worker, step, job) from None
    except WorkerError:
        raise
    except BaseException:  # Ctrl-C above all
        worker.stop()
        raise


def _lost(worker: _Worker, step: str, job: Job, why: str = "") -> WorkerError:
    code = worker.process.wait()
    said = worker.said()
    worker.stop()
    kept = job.reproducer if job.reproducer and os.path.exists(job.reproducer) else None
    if not why and out_of_memory(said):
        why = f"ran out of memory ({ending(code)})"
    who = "the compiler" if why or code < 0 else "the compiler's process"
    failure = StepFailure(step, f"{who} {why or ending(code)}", reproducer=kept, log=said)
    return WorkerError(failure, crashed=True)
