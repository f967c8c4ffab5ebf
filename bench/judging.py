"""A process of its own that judges what may crash it: sweeps ask it, and go on with another one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class NoAnswer(Exception):
    """The process ended, or said nothing in time; another one stands in its place."""


class Judge:
    """A process that answers questions, and is replaced when it crashes or gives no answer.

    Args:
        serve: what it does with its end of a pipe: receives questions and sends answers, until the pipe is closed.
        preload: the module to import once, for all processes.
        seconds: after which a process that has not answered is ended.
    """

    def __init__(self, serve: Callable[[Connection], None], preload: str, seconds: float) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([preload])
        self._serve, self._seconds = serve, seconds
        self._start()

    def _start(self) -> None:
        self._ours, theirs = self._context.Pipe()
        self._child = self._context.Process(target=self._serve, args=(theirs,), daemon=True)
        self._child.start()
        theirs.close()

    def ask(self, question: Any) -> Any:
        """The answer.

        Raises:
            NoAnswer: says why there is none.
        """
        self._ours.send(question)
        try:
            if self._ours.poll(self._seconds):
                return self._ours.recv()
            reason = f"no answer within {self._seconds:.0f} s"
        except (EOFError, ConnectionResetError):
            self._child.join()
            reason = f"the process ended with {self._child.exitcode}"
        self.end()
        self._start()
        raise NoAnswer(reason)

    def end(self) -> None:
        """Ends it."""
        self._child.kill()
        self._child.join()
