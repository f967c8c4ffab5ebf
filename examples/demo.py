"""Two models through covan: are the numbers right, which kernel does what, and what does it cost?

    python examples/demo.py [--size 224] [--rows 14]

Exits with 1 when a result is not eager's.
"""

from __future__ import annotations

import os

# Before torch is imported. By default its OpenMP threads spin for long after each parallel region and take
# the cores from what runs next in the process; without any spin torch takes twice as long on small layers. A
# short spin serves both: each contender then runs as fast as in a process of its own.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent / "models"))
import mobilenet_v2
import transformer

import covan_mlir

TOLERANCE = 1e-4
"""Of the largest element: sums in another order differ by far less, a wrong kernel by far more."""


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def in_turns(calls: list[Callable[[], Any]], rounds: int = 30) -> list[float]:
    """Median seconds of each call, sampled A B A B ..., so that a disturbance of the machine meets all."""
    for call in calls * 3:
        call()
    samples = [[timed(call)[1] for call in calls] for _ in range(rounds)]
    return [median(times) for times in zip(*samples, strict=True)]


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def kernel_table(text: str, rows: int, width: int) -> str:
    """The head of `exe.explain()`, cut to the screen."""
    lines = text.rstrip().splitlines()
    shown = lines if rows <= 0 else lines[:rows]
    cut = [line if len(line) <= width else line[: width - 1] + "…" for line in shown]
    if len(shown) < len(lines):
        rest = count(len(lines) - len(shown), "more line")
        cut.append(f"… and {rest}: --rows 0 shows all, and so does exe.explain() in Python")
    return "\n".join(cut)


def show(title: str, model: torch.nn.Module, inputs: tuple[Any, ...], rows: int, console: Console) -> bool:
    """Compile, check and time one model. True if its result is eager's."""
    console.rule(f"[bold]{title}", align="left")
    with console.status("compiling three times"):
        # The first compilation of a model warms torch's caches; it is the one kept, the others are timed.
        exe = covan_mlir.compile_module(model, inputs)
        _, without = timed(lambda: covan_mlir.compile_module(model, inputs, provenance=False))
        _, with_provenance = timed(lambda: covan_mlir.compile_module(model, inputs))

    expected, actual = model(*inputs), exe(*inputs)
    error, largest = float((actual - expected).abs().max()), float(expected.abs().max())
    right = error <= TOLERANCE * largest  # False for NaN
    verdict = "[green]agrees with eager[/]" if right else "[bold red]DIFFERS FROM EAGER[/]"
    console.print(f"{verdict}: max error {error:.1e}, largest element {largest:.2g}\n")

    sites = exe.lineage.sites
    per_call = [s for s in sites if s.phase == "call"]
    once = len(sites) - len(per_call)
    console.print(
        f"{count(len(exe.lineage.actions), 'source action')} -> "
        f"{count(len(per_call), 'site')} per call in {count(len({s.kernel for s in per_call}), 'kernel')}"
        + (f", and {count(once, 'site')} once, at load\n" if once else "\n")
    )
    console.print(kernel_table(exe.explain(), rows, console.width), markup=False, highlight=False)

    eager, covan = in_turns([lambda: model(*inputs), lambda: exe(*inputs)])
    costs = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for header in ("", "", "", "ratio"):
        costs.add_column(header, justify="right" if header else "left")
    costs.add_row(
        "compile",
        f"{without:.2f} s without provenance",
        f"{with_provenance:.2f} s with",
        f"{with_provenance / without:.2f}",
    )
    costs.add_row("run", f"{eager * 1e3:.2f} ms eager", f"{covan * 1e3:.2f} ms covan", f"{covan / eager:.2f}")
    console.print()
    console.print(costs)
    console.print()
    return right


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description="Two models through covan.")
    parser.add_argument("--size", type=int, default=224, help="side of MobileNetV2's image in pixels")
    parser.add_argument("--rows", type=int, default=14, help="lines of each kernel table; 0 for all")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 100)

    small = torch.nn.Linear(2, 2).eval()  # so that no model pays for starting the compiler
    covan_mlir.compile_module(small, (torch.randn(1, 2),))
    size = options.size
    models: list[tuple[str, torch.nn.Module, tuple[Any, ...]]] = [
        (f"MobileNetV2-0.25, {size} px", mobilenet_v2.mobilenet_v2(), mobilenet_v2.example_inputs(size)),
        ("Transformer, 2 blocks, 64 x 256", transformer.transformer(), transformer.example_inputs()),
    ]
    right = [show(*model, options.rows, console) for model in models]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
