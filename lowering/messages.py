"""Messages between the caller and the worker; frames are `covan_mlir.support.processes.frames`.

The caller sends a `Job` with the module's bytecode. The worker greets with `Ready`; each job is answered with any
number of `Entered`, and then either `Done`, with the program, or `Failed`.
"""

from __future__ import annotations

import msgspec

from covan_mlir.lowering.request import Job
from covan_mlir.lowering.result import JobResult, StepFailure


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker's imports are done."""


class Entered(msgspec.Struct, frozen=True, tag="step"):
    """A step is about to run."""

    step: str


class Failed(msgspec.Struct, frozen=True, tag="error"):
    """The job gave no program."""

    failure: StepFailure


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The job gave the program that comes with this."""

    result: JobResult


Answer = Ready | Entered | Failed | Done

JOBS: msgspec.json.Decoder[Job] = msgspec.json.Decoder(Job)
ANSWERS: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
