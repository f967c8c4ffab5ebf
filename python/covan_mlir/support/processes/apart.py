"""A function in a fork of this process: what crashes there is told here."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from covan_mlir.support.processes import parent
from covan_mlir.support.processes.child import ending
from covan_mlir.support.processes.leash import Leash


class CrashError(Exception):
    """The fork did not come to its end; the message says how it ended (``crashed with SIGSEGV``)."""


def run(function: Callable[[], int]) -> int:
    """Call a function in a fork, which shares standard input and output and ends with this process; -> what it gives.

    Of processes without threads only: a fork has none of them, and what they held.

    Raises:
        CrashError: a signal ended the fork.
        OSError: there are no processes, or no file descriptors.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    caller = os.getpid()
    interrupted = False
    with Leash() as leash:
        child = os.fork()
        if child == 0:
            _end_with(function, caller)
        leash.hold(child)
        while True:
            try:
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                break
            except KeyboardInterrupt:  # which the fork got as well
                interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    if code < 0:
        raise CrashError(ending(code))
    return code


def _end_with(function: Callable[[], int], caller: int) -> NoReturn:
    """In the fork."""
    code = 1
    try:
        parent.watch(caller)
        code = function()
    except SystemExit as leaving:  # as after --help
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
