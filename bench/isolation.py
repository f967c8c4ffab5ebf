"""What a process of its own costs a program: microseconds a call, and seconds to load.

    python bench/isolation.py

Side by side with the same program in the caller's process, in turns; medians.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import torch

import covan_mlir


def main() -> None:
    """Print a line for each size of one argument and one result."""
    size = torch.export.Dim("size", min=2, max=1 << 26)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "add.covan"
        covan_mlir.compile_module(lambda x: x + 1, (torch.ones(32),), dynamic_shapes={"x": {0: size}}).save(path)
        started = time.perf_counter()
        there = covan_mlir.load(path, isolated=True)
        print(f"load, isolated: {time.perf_counter() - started:.2f} s")
        here = covan_mlir.load(path)
        for elements, calls in ((16, 500), (1 << 18, 300), (1 << 24, 15)):
            x = torch.ones(elements)
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(calls):
                for spent, exe in zip(times, (here, there), strict=True):
                    started = time.perf_counter()
                    exe(x)
                    spent.append(time.perf_counter() - started)
            own, apart = (statistics.median(spent) * 1e6 for spent in times)
            print(f"{elements * 4:>9} bytes in and out: {own:8.1f} us here, {apart:8.1f} us isolated")


if __name__ == "__main__":
    main()
