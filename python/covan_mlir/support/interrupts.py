"""Ctrl-C at a moment when it harms nothing: a module that was imported by half cannot be imported again.

torch, sympy and others import much of themselves when it is first needed, which a traceback out of the middle would
leave unusable for the rest of the process.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from covan_mlir.errors import CovanError

_AGAIN = 0.02  # seconds after which it is tried once more
_IMPORT = ("<frozen importlib._bootstrap>", "_find_and_load_unlocked")


class _Guard:
    """The handler of SIGINT while something of ours runs: as the one before, once no import is going on."""

    def __init__(self, before: Any) -> None:
        self.before = before
        self.pending = False
        self._whole = 0
        self._lock = threading.Lock()
        self._over = False
        self._main = threading.main_thread().ident

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._over or self._whole or _imports(frame):
            self.pending = True
            if not self._over:
                again = threading.Timer(_AGAIN, self._again)
                again.daemon = True
                again.start()
            return
        self.pending = False
        self.before(number, frame)

    def end(self) -> None:
        """No more of it: what is pending is for who ends it."""
        with self._lock:
            self._over = True

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """What is inside ends before an interrupt takes effect."""
        self._whole += 1
        try:
            yield
        finally:
            self._whole -= 1

    def _again(self) -> None:
        with self._lock:
            if not self._over and self._main is not None:
                signal.pthread_kill(self._main, signal.SIGINT)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == _IMPORT:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def orderly(whole: bool = False) -> Iterator[None]:
    """An interrupt inside takes effect behind the import that it falls into; in threads other than the main one, which
    hear of none, nothing changes. As a decorator, too.

    Args:
        whole: it takes effect at the end only.

    Raises:
        CovanError: this is a sub-interpreter: a call would wait for ever.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    if isinstance(before, _Guard):
        with before.whole() if whole else contextlib.nullcontext():
            yield
        return
    guard = _Guard(before)
    try:
        signal.signal(signal.SIGINT, guard)
    except ValueError as error:
        raise CovanError(
            "this is a sub-interpreter, in which neither NumPy nor the runtime works: use threads, or processes that "
            "are spawned"
        ) from error
    try:
        with guard.whole() if whole else contextlib.nullcontext():
            yield
    finally:
        guard.end()
        signal.signal(signal.SIGINT, before)
        if guard.pending:
            before(signal.SIGINT, None)
