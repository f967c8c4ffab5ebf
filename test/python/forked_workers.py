"""Processes of isolated programs as forks, where thousands are started: an interpreter takes longer than its program.

They run what `covan_mlir.runtime.isolation.worker` runs, with the same descriptors, in a session of their own.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Sequence
from typing import IO

from covan_mlir.runtime.isolation import worker
from covan_mlir.support.processes.child import Child
from covan_mlir.support.processes.frames import Pipe
from covan_mlir.support.processes.leash import Leash


class _Fork:
    """What `Child` uses of a `subprocess.Popen`."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._code if self._code is not None else self._collect(os.WNOHANG)

    def wait(self) -> int:
        while self._code is None:
            self._collect(0)
        return self._code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _collect(self, options: int) -> int | None:
        pid, status = os.waitpid(self.pid, options)
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
        return self._code


class ForkedWorker(Child):
    """In the place of `Child`, in a process without threads."""

    def __init__(self, module: str, arguments: Sequence[str] = (), descriptors: Sequence[int] = ()) -> None:
        assert module == worker.__name__
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self.owner = os.getpid()
        self._leash = Leash()
        requests, stdin = os.pipe()
        stdout, answers = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setsid()
                signal.signal(signal.SIGPROF, signal.SIG_DFL)
                for descriptor, number in ((requests, 0), (answers, 1), (self.log.fileno(), 2)):
                    os.dup2(descriptor, number)
                for descriptor in (requests, stdin, stdout, answers):
                    os.close(descriptor)
                worker.main(self.owner, *arguments)
                code = 0
            finally:
                os._exit(code)
        self._leash.hold(pid)
        os.close(requests)
        os.close(answers)
        self.process = _Fork(pid, os.fdopen(stdin, "wb", buffering=0), os.fdopen(stdout, "rb", buffering=0))
        self.pipe = Pipe(stdout, stdin)
