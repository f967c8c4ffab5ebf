"""What ends with this process, however this one ends and whatever the other is doing.

A pipe that nobody writes to: when its last writer is gone, the kernel sends SIGKILL to the process that was named to it
(``F_SETOWN``, ``F_SETSIG``). That takes no code in the other process, which may be stopped, or loop in C++ and hold
Python's lock. ``PR_SET_PDEATHSIG`` would come with the end of the *thread* that started it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)


class Leash:
    """Holds one process, from `hold` until `close` or the end of this process; then it is killed.

    Elsewhere than on Linux it holds nothing: there, processes of ours see within a second that this one is gone
    (`covan_mlir.support.processes.parent`), if they can look.

    Attributes:
        descriptor: of a file, to be inherited by the process.

    Raises:
        OSError: there are no file descriptors left.
    """

    def __init__(self) -> None:
        self.descriptor, self._writer = os.pipe()
        self._open = {self.descriptor, self._writer}
        _leashes.add(self)

    def hold(self, pid: int) -> None:
        """Have a process killed when this one is gone. It was started with `descriptor`, which is closed here."""
        if sys.platform == "linux":
            try:
                # Of the open file, not of the descriptor: they stay as long as the other process has it.
                fcntl.fcntl(self.descriptor, fcntl.F_SETOWN, pid)
                fcntl.fcntl(self.descriptor, fcntl.F_SETSIG, int(signal.SIGKILL))
                fcntl.fcntl(self.descriptor, fcntl.F_SETFL, fcntl.fcntl(self.descriptor, fcntl.F_GETFL) | os.O_ASYNC)
            except OSError as error:
                log.warning("process %d may outlive this one, if that is killed: %s", pid, error)
        self._close(self.descriptor)

    def close(self) -> None:
        """Let go: the process is killed, if it is still there."""
        _leashes.discard(self)
        self._close(self.descriptor)
        self._close(self._writer)

    def inherited(self) -> None:
        """In a fork: the process is not its own, and must not live for it."""
        self._close(self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)


_leashes: set[Leash] = set()


def _inherited() -> None:
    while _leashes:
        _leashes.pop().inherited()


os.register_at_fork(after_in_child=_inherited)


def run(
    command: Sequence[str],
    timeout: float | None,
    environment: Mapping[str, str] | None = None,
    *,
    session: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command, without input, to its end or to that of this process.

    Args:
        timeout: seconds, or None.
        session: whether it is a session of its own, which Ctrl-C does not reach.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    with (
        Leash() as leash,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=session,
            pass_fds=(leash.descriptor,),
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            leash.hold(process.pid)
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
