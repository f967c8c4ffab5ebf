"""Timing that can be trusted on a shared machine: interleaved samples, medians, ceilings of the same run."""

from __future__ import annotations

import os

# Compilations that are timed are whole ones.
os.environ.setdefault("COVAN_CACHE", "off")

import argparse
import gc
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]

Row = dict[str, Any]
Cell = str | float | int | None


@dataclass(frozen=True)
class Timing:
    """Samples of one contender, in seconds, in the order they were taken."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def undisturbed(self) -> float:
        """The first decile: for calls of microseconds, where the median tells when threads were woken."""
        return sorted(self.samples)[len(self.samples) // 10]

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, over the median."""
        ordered = sorted(self.samples)
        low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
        return (high - low) / 2 / self.median

    def over(self, base: Timing) -> float:
        """Median of the ratios of samples taken in the same round: drift of the machine cancels."""
        return median(a / b for a, b in zip(self.samples, base.samples, strict=True))


REST = 0.05
"""Seconds after which no thread of a contender takes a core from the next one any more: torch's OpenMP threads spin for
up to 10 ms after a parallel region, ONNX Runtime's for 34 ms after a call."""
SETTLE = 0.02
"""Seconds of calls after which a contender runs as fast as in a process of its own."""


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    seconds: float = 0.0,
    warmup: int = 1,
    collect: bool = False,
    settle: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
    pause: float = 0.0,
) -> dict[str, Timing]:
    """Time contenders in turns: A B C, B C A, C A B, ...

    Turns let all of them meet the same disturbances. Each still follows the same neighbour in most rounds: where what
    that leaves in the caches matters, ``settle``.

    Args:
        contenders: what to call, by name. Results are dropped outside the timed part.
        rounds: samples of each, at least.
        seconds: go on until this much time has passed.
        warmup: untimed calls of each before.
        collect: run the garbage collector before each sample; else it is off throughout.
        settle: seconds of untimed calls of a contender (one at least, if not 0) right before each of its samples, so
            that it finds the caches and its threads as its own last calls left them, and not as another's did.
        clock: of samples; `time.process_time` where one thread computes on a core that others use as well.
        pause: seconds before each turn, in which the threads of the contender before come to rest: the process's time
            has theirs, too.
    """
    for call in contenders.values():
        for _ in range(warmup):
            call()
    names = list(contenders)
    samples: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        done = 0
        while done < rounds or time.perf_counter() - begin < seconds:
            for i in range(len(names)):
                name = names[(done + i) % len(names)]
                if collect:
                    gc.collect()
                time.sleep(pause)
                until = time.perf_counter() + settle
                while settle and time.perf_counter() < until:
                    contenders[name]()
                start = clock()
                result = contenders[name]()
                samples[name].append(clock() - start)
                del result
            done += 1
    finally:
        gc.enable()
    return {name: Timing(tuple(times)) for name, times in samples.items()}


def once(call: Callable[[], Any]) -> tuple[Any, float]:
    """Result and seconds of a single call."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def in_child(script: str, key: str, name: str, flags: Sequence[str]) -> Row:
    """Measure one model in a new process: nothing meets what another one left, and a crash is only a row.

    Args:
        script: that takes a name, the flags, and `--child FILE`, to which it writes the row.
        key: what the row calls the name.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        command = [sys.executable, script, name, "--child", str(out), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and out.exists():
            row: Row = json.loads(out.read_text())
            return row
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {key: name, "fails": {"process": f"exit {done.returncode}: {last}"}}


def ceilings(size: int = 1536, megabytes: int = 256, repeats: int = 7) -> dict[str, float]:
    """What this machine gives now: f32 matmul in GFLOP/s, large copies in GB/s, read and written.

    The matmul is torch's, on all of its threads: what a tuned library reaches, a little under the FMA peak.
    """
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    source = torch.randn(megabytes * 2**18)
    target = torch.empty_like(source)
    times = interleave(
        {"matmul": lambda: torch.mm(a, b, out=out), "copy": lambda: target.copy_(source)},
        rounds=repeats,
        warmup=2,
    )
    return {
        "matmul_gflops": 2 * size**3 / min(times["matmul"].samples) / 1e9,
        "copy_gb_per_s": 2 * source.nbytes / min(times["copy"].samples) / 1e9,
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), platform.machine())


def cores() -> int:
    """As many as this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """The processor, how much of it is ours, versions, and the ceilings measured now."""
    packages = (
        "torch",
        "torch-mlir",
        "iree-base-compiler",
        "iree-base-runtime",
        "transformers",
        "onnxruntime",
        "openvino",
        "covan-mlir",
    )
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "torch_threads": torch.get_num_threads(),
        "openmp": {name: value for name, value in os.environ.items() if name.startswith(("OMP_", "GOMP_"))},
        "versions": versions,
        "ceilings": ceilings(),
    }


def describe(host: Mapping[str, Any]) -> str:
    """A machine in two lines."""
    versions = ", ".join(f"{k} {v}" for k, v in host["versions"].items())
    peak = host["ceilings"]
    return (
        f"{host['cpu']}, {host['cores']} cores: {peak['matmul_gflops']:.0f} GFLOP/s f32 matmul, "
        f"{peak['copy_gb_per_s']:.1f} GB/s copy\n{versions}"
    )


def arguments(
    description: str, rounds: int, seconds: float, what: str = "models", chosen: str = "names of workloads"
) -> argparse.ArgumentParser:
    """The options that all benchmarks share.

    Args:
        what: the name of the positional arguments.
        chosen: what they are, for people.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(what, nargs="*", help=f"{chosen} (default: all)")
    parser.add_argument("--rounds", type=int, default=rounds, help="samples of each contender, at least")
    parser.add_argument("--seconds", type=float, default=seconds, help="time for the calls of a model")
    parser.add_argument("--json", type=Path, help="also write samples and machine to this file")
    return parser


def table(title: str, columns: Sequence[str], rows: Sequence[Row], width: int = 110) -> str:
    """Some columns of the rows as text: as wide as the terminal, or of so many characters where there is none."""
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        grid.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(cell(row.get(column)) for column in columns))
    console = Console(width=None if sys.stdout.isatty() else width, highlight=False)
    with console.capture() as text:
        console.print(grid)
    return text.get()


def report(title: str, host: Mapping[str, Any], columns: Sequence[str], rows: Sequence[Row], width: int = 110) -> str:
    """The machine, and a table of what was measured on it."""
    return f"{describe(host)}\n\n{table(title, columns, rows, width)}"


def cell(value: Cell) -> str:
    """Three significant digits; counts and words as they are."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:#.3g}"
    return str(value)


def write_json(path: Path, name: str, host: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """One document: what ran, where, and all rows with their samples."""
    document = {"benchmark": name, "argv": sys.argv[1:], "machine": dict(host), "rows": list(rows)}
    path.write_text(json.dumps(document, indent=1) + "\n")


def short(error: BaseException | str, limit: int = 90) -> str:
    """The first telling line of an error; where OpenVINO threw it is not."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Exception from ", "Check '"))] or lines
    named = [line for line in lines if "error:" in line.lower()]
    text = (named or lines or [type(error).__name__])[0]
    return text if len(text) <= limit else text[: limit - 1] + "…"
