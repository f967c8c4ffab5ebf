"""Measures a processor's ceilings: ``python probe.py THREADS`` prints FLOPs and bytes per second as JSON.

A process of its own, because numpy's linear algebra takes its number of threads (one here, for each of ours) from the
environment, once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

_SIZE = 512  # of a square float32 product: operands in cache; short, so that some try is not disturbed
_BYTES = 64 << 20  # per thread: larger than caches
_TRIES = 40


def peak(threads: int) -> float:
    """float32 operations per second of as many matrix products at once."""
    left = np.ones((_SIZE, _SIZE), np.float32)
    out = np.empty((threads, _SIZE, _SIZE), np.float32)
    return 2.0 * threads * _SIZE**3 / _best(threads, lambda i: np.matmul(left, left, out=out[i]))


def bandwidth(threads: int) -> float:
    """Bytes per second read and written by as many copies at once."""
    source = np.ones((threads, _BYTES // 4), np.float32)
    target = np.zeros_like(source)
    return 2.0 * source.nbytes / _best(threads, lambda i: np.copyto(target[i], source[i]))


def _best(threads: int, work: Callable[[int], Any]) -> float:
    """Seconds of the fastest try with all threads at work."""
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_TRIES):
            start = time.perf_counter()
            list(pool.map(work, range(threads)))
            best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    print(json.dumps({"flops": peak(int(sys.argv[1])), "bandwidth": bandwidth(int(sys.argv[1]))}))
