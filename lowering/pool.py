"""The caller's side of the worker: compile in another process, survive whatever happens there.

One idle worker is kept for the next compilation, and one for the next that is traced pass by pass. A worker that
crashed, hung or was interrupted is thrown away; a worker that reported an error is not.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO

from covan_mlir.lowering import messages
from covan_mlir.lowering.cache import answers, question
from covan_mlir.lowering.request import TO_LINALG, Job
from covan_mlir.lowering.result import JobResult, StepFailure

log = logging.getLogger(__name__)

_LOG_TAIL = 4000
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


class _Worker:
    """One process and the file that collects what it prints."""

    def __init__(self, trace: str) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the worker
        self.trace = trace
        # Removed by `stop`, or by the worker when this process is gone; not by a finaliser, which forks would inherit.
        self.prints = tempfile.mkdtemp(prefix="covan-passes-") if trace == "passes" else None
        self.surroundings = question.surroundings()
        folder = [self.prints] if self.prints else []
        # Its own session: Ctrl-C reaches the caller, which then stops the worker in order.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "covan_mlir.lowering.worker", str(os.getpid()), *folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
        )
        self.owner = os.getpid()
        self.jobs = 0

    def stop(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.process.wait()
        self.log.close()
        if self.prints:
            shutil.rmtree(self.prints, ignore_errors=True)

    def tail(self) -> str:
        self.log.seek(0, os.SEEK_END)
        self.log.seek(0 if self.prints else max(0, self.log.tell() - _LOG_TAIL))
        text = self.log.read().decode(errors="replace")
        if self.prints:  # complaints about folders that `pass_prints` keeps the compiler from making
            text = "\n".join(line for line in text.splitlines() if self.prints not in line)
        return text.strip()[-_LOG_TAIL:]


_lock = threading.Lock()
_idle: list[_Worker] = []


def prepare(trace: str = "phases") -> None:
    """Start a worker in the background if none is idle: its imports overlap with the export of the model."""
    with _lock:
        _forget_inherited()
        if not _idle_for(trace):
            _idle.append(_Worker(trace))


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
    worker = _take(job.trace)
    expired = threading.Event()
    timer = None
    if deadline is not None:

        def expire() -> None:
            expired.set()
            worker.process.kill()

        timer = threading.Timer(max(0.0, deadline - time.monotonic()), expire)
        timer.daemon = True
        timer.start()
    step = "start"
    try:
        assert worker.process.stdin is not None
        assert worker.process.stdout is not None
        messages.send(worker.process.stdin, job, [bytecode])
        while True:
            answer, blobs = messages.receive(worker.process.stdout, messages.ANSWERS)
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
    except (EOFError, OSError):
        raise _lost(worker, step, job, expired.is_set()) from None
    except WorkerError:
        raise
    except BaseException:  # Ctrl-C above all
        worker.stop()
        raise
    finally:
        if timer is not None:
            timer.cancel()


def _lost(worker: _Worker, step: str, job: Job, timed_out: bool) -> WorkerError:
    code = worker.process.wait()
    tail = worker.tail()
    worker.stop()
    kept = job.reproducer if job.reproducer and os.path.exists(job.reproducer) else None
    if timed_out:
        message = "the compiler took longer than the time allowed and was stopped"
    elif code == -signal.SIGKILL:
        message = "the compiler was killed by the system, most likely because memory ran out"
    elif code < 0:
        message = f"the compiler crashed with {signal.Signals(-code).name}"
    else:
        message = f"the compiler's process ended with exit code {code}"
    return WorkerError(StepFailure(step, message, reproducer=kept, log=tail), crashed=True)
