"""What decides on the worker's answer, as one name: equal names have equal answers."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from covan_mlir.lowering.request import Job
from covan_mlir.machine.reading import model
from covan_mlir.runtime.requirements import cpu_features
from covan_mlir.support import source_digest

_PACKAGES = ("covan_mlir", "covan_mlir.dialects", "covan_mlir.lowering", "covan_mlir.passes", "covan_mlir.runtime")
"""All that the worker may import of covan. An editable install has them in folders of their own."""
_DISTRIBUTIONS = (
    "iree-base-compiler",
    "iree-base-runtime",
    "ml_dtypes",
    "msgspec",
    "numpy",
    "sympy",
    "torch",
    "torch-mlir",
    "triton",
    "z3-solver",
)
_VARIABLES = re.compile(r"(DISABLE|IREE|LLVM|MLIR|NVPTX|TRITON)_.*|USE_IR_LOC")
"""Of the environment, what the compilers look at. What ``COVAN_MACHINE`` says is part of the job."""
_SIDE_EFFECT = re.compile(r"print|dump|timing|statistics|debug|reproducer|view-")
"""In the name of a flag that asks IREE for more than a program."""


class _Question(msgspec.Struct, frozen=True):
    job: Job
    extensions: tuple[str, ...]
    surroundings: str


def why_not_kept(job: Job) -> str | None:
    """Why a job's answer says too little of what running it does; None: it says it all."""
    if job.extra:
        return "extra steps may do anything, and depend on anything"
    for flag in job.flags:
        name, _, value = flag.partition("=")
        if _SIDE_EFFECT.search(name) or "/" in value or os.path.exists(value):
            return f"{flag} reads, writes or prints something"
    return None


def name_of(bytecode: bytes, job: Job, surroundings: str) -> str:
    """SHA-256 of a job on a module, as hexadecimal digits.

    Weights that are read from outside of the program are in neither, only their names and types: so they are in its
    answer.
    """
    files = tuple(source_digest.of_file(Path(path)) for path in job.extensions)
    # The reproducer is written for a job that fails, and no failure is kept. Machine code is the same if it was kept.
    question = _Question(replace(job, reproducer=None, machine_code=""), files, surroundings)
    digest = hashlib.sha256(msgspec.json.encode(question, order="sorted"))
    digest.update(b"\0")  # JSON has none
    digest.update(bytecode)
    return digest.hexdigest()


def surroundings() -> str:
    """SHA-256 of all that compiles: covan's sources as they are now, versions, the processor, the environment.

    The processor counts for every target: IREE evaluates constants on it.
    """
    facts = [source_digest.of_packages(_PACKAGES), compilers()]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


def compilers() -> str:
    """SHA-256 of all that compiles but covan: versions, the processor, the environment."""
    facts = [
        _versions(),
        [platform.machine(), model(), sorted(cpu_features() or ())],
        sorted((name, value) for name, value in os.environ.items() if _VARIABLES.fullmatch(name)),
    ]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


@functools.cache
def _versions() -> list[tuple[str, str]]:
    installed = [("python", sys.version)]
    for name in _DISTRIBUTIONS:
        try:
            installed.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            installed.append((name, ""))
    return installed
