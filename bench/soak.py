"""Compiles, saves, loads, calls, profiles and reports in turns, from several threads, and tells what grows meanwhile.

    python bench/soak.py --minutes 30 --threads 2

After each round of turns: resident memory of this process and of those that it started, its open files, its threads,
and its processes. Prints the slope of each by least squares, with its standard error, over all rounds but those in
which caches fill. The exit status says whether a result was unlike eager's, or files or processes grew. ``--every N``
compiles in each Nth turn only: torch.export keeps memory of its own.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import gc
import math
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

import covan_mlir

_SETTLED = 0.25  # of the rounds: caches fill before, threads and the compiler's worker start
_CALLS = 50  # a turn
_ISOLATED = 0.2  # of the loaded programs


@dataclass(frozen=True)
class Sample:
    """What is held after a round.

    Attributes:
        memory: MiB of this process that are in memory.
        others: MiB of the processes that it started.
        files: open file descriptors of this process.
    """

    minutes: float
    memory: float
    others: float
    files: float
    threads: float
    processes: float


@dataclass(frozen=True)
class Slope:
    """A straight line through samples, by least squares.

    Attributes:
        slope: per minute.
        error: the standard error of the slope.
        growth: by the line, over all of the time.
    """

    slope: float
    error: float
    growth: float

    @property
    def flat(self) -> bool:
        """Whether the line may be level: it rises by less than two standard errors, or by less than one in all."""
        return self.growth < 1 or self.slope <= 2 * self.error


def line(minutes: Sequence[float], values: Sequence[float]) -> Slope:
    """Through at least three samples at different times."""
    count = len(minutes)
    middle, level = sum(minutes) / count, sum(values) / count
    spread = sum((minute - middle) ** 2 for minute in minutes)
    slope = sum((minute - middle) * (value - level) for minute, value in zip(minutes, values, strict=True)) / spread
    rest = sum((value - level - slope * (m - middle)) ** 2 for m, value in zip(minutes, values, strict=True))
    error = math.sqrt(rest / (count - 2) / spread)
    return Slope(slope, error, slope * (max(minutes) - min(minutes)))


def _children(process: int) -> list[int]:
    """Processes that one started, and those that they did."""
    started: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            direct = [int(text) for text in task.read_text().split()]
        except OSError:  # it ended
            continue
        for child in direct:
            started += [child, *_children(child)]
    return started


def _memory(process: int | str) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:  # it ended
        return 0.0
    return pages * resource.getpagesize() / 2**20


def sample(started: float) -> Sample:
    """What is held now, garbage left out."""
    gc.collect()
    processes = _children(os.getpid())
    return Sample(
        (time.monotonic() - started) / 60,
        _memory("self"),
        sum(map(_memory, processes)),
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        len(processes),
    )


# --- turns ------------------------------------------------------------------------------------------------------------


class _Stateful(nn.Module):
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.sum(0)
        return torch.softmax(x + self.total, -1)


def _looks_up(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return table[places] * 2


@dataclass(frozen=True)
class _Model:
    called: Callable[..., torch.Tensor]
    args: tuple[torch.Tensor, ...]
    shapes: Any = None


def _models() -> list[_Model]:
    size = torch.export.Dim("size", min=2, max=64)
    return [
        _Model(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).eval(), (torch.randn(4, 8),)),
        _Model(_Stateful(), (torch.randn(4, 8),)),
        _Model(_looks_up, (torch.randn(9, 4), torch.tensor([1, 2]))),
        _Model(nn.Conv2d(3, 4, 3).eval(), (torch.randn(1, 3, 8, 8),)),
        _Model(nn.Softmax(-1), (torch.randn(5, 8),), ({0: size},)),
    ]


def turn(model: _Model, path: Path, kept: Path, compiles: bool, isolated: bool) -> None:
    """One turn of a model: from the compilation, or the file of an earlier one, to the report.

    Args:
        path: of files of this turn.
        kept: the artifact that later turns load.

    Raises:
        AssertionError: a result is unlike eager's.
    """
    programs = []
    if compiles or not kept.exists():
        options = covan_mlir.CompileOptions(cache=False)
        programs.append(
            covan_mlir.compile_module(model.called, model.args, dynamic_shapes=model.shapes, options=options)
        )
        programs[0].save(path)
        os.replace(path, kept)
    programs.append(covan_mlir.load(kept, isolated=isolated))
    for program in programs:
        for _ in range(_CALLS):
            result = program(*model.args)
        if not isinstance(model.called, _Stateful):
            torch.testing.assert_close(result, model.called(*model.args), rtol=1e-4, atol=1e-5)
    programs[-1].profile(*model.args, repeat=3)
    programs[-1].explain()
    programs[-1].report(path)
    path.unlink()


def main() -> int:
    """Exit status: whether anything went wrong, or grew that must not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=5, help="at least")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=2, help="turns of a thread, of which one compiles")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, metavar="FILE.csv", help="what was held after each round")
    options = parser.parse_args()
    rng, models = random.Random(options.seed), _models()
    started = time.monotonic()
    samples: list[Sample] = []
    with (
        tempfile.TemporaryDirectory() as name,
        concurrent.futures.ThreadPoolExecutor(options.threads, thread_name_prefix="turn") as pool,
    ):
        while time.monotonic() - started < options.minutes * 60 or len(samples) < options.rounds:
            compiles = len(samples) % options.every == 0
            turns = []
            for thread in range(options.threads):
                index = rng.randrange(len(models))
                path, kept = Path(name) / f"turn{thread}", Path(name) / f"model{index}.covan"
                turns.append(pool.submit(turn, models[index], path, kept, compiles, rng.random() < _ISOLATED))
            for done in turns:
                done.result()
            samples.append(sample(started))
            if options.save:
                with options.save.open("w", newline="") as file:
                    csv.writer(file).writerows([[field.name for field in fields(Sample)], *map(astuple, samples)])
    settled = samples[int(len(samples) * _SETTLED) :]
    print(f"{len(samples) * options.threads} turns, {options.threads} threads, {samples[-1].minutes:.1f} minutes")
    minutes = [one.minutes for one in settled]
    wrong = False
    for field, values in zip(fields(Sample)[1:], zip(*(astuple(one)[1:] for one in settled), strict=True), strict=True):
        slope = line(minutes, values)
        print(
            f"{field.name:>10}: {values[0]:.1f} at first, {values[-1]:.1f} at last, "
            f"{slope.slope:+.3f} ± {slope.error:.3f} a minute"
        )
        wrong |= field.name in ("files", "processes") and not slope.flat
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
