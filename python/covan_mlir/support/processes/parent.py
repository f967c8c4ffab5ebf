"""The process's own side: it ends with the one that started it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable


def watch(parent: int) -> None:
    """End this process when its parent is gone.

    That takes Python's lock, once a second. What holds on Linux whatever a process is doing is the other side's
    `covan_mlir.support.processes.leash.Leash`; a process that began when its parent was gone ends here.
    """

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=look, name="watch-parent", daemon=True).start()


def afterwards(function: Callable[[], object]) -> None:
    """Call a function when this process is gone, however it ended: in a fork, which holds nothing else of it open.

    Of processes without threads only.

    Raises:
        OSError: there are no processes, or no file descriptors.
    """
    reader, writer = os.pipe()
    if os.fork():
        os.close(reader)  # the writer stays open for good
        return
    try:
        os.close(writer)
        os.dup2(reader, 0)
        os.closerange(1, os.sysconf("SC_OPEN_MAX"))
        os.read(0, 1)
        function()
    finally:
        os._exit(0)
