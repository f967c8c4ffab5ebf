"""Architectures that nobody prepared covan for: chosen at random, compiled with tiny configurations, checked.

Of the configurations that `transformers` knows, and of the models that `timm` does (where they are installed), a seeded
sample is instantiated with random weights, small or at its real size (`architectures.py`). Per architecture: does it
compile, do the numbers agree with eager, what does `verify()` say, and why.

    python bench/unprepared.py --seed 0 --count 20 --library transformers
    python bench/unprepared.py --only gemma2 clip_vision_model
    python bench/unprepared.py --only timm:mobilevit_xxs --real --times

    python bench/unprepared.py --seed 70 --dtype f16
    python bench/unprepared.py --seed 71 --dtype int8

`tried_architectures.py` lists those that have been tried, with the seed that chose them. Models that draw random
numbers (`vit_mae`) cannot agree with eager and are told as such. Those in halves are compared with eager in f32. Models
as int8 are quantised by torch's exporter, for x86 and calibrated with the very arguments: steps may differ from eager's
by rounding, and results by twice of what those differ from the model's in f32.
"""

from __future__ import annotations

import argparse
import copy
import logging
import math
import multiprocessing
import queue as queues
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

import torch
from architectures import LIBRARIES, Built, built, known, tensors
from pt2e import exported_steps
from torch import Tensor

import covan_mlir

TOLERANCE = 1e-3
"""Of the largest difference from eager, relative to the largest value."""
HALVES = 2.0
"""Times what eager in halves is apart from eager in f32: as much may a program in halves be."""
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "int8": torch.float32}
WIDER = {"f32": torch.float64, "f16": torch.float32, "bf16": torch.float32}
LIMIT = 280
"""Seconds per architecture."""


@dataclass(frozen=True)
class Outcome:
    """What became of one architecture.

    Attributes:
        failure: why there is no verdict: not built, not compiled, not run; empty otherwise.
        error: largest difference from eager, relative to the largest value.
        rounding: the same of eager in f32 from eager in f64, where `error` is above `TOLERANCE`.
        random: the model draws random numbers, so that numbers need not agree.
        verdict: of `verify`.
        reasons: why it is no ``yes``.
        warnings: that were logged while it was compiled: of kernels that were lost, say.
        slowdown: time of a call over eager's; 0 where it is not measured.
        seconds: to build, compile, run and verify it.
    """

    name: str
    failure: str = ""
    error: float = 0.0
    rounding: float = 0.0
    random: bool = False
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    actions: int = 0
    sites: int = 0
    slowdown: float = 0.0
    seconds: float = 0.0


class Warnings(logging.Handler):
    """Keeps what is warned of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(" ".join(record.getMessage().split())[:300])


def tried(name: str, *, real: bool, times: bool, dtype: str) -> Outcome:
    """Compile one architecture, run it beside eager, and verify it."""
    start = time.perf_counter()
    outcome = Outcome(name)
    warnings = Warnings()
    logging.getLogger("covan_mlir").addHandler(warnings)
    stage = "not built"
    try:
        plain = chosen = _in(built(name, real=real), DTYPES[dtype])
        if dtype == "int8":
            stage = "not quantised"
            chosen = Built(exported_steps(chosen.model, (), chosen.args), chosen.args, chosen.random)
        expected = _eager(chosen)
        stage = ""
        model = torch.export.export(chosen.model, (), chosen.args) if dtype == "int8" else chosen.model
        exe = covan_mlir.compile_module(model, (), chosen.args)
        stage = "not run"
        given = tensors(exe(**chosen.args))
        stage = "not verified"
        verdict = exe.verify()
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return replace(outcome, failure=f"{stage}: {told}" if stage else told, seconds=time.perf_counter() - start)
    seconds = time.perf_counter() - start
    exact = expected if dtype in ("f32", "int8") else _eager(chosen, torch.float32)
    apart = difference(exact, given)
    reasons = [str(example) for example in verdict.counterexamples]
    reasons += [reason for check in verdict.checks for reason in check.missing]
    return replace(
        outcome,
        error=apart,
        # What eager itself makes of rounding: deep models with random weights can amplify it.
        rounding=0.0 if apart <= TOLERANCE else difference(_eager(plain, WIDER.get(dtype)), expected),
        random=chosen.random,
        verdict=verdict.outcome,
        reasons=tuple(dict.fromkeys(reasons)),
        warnings=tuple(warnings.told),
        actions=len(exe.lineage.actions),
        sites=len(exe.lineage.sites),
        slowdown=_time(lambda: exe(**chosen.args)) / _time(lambda: _eager(chosen)) if times else 0.0,
        seconds=seconds,
    )


def _time(call: Callable[[], Any]) -> float:
    """Seconds, the median of five calls after one."""
    samples = []
    for _ in range(6):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return median(samples[1:])


def _in(chosen: Built, dtype: torch.dtype) -> Built:
    """The model in another type, and its arguments."""
    args = {name: value.to(dtype) if value.is_floating_point() else value for name, value in chosen.args.items()}
    return Built(copy.deepcopy(chosen.model).to(dtype), args, chosen.random)


def _eager(chosen: Built, dtype: torch.dtype | None = None) -> list[Tensor]:
    chosen = chosen if dtype is None else _in(chosen, dtype)
    model, args = chosen.model, chosen.args
    with torch.no_grad():
        return [value.clone() for value in tensors(model(**args))]


def difference(expected: list[Tensor], given: list[Tensor]) -> float:
    """The largest difference, relative to the largest value of its tensor; infinite where shapes or NaN differ."""
    if [value.shape for value in expected] != [value.shape for value in given]:
        return math.inf
    worst = 0.0
    for left, right in zip(expected, given, strict=True):
        if left.numel():
            left, right = left.double(), right.double()
            if not torch.equal(left.isfinite(), right.isfinite()):
                return math.inf
            left, right = (value.nan_to_num(0.0, 0.0, 0.0) for value in (left, right))
            worst = max(worst, float((left - right).abs().max()) / (float(left.abs().max()) or 1.0))
    return worst


def _child(name: str, real: bool, times: bool, dtype: str, queue: Any) -> None:
    torch.set_num_threads(2 if times else 1)
    queue.put(tried(name, real=real, times=times, dtype=dtype))


def _apart(name: str, *, real: bool, times: bool, dtype: str) -> Outcome:
    """`tried` in a process of its own, which may crash or hang."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "transformers"])
    queue = context.Queue()
    child = context.Process(target=_child, args=(name, real, times, dtype, queue))
    child.start()
    outcome = Outcome(name, f"no answer within {LIMIT} s", seconds=LIMIT)
    for second in range(LIMIT):
        try:
            outcome = queue.get(timeout=1)
            break
        except queues.Empty:
            if not child.is_alive():
                outcome = Outcome(name, f"the process ended with {child.exitcode}", seconds=second)
                break
    child.kill()
    child.join()
    return outcome


def sample(seed: int, library: str) -> list[str]:
    """All names of a library in the order of a seed."""
    names = [name for name in known() if name.startswith("timm:") == (library == "timm")]
    return random.Random(seed).sample(names, len(names))


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    apart = partial(_apart, real=options.real, times=options.times, dtype=options.dtype)
    if options.only:
        yield from map(apart, options.only)
        return
    for library in options.library:
        outcomes = (apart(name) for name in sample(options.seed, library)[options.skip :])
        yield from islice(
            (outcome for outcome in outcomes if not outcome.failure.startswith("not built")), options.count
        )


def _cells(outcome: Outcome, dtype: str) -> Iterator[object]:
    yield outcome.name
    yield outcome.failure.split(":")[0] or "yes"
    if outcome.failure:
        yield ""
    elif outcome.random:
        yield "random"
    elif outcome.error <= max(TOLERANCE, HALVES * outcome.rounding * (dtype != "f32")):
        yield "agree"
    else:
        yield f"**{outcome.error:.1e}**, eager's rounding {outcome.rounding:.1e}"
    yield from (outcome.verdict, outcome.actions, outcome.sites, f"{outcome.seconds:.0f}")
    if outcome.slowdown:
        yield f"{outcome.slowdown:.2f}"
    yield outcome.failure or "; ".join((*outcome.reasons[:2], *outcome.warnings[:2]))


def main() -> None:
    """Print the table, one row per architecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="architectures of each library that can be built")
    parser.add_argument("--skip", type=int, default=0, help="names of the sample to leave out")
    parser.add_argument("--library", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--real", action="store_true", help="real widths and inputs")
    parser.add_argument("--times", action="store_true", help="calls beside eager's, too")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="f32", help="of the model and its arguments")
    parser.add_argument("--only", nargs="+", help="names, instead of a sample")
    options = parser.parse_args()
    head = ["architecture", "compiles", "numbers", "verify", "actions", "sites", "s", "why"]
    if options.times:
        head.insert(-1, "time / eager's")
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for outcome in _outcomes(options):
        print(f"| {' | '.join(map(str, _cells(outcome, options.dtype)))} |", flush=True)


if __name__ == "__main__":
    main()
