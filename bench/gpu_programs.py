"""Whole programs for CUDA: written where there is no GPU, run where there is one, beside eager and ``torch.compile``.

On a machine with the project and the extra ``cuda`` (no GPU needed):

    python bench/gpu_programs.py --write programs [--architecture sm_90a+tf32] [--only NAME ...]

On the machine with the GPU (torch, transformers, iree-base-runtime and this project without its other needs):

    python bench/gpu_programs.py --run programs --json gpu_programs.json [--minutes 4] [--numbers] [--tf32]

Each program is written twice: with this project's kernels, and with IREE's own code alone. All weights are arguments,
drawn where it runs. Numbers are compared with eager in float64 (float32 for halves), and may be as far from it as four
times eager in the program's type. Times are of a call whose arguments lie on the device, until it has ended; medians.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from gpu_zoo import Program, Stateless, arguments, programs, weights_of
from torch import Tensor, nn

SLACK = 4.0
"""How many times eager's own distance from the exact result a program may have."""


def _file(folder: Path, name: str, own: bool) -> Path:
    stem = "".join(c if c.isalnum() else "_" for c in name)
    return folder / f"{stem}.{'covan' if own else 'iree'}.covan"


def write(folder: Path, architecture: str, only: Sequence[str]) -> None:
    """Compiles all programs into a folder; what does not compile is told and left out."""
    import covan_mlir

    folder.mkdir(parents=True, exist_ok=True)
    for name, program in programs().items():
        if only and not any(part in name for part in only):
            continue
        for own in (True, False):
            start = time.monotonic()
            try:
                model = program.build().eval()
                weights, inputs = weights_of(model, program.dtype, "cpu"), arguments(program, "cpu")
                exe = covan_mlir.compile_module(
                    Stateless(model),
                    (weights, *inputs),
                    target=f"cuda:{architecture}",
                    options=covan_mlir.CompileOptions(fuse_reductions=own),
                )
                exe.save(_file(folder, name, own))
                print(f"{name}: {'covan' if own else 'IREE'}, {time.monotonic() - start:.1f} s", flush=True)
            except Exception as error:  # of which user's sort it is, is the finding
                print(f"{name}: NOT COMPILED: {str(error)[:400]!r}", flush=True)


def _lift(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def _leaves(value: Any) -> list[Tensor]:
    import torch.utils._pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def _distance(got: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Of all results, relative to the norm of the exact ones; integers differ or not."""
    worst = 0.0
    for a, b in zip(got, exact, strict=True):
        if a.shape != b.shape:
            return math.inf
        if not b.is_floating_point():
            worst = max(worst, 0.0 if bool((a.to(b.device) == b).all()) else math.inf)
            continue
        difference = (a.to(b.device, torch.float64) - b.double()).norm().item()
        scale = b.double().norm().item() or 1.0
        worst = max(worst, difference / scale if math.isfinite(difference) else math.inf)
    return worst


def _timed(call: Callable[[], object], seconds: float = 0.25) -> float:
    """Median of the milliseconds of a call until the device has done it."""
    for _ in range(3):
        call()
    samples: list[float] = []
    end = time.monotonic() + seconds
    while len(samples) < 7 or (time.monotonic() < end and len(samples) < 200):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
    return median(samples) * 1e3


def _resident(exe: Any, values: Sequence[Any]) -> Callable[[], object]:
    """A call whose arguments lie on the device, and whose results stay there."""
    passed = exe.checked(tuple(values), {}).passed
    return lambda: exe._program.invoke([*passed, *exe._bound], len(exe.signature.results))


def run(folder: Path, chosen: Mapping[str, Program], out: Path, minutes: float, numbers: bool) -> None:
    """Numbers of programs, then times, until the minutes are over; writes as it goes."""
    import covan_mlir

    torch.backends.mha.set_fastpath_enabled(False)  # it takes the other gelu
    stop = time.monotonic() + 60 * minutes
    rows: dict[str, dict[str, Any]] = {}
    report = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__, "programs": rows}
    kept: dict[str, Any] = {}
    loaded: dict[tuple[str, str], Any] = {}
    for name, program in chosen.items():
        row = rows[name] = {}
        wide = torch.float64 if program.dtype in (torch.float32, torch.float64) else torch.float32
        try:
            model = program.build().eval()
            weights, inputs = weights_of(model, program.dtype, "cuda"), arguments(program, "cuda")
            stateless = Stateless(model)
            with torch.no_grad():
                lifted = {k: _lift(v, wide) for k, v in weights.items()}
                exact = _leaves(stateless(lifted, *(_lift(x, wide) for x in inputs)))
                eager = _distance(_leaves(stateless(weights, *inputs)), exact)
        except Exception as error:  # eager fails: nothing to compare with
            row["eager"] = repr(error)[:300]
            print(f"{name}: EAGER {row['eager']}", flush=True)
            continue
        row["eager_distance"] = eager
        for own in (True, False):
            key, path = "covan" if own else "iree", _file(folder, name, own)
            if not path.exists():
                row[key] = {"error": "not compiled"}
                continue
            try:
                exe = covan_mlir.load(path)
                got = _leaves(exe({k: v.cpu() for k, v in weights.items()}, *(x.cpu() for x in inputs)))
                distance = _distance(got, exact)
                least = 1e-13 if program.dtype == torch.float64 else 2e-6 if program.dtype == torch.float32 else 2e-3
                right = distance <= max(SLACK * eager, least)
                row[key] = {"distance": distance, "right": right}
                if right and program.timed:
                    kept[name] = (program, weights, inputs, model)
                    loaded[name, key] = exe
            except Exception as error:  # whatever it raises is the finding
                row[key] = {"error": repr(error)[:600], "right": False}
                traceback.print_exc(limit=-2, file=sys.stderr)
        verdict = {k: v.get("right", v.get("error")) for k, v in row.items() if isinstance(v, dict)}
        print(f"{name}: {verdict} {row}"[:400], flush=True)
        out.write_text(json.dumps(report, indent=1))
    if not numbers:
        _speed(rows, kept, loaded, stop, lambda: out.write_text(json.dumps(report, indent=1)))
    out.write_text(json.dumps(report, indent=1))


def _speed(
    rows: dict[str, dict[str, Any]],
    kept: dict[str, tuple[Program, dict[str, Tensor], list[Tensor], nn.Module]],
    loaded: dict[tuple[str, str], Any],
    stop: float,
    save: Callable[[], object],
) -> None:
    for name, (program, weights, inputs, model) in kept.items():
        row = rows[name]
        if time.monotonic() > stop:
            row["skipped"] = "out of time"
            continue
        stateless = Stateless(model)
        contenders: dict[str, Callable[[], object]] = {
            key: _resident(loaded[name, key], [{k: v.cpu() for k, v in weights.items()}, *(x.cpu() for x in inputs)])
            for key in ("covan", "iree")
            if (name, key) in loaded
        }
        contenders["eager"] = partial(stateless, weights, *inputs)
        contenders["torch.compile"] = _compiled(model, program.dtype, inputs)
        with torch.no_grad():
            for key, call in contenders.items():
                try:
                    row[f"{key}_ms"] = _timed(call)
                except Exception as error:  # of a contender
                    row[f"{key}_failed"] = repr(error)[:300]
        print(name, {k: round(v, 4) for k, v in row.items() if k.endswith("_ms")}, flush=True)
        save()


def _compiled(model: nn.Module, dtype: torch.dtype, inputs: Sequence[Tensor]) -> Callable[[], object]:
    torch._dynamo.reset()
    return partial(torch.compile(model.to("cuda", dtype), dynamic=False), *inputs)


def warm(chosen: Mapping[str, Program]) -> None:
    """Has ``torch.compile`` compile programs, for its cache."""
    with torch.no_grad():
        for program in chosen.values():
            _compiled(program.build().eval(), program.dtype, arguments(program, "cuda"))()


def main() -> None:
    """See the module."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="compile all programs into this folder")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="run the programs of a folder")
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--only", nargs="*", default=(), help="programs whose name has one of these in it")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--part", default="0/1", metavar="I/N", help="with --run: of N processes at once, the I-th")
    parser.add_argument("--warm", action="store_true", help="with --run: only fill torch's caches")
    parser.add_argument("--tf32", action="store_true", help="with --run: torch may round products of f32 to TF32")
    parser.add_argument("--numbers", action="store_true", help="numbers of all programs, and no times")
    parser.add_argument("--json", type=Path, default=Path("gpu_programs.json"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    only: Sequence[str] = options.only
    if options.write:
        write(options.write, options.architecture, only)
    if options.run:
        if not torch.cuda.is_available():
            raise SystemExit("no CUDA device here: --write is what can be done without one")
        if options.tf32:
            torch.set_float32_matmul_precision("high")
        part, parts = map(int, options.part.split("/"))
        chosen = {
            name: program
            for name, program in programs().items()
            if (options.numbers or program.timed) and (not only or any(each in name for each in only))
        }
        chosen = dict(list(chosen.items())[part::parts])
        if options.warm:
            warm(chosen)
        else:
            run(options.run, chosen, options.json, options.minutes, options.numbers)


if __name__ == "__main__":
    main()
