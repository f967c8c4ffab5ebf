"""Memory that is freed and asked for again at each call stays with the process."""

from __future__ import annotations

import ctypes
import logging
from functools import cache

log = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc, malloc.h


@cache
def keep_pages() -> bool:
    """Have glibc's allocator keep large blocks that are freed, for the rest of this process; -> whether it does.

    By default it gives blocks above some megabytes back to the system, and the next ones are pages that the system has
    to clear one by one: of a step of training with new values of a hundred million numbers, that is most of the time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        log.info("memory of large states is given back to the system and asked for again at each call")
        return False
    return bool(mallopt(_TRIM_THRESHOLD, -1) and mallopt(_MMAP_MAX, 0))  # never trimmed; none of a mapping of its own
