"""The process's own side: it ends with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def watch(parent: int, last: Callable[[], object] = lambda: None) -> None:
    """End this process when its parent is gone, whatever it is doing.

    Args:
        last: is called before.
    """
    if sys.platform == "linux":
        # One that was stopped would not see its parent go: SIGCONT wakes it, and harms no other. The kernel sends it
        # when the *thread* that started this process ends, too: a signal that kills would not do.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        last()
        os._exit(1)

    threading.Thread(target=look, name="watch-parent", daemon=True).start()
