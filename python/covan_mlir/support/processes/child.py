"""A process that this one started, to its end."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO

from covan_mlir.support.processes.frames import Pipe
from covan_mlir.support.processes.leash import Leash

LOG_TAIL = 4000
"""Characters of what a process printed, at most, that errors quote."""


class Child:
    """A Python process that runs one of our modules, and the file that collects what it prints.

    It ends with this process, on a leash; and it is told this process's id as its first argument, to look itself
    (`covan_mlir.support.processes.parent`).

    Attributes:
        owner: the process that started it; a fork of that one inherits this object, and must leave the process alone.
        pipe: frames to its standard input, and from its standard output.

    Args:
        module: its name.
        arguments: what follows its parent's id.
        descriptors: open files that it inherits, under the same numbers.

    Raises:
        OSError: it cannot be started: there are no file descriptors, processes or room for temporary files.
    """

    def __init__(self, module: str, arguments: Sequence[str] = (), descriptors: Sequence[int] = ()) -> None:
        with contextlib.ExitStack() as undo:
            self.log: IO[bytes] = undo.enter_context(tempfile.TemporaryFile())
            self._leash = undo.enter_context(Leash())
            # Its own session: Ctrl-C reaches the caller, which then stops the process in order.
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(os.getpid()), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                start_new_session=True,
                pass_fds=(*descriptors, self._leash.descriptor),
                bufsize=0,
            )
            self._leash.hold(self.process.pid)
            undo.pop_all()
        self.owner = os.getpid()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.pipe = Pipe(self.process.stdout.fileno(), self.process.stdin.fileno())

    @property
    def alive(self) -> bool:
        """Whether it is there, and this process's own."""
        return self.owner == os.getpid() and self.process.poll() is None

    def stop(self) -> None:
        """End it, if it has not ended; in a fork of its owner nothing is done."""
        if self.owner != os.getpid():
            return
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.process.wait()
        self._leash.close()
        self.log.close()

    def tail(self, start: int | None = None) -> str:
        """The end of what it printed; what it printed from byte ``start`` on, where that is given."""
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - LOG_TAIL) if start is None else start)
        return self.log.read().decode(errors="replace").strip()


_LACKING = {
    errno.EMFILE: "this process has no file descriptors left (ulimit -n)",
    errno.ENFILE: "the system has no file descriptors left",
    errno.ENOSPC: "the disk for temporary files is full (TMPDIR)",
    errno.EDQUOT: "the disk for temporary files is full (TMPDIR)",
    errno.ENOMEM: "memory ran out",
    errno.EAGAIN: "there are no processes left (ulimit -u)",
}

_NO_MEMORY = re.compile(
    r"bad_alloc|MemoryError|[Oo]ut of memory|[Cc]annot allocate memory|failed to map segment|LLVM ERROR: .*allocat"
)


def lacking(error: OSError) -> str:
    """What was missing for a process that could not be started."""
    if error.errno == errno.ENOENT and "temporary directory" in str(error):
        return "there is no folder for temporary files that can be written to (TMPDIR)"
    return _LACKING.get(error.errno or 0, str(error))


def out_of_memory(said: str) -> bool:
    """Whether what a process printed before it ended says that there was no memory."""
    return bool(_NO_MEMORY.search(said))


def ending(code: int) -> str:
    """How a process ended, for ``the compiler ...``: by its exit code, negative for a signal."""
    if code == -signal.SIGKILL:
        return "was killed by the system, most likely because memory ran out"
    if code < 0:
        names = {int(one): one.name for one in signal.Signals}
        return f"crashed with {names.get(-code, f'signal {-code}')}"
    return f"ended with exit code {code}"
