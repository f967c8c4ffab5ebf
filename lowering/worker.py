"""The compiler's process: reads jobs from standard input, writes results to standard output, until either closes."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import traceback
from typing import BinaryIO

from covan_mlir.lowering import messages
from covan_mlir.lowering.result import StepFailure
from covan_mlir.support.collector import uncollected
from covan_mlir.support.processes import frames
from covan_mlir.support.processes.parent import afterwards, watch


def main(parent: int, folder: str, trace: str) -> None:
    """Serve the jobs of process ``parent``.

    Standard output is kept for messages: what compilers print goes to standard error.

    Args:
        folder: of the worker's own, for temporary files of all compilers in it.
        trace: of the jobs; where it is ``passes``, they print to that folder.
    """
    afterwards(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    watch(parent)
    requests: BinaryIO = sys.stdin.buffer
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Heavy imports come before the greeting: the caller counts the worker as ready then.
    with uncollected():
        from covan_mlir.lowering.job import JobError, compile_job
        from covan_mlir.lowering.pass_prints import PassPrints
        from covan_mlir.lowering.stages import load_passes

        load_passes()
        gc.freeze()  # modules stay: no collection has to look at them
    prints = PassPrints(tempfile.mkdtemp(prefix="passes-")) if trace == "passes" else None

    frames.send(answers, messages.Ready())
    while True:
        try:
            job, blobs = frames.receive(requests, messages.JOBS)
        except EOFError:  # the caller ended, perhaps by force
            return
        step = "start"

        def told(name: str) -> None:
            nonlocal step
            step = name
            frames.send(answers, messages.Entered(name))

        with uncollected():
            try:
                result, program = compile_job(blobs[0], job, told, prints)
            except JobError as error:
                frames.send(answers, messages.Failed(error.failure))
            except MemoryError:
                frames.send(answers, messages.Failed(StepFailure(step, "the compiler ran out of memory")))
            except Exception as error:  # a bug of ours must not look like a crash of a compiler
                failure = StepFailure(step, f"internal error: {error!r}", log=traceback.format_exc())
                frames.send(answers, messages.Failed(failure))
            else:
                frames.send(answers, messages.Done(result), [program])
        gc.collect()  # while the caller is at work


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
