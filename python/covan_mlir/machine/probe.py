"""Measures a processor's speeds: ``python probe.py CORES L2 LLC`` prints them as JSON.

A process of its own, because numpy's linear algebra takes its number of threads (one here, for each of ours) from the
environment, once. Figures are those of the fastest of many short tries: others use the machine, too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

_SIZE = 384  # of a square float32 product: operands in cache; short, so that some try is not disturbed
_CHUNK = 8 << 20  # bytes of an operand that one try reads from memory
_TRIES = 10
_SECONDS = 0.1  # for one figure, if so many tries take no longer


def main(cores: int, l2: int, llc: int) -> None:
    """Print the speeds of one core, while all are at work and alone, as `covan_mlir.machine.description` names them.

    Args:
        l2: bytes of cache of one core.
        llc: bytes of cache of all.
    """
    # Two arrays, cut among threads: so large that nothing of a chunk is left in caches when its turn comes again.
    size = min(max(2 * llc, 2 * _CHUNK * cores, 128 << 20), 512 << 20) // 4
    left, right = np.ones(size, np.float32), np.zeros(size, np.float32)
    rates = {
        "flops": _products(cores),
        "bandwidth": _memory(cores, left, right),
        "cache_bandwidth": _last_cache(cores, max(2 * l2, llc // (8 * cores)) // 4),
        "elements": _elements(l2 // 16),
        "flops_alone": _products(1),
        "bandwidth_alone": _memory(1, left, right),
    }
    print(json.dumps(rates))


def _products(threads: int) -> float:
    """float32 operations per second and thread of matrix products."""
    left = np.ones((_SIZE, _SIZE), np.float32)
    out = np.empty((threads, _SIZE, _SIZE), np.float32)
    return 2.0 * _SIZE**3 / _fastest(threads, lambda i, _: np.matmul(left, left, out=out[i])).thread


def _memory(threads: int, left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """Bytes per second and thread of sums, each in the place of an operand: twelve bytes an element move and no more,
    while what a copy writes may be read before."""
    chunk = _CHUNK // 4
    turns = left.size // (chunk * threads)

    def work(i: int, turn: int) -> None:
        at = (i * turns + turn % turns) * chunk
        np.add(left[at : at + chunk], right[at : at + chunk], out=right[at : at + chunk])

    # All together, or a thread that others wait for would have the memory to itself.
    return 12.0 * chunk / _fastest(threads, work, turns).all


def _last_cache(threads: int, size: int) -> float:
    """The same of arrays that the last cache holds, and those before it do not."""
    left, right = np.ones((threads, size), np.float32), np.zeros((threads, size), np.float32)
    return 12.0 * size / _fastest(threads, lambda i, _: np.add(left[i], right[i], out=right[i])).thread


def _elements(size: int) -> float:
    """Elements per second of an addition and an exponential in turn, the cheap and the costly that models have."""
    source, target = np.ones(size, np.float32), np.zeros(size, np.float32)
    passes = range(16)

    def work(_thread: int, _turn: int) -> None:
        for _pass in passes:
            np.add(source, source, out=target)
            np.exp(source, out=target)

    return 2.0 * size * len(passes) / _fastest(1, work).thread


class _Fastest(NamedTuple):
    """Seconds of the fastest try, of any one thread and of all together."""

    thread: float
    all: float


def _fastest(threads: int, work: Callable[[int, int], Any], tries: int = _TRIES) -> _Fastest:
    """How long some work takes.

    Args:
        work: is told the number of the thread and that of the try.
        tries: at least.
    """

    def timed(thread: int, turn: int) -> float:
        start = time.perf_counter()
        work(thread, turn)
        return time.perf_counter() - start

    fastest, turn, deadline = _Fastest(float("inf"), float("inf")), 0, time.perf_counter() + _SECONDS
    with ThreadPoolExecutor(threads) as pool:
        while turn <= tries or time.perf_counter() < deadline:
            start = time.perf_counter()
            each = min(pool.map(timed, range(threads), [turn] * threads))
            together = time.perf_counter() - start
            if turn:  # the first is slower: threads start
                fastest = _Fastest(min(fastest.thread, each), min(fastest.all, together))
            turn += 1
    return fastest


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
