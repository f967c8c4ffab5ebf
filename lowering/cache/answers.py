"""Answers of the worker by the question that it was asked."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from covan_mlir.lowering.cache import question
from covan_mlir.lowering.cache.store import KERNELS_LIMIT, Store
from covan_mlir.lowering.request import Job
from covan_mlir.lowering.result import JobResult
from covan_mlir.support import user_cache

log = logging.getLogger(__name__)

VARIABLE = "COVAN_CACHE"
KERNELS_VARIABLE = "COVAN_KERNEL_CACHE"
OFF = "off"

_results: msgspec.json.Decoder[JobResult] = msgspec.json.Decoder(JobResult)


@dataclass(frozen=True)
class Place:
    """Where the answer to one question is kept.

    Attributes:
        name: of the question.
        surroundings: that it was asked in; see `covan_mlir.lowering.cache.question`.
    """

    store: Store
    name: str
    surroundings: str

    def read(self) -> tuple[JobResult, bytes] | None:
        """The answer, if it is known: its ``seconds`` are those that it took to read."""
        start = time.perf_counter()
        answer = self.store.read(self.name)
        if answer is None:
            return None
        encoded, program = answer
        result = _results.decode(encoded)
        log.info("the program was compiled before: it comes from %s", self.store.folder)
        return replace(result, seconds={"cache": time.perf_counter() - start}), program

    def keep(self, result: JobResult, program: bytes, surroundings: str) -> None:
        """Keep the answer of a worker that was started in some surroundings.

        Somebody may edit covan's sources while it compiles: what the worker has then imported nobody knows.
        """
        if surroundings == self.surroundings == question.surroundings():
            self.store.write(self.name, msgspec.json.encode(result), program)
        else:
            log.info("not kept: what compiles has changed since the compiler was started")


def store() -> Store | None:
    """Where programs are kept: ``$COVAN_CACHE/programs``, by default in the user's cache folder; None: nowhere."""
    folder = _folder("programs")
    return None if folder is None else Store(folder)


def kernels() -> Store | None:
    """Where machine code of kernels is kept: ``$COVAN_KERNEL_CACHE``, by default beside programs; None: nowhere."""
    chosen = os.environ.get(KERNELS_VARIABLE)
    folder = _folder("kernels") if not chosen else None if chosen == OFF else Path(chosen).absolute()
    return None if folder is None else Store(folder, KERNELS_LIMIT)


def _folder(name: str) -> Path | None:
    chosen = os.environ.get(VARIABLE)
    if chosen == OFF:
        return None
    try:
        return (Path(chosen) if chosen else user_cache.folder()).absolute() / name
    except RuntimeError as error:
        log.info("compiled %s are not kept: %s", name, error)
        return None


def place(bytecode: bytes, job: Job) -> Place | None:
    """Where the answer to a job is kept; None: it is not."""
    where = store()
    if where is None:
        return None
    if why := question.why_not_kept(job):
        log.info("not kept: %s", why)
        return None
    surroundings = question.surroundings()
    return Place(where, question.name_of(bytecode, job, surroundings), surroundings)
