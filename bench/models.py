"""Run and compile times side by side: eager, torch.compile, stock torch-mlir + IREE, covan.

    python bench/models.py [names] [--rounds 30] [--seconds 4] [--json models.json]
    python bench/models.py --fusion       what fused reductions bring: transformers in eager, covan, covan without them

Each model gets a process of its own, in which the contenders take turns. A contender that fails is reported
with its reason, and so is one whose result is not eager's. For the workload `tiny` there is also the cost of
a call: `exe(x)` against a bare `VmContext.invoke` of the same program.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from workloads import WORKLOADS, Model, build

CONTENDERS = ("eager", "torch.compile", "stock", "covan")
UNFUSED = "unfused"
"""covan without fused reductions: a contender where it is asked for."""
TRANSFORMERS = (
    "blocks",
    "gpt2",
    "gpt2_no_cache",
    "llama",
    "bert",
    "distilbert",
    "t5_encoder",
    "vit",
    "whisper_encoder",
)
RTOL = 1e-4
"""Of the largest element: f32 sums in another order stay below, a lost bias or a wrong constant does not."""

Call = Callable[[], Any]


def prepare(contender: str, workload: Model) -> Call:
    """Compile a model and give the call to time. The first call belongs to the compilation."""
    model, args, kwargs = workload
    if contender == "eager":
        return lambda: model(*args, **kwargs)
    if contender == "torch.compile":
        compiled = torch.compile(model)
        compiled(*args, **kwargs)
        return lambda: compiled(*args, **kwargs)
    if contender == "stock":
        from stock import compile_stock

        program = compile_stock(model, args, kwargs)
        return lambda: program(*args, **kwargs)
    import covan_mlir

    options = covan_mlir.CompileOptions(fuse_reductions=contender != UNFUSED)
    exe = covan_mlir.compile_module(model, args, kwargs, options=options)
    return lambda: exe(*args, **kwargs)


def relative_error(actual: Any, expected: Any) -> float:
    """Largest difference of corresponding leaves, over the largest element of the expected one."""
    worst = 0.0
    for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        if isinstance(e, Tensor) and e.numel():
            scale = float(e.abs().max()) or 1.0
            worst = max(worst, float((a.double() - e.double()).abs().max()) / scale)
    return worst


def measure(name: str, contenders: list[str], rounds: int, seconds: float) -> common.Row:
    """All contenders on one model, in this process."""
    workload = build(name)
    row: common.Row = {"model": name, "compile_s": {}, "samples_ms": {}, "fails": {}}
    calls: dict[str, Call] = {}
    with torch.no_grad():
        expected = prepare("eager", workload)()
        for contender in contenders:
            try:
                call, seconds_to_compile = common.once(lambda: prepare(contender, workload))  # noqa: B023  # called at once
                error = relative_error(call(), expected)
            except Exception as failure:  # a contender may fail in any way: that is a result
                row["fails"][contender] = common.short(failure)
                continue
            if not error <= RTOL:  # also when it is NaN
                row["fails"][contender] = f"wrong result, off by {error:.2g} of the largest element"
                continue
            calls[contender] = call
            row["compile_s"][contender] = seconds_to_compile
        times = common.interleave(calls, rounds=rounds, seconds=seconds, warmup=3)
        if name == "tiny" and "covan" in calls:
            row["overhead_us"] = call_overhead(workload)
    for contender, timing in times.items():
        row[contender] = timing.median * 1e3
        row["samples_ms"][contender] = [1e3 * s for s in timing.samples]
    if "covan" in times:
        for other in ("eager", "torch.compile", "stock", UNFUSED):
            if other in times:
                row[f"{other}/covan"] = times[other].over(times["covan"])
    return row


def call_overhead(workload: Model, rounds: int = 5000) -> dict[str, float]:
    """Microseconds of `exe(*args)`, of a bare invocation of the same program on the same device, and between them."""
    from stock import RawProgram

    import covan_mlir
    from covan_mlir.artifacts import artifact
    from covan_mlir.artifacts.signature import PARAMETER_SCOPE
    from covan_mlir.runtime import devices

    model, args, kwargs = workload
    exe = covan_mlir.compile_module(model, args, kwargs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.covan"
        exe.save(path)
        saved = artifact.read(path)
    weights = {name: np.frombuffer(blob.data, np.uint8) for name, blob in saved.weights.items()}
    raw = RawProgram(
        saved.variant().program,
        entry=saved.signature.function,
        scope=PARAMETER_SCOPE,
        weights=weights,
        shared=(devices.instance(), devices.device("local-task")),
    )
    inputs = raw.arguments(args, kwargs)
    times = common.interleave(
        {"exe": lambda: exe(*args, **kwargs), "raw": lambda: raw.run(inputs)}, rounds=rounds, warmup=50
    )
    exe_us, raw_us = (times[k].undisturbed * 1e6 for k in ("exe", "raw"))
    return {"exe": exe_us, "raw": raw_us, "overhead": exe_us - raw_us}


def in_child(name: str, options: argparse.Namespace) -> common.Row:
    """Measure in a new process: nothing meets what another model left, and a crash is only a row."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        command = [sys.executable, __file__, name, "--child", str(out)]
        command += ["--rounds", str(options.rounds), "--seconds", str(options.seconds)]
        command += ["--only", *options.only]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and out.exists():
            row: common.Row = json.loads(out.read_text())
            return row
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"model": name, "fails": {"process": f"exit {done.returncode}: {last}"}}


def main() -> None:
    assert __doc__
    parser = common.arguments(__doc__.splitlines()[0], rounds=30, seconds=4.0)
    every = (*CONTENDERS, UNFUSED)
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS), choices=every, help="contenders")
    parser.add_argument("--fusion", action="store_true", help="eager, covan and unfused, on the transformers")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        row = measure(options.models[0], options.only, options.rounds, options.seconds)
        options.child.write_text(json.dumps(row))
        return

    if options.fusion:
        options.only = ["eager", UNFUSED, "covan"]
        options.models = options.models or TRANSFORMERS
    shown = [c for c in every if c in options.only]
    rows = []
    for name in options.models or WORKLOADS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(in_child(name, options))
    host = common.machine()
    ratios = [f"{c}/covan" for c in shown if c != "covan"]
    print(
        common.report(
            "Milliseconds per call (medians) and times over covan's",
            host,
            ["model", *shown, *ratios],
            rows,
        )
    )
    compile_rows = [{"model": row["model"], **row.get("compile_s", {})} for row in rows]
    print(
        common.table(
            "Seconds to compile, first call included", ["model", *(c for c in shown if c != "eager")], compile_rows
        )
    )
    for row in rows:
        for contender, reason in row["fails"].items():
            print(f"{row['model']}: {contender} fails: {reason}")
        if cost := row.get("overhead_us"):
            print(
                f"{row['model']}: a call takes {cost['exe']:.1f} us, a bare invocation {cost['raw']:.1f} us: "
                f"calling costs {cost['overhead']:.1f} us"
            )
    if options.json:
        common.write_json(options.json, "models", host, rows)


if __name__ == "__main__":
    main()
