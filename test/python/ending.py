"""Processes that are to end, as tests see them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from limits import HANG


def soon(happens: Callable[[], bool]) -> bool:
    """Whether it happens at all."""
    end = time.monotonic() + HANG
    while not happens() and time.monotonic() < end:
        time.sleep(0.05)
    return happens()


def gone(pid: int) -> bool:
    """Whether a process has ended, all of its threads: the first may be gone before the others."""
    try:
        threads = len(os.listdir(f"/proc/{pid}/task"))
        return threads == 1 and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
