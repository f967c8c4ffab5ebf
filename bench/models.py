"""Run and compile times side by side: eager, torch.compile, ONNX Runtime, OpenVINO, stock torch-mlir + IREE, covan.

    python bench/models.py [names, small, real] [--contenders covan onnxruntime] [--rounds 30] [--seconds 4]
        [--json models.json]
    python bench/models.py --fusion       what fused reductions bring: transformers in eager, covan, covan without them

Each model gets a process of its own, in which the contenders take turns. A contender that fails is reported
with its reason, and so is one whose result is not eager's. Errors are those to eager's f64 results. For the workload
`tiny` there is also the cost of a call: `exe(x)` against a bare `VmContext.invoke` of the same program.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import common
import numpy as np
import peers
import torch
from workloads import GROUPS, WORKLOADS, build

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


def measure(name: str, contenders: Sequence[str], rounds: int, seconds: float, dtype: torch.dtype) -> common.Row:
    """All contenders on one model, in this process."""
    workload = peers.cast(build(name), dtype)
    lineup = peers.line_up(contenders, workload)
    times = common.interleave(
        lineup.calls, rounds=rounds, seconds=seconds, warmup=3, settle=common.SETTLE, pause=common.REST
    )
    row: common.Row = {
        "model": name,
        "compile_s": lineup.compile_s,
        "errors": lineup.errors,
        "fails": lineup.fails,
        "best": peers.best(times),
        "ratio": peers.gain(times),
        "error": lineup.error_over_eager(peers.COVAN),
        "samples_ms": {contender: [1e3 * s for s in timing.samples] for contender, timing in times.items()},
    }
    if name == "tiny" and peers.COVAN in lineup.calls:
        row["overhead_us"] = call_overhead(workload)
    for contender, timing in times.items():
        row[contender] = timing.median * 1e3
        if peers.COVAN in times and contender != peers.COVAN:
            row[f"{contender}/covan"] = timing.over(times[peers.COVAN])
    return row


def call_overhead(workload: peers.Model, rounds: int = 5000) -> dict[str, float]:
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


def main() -> None:
    assert __doc__
    parser = common.arguments(__doc__.splitlines()[0], rounds=30, seconds=4.0)
    every = (*peers.CONTENDERS, peers.UNFUSED)
    parser.add_argument("--contenders", nargs="+", default=list(peers.CONTENDERS), choices=every)
    parser.add_argument("--dtype", default="f32", choices=peers.DTYPES, help="of weights, inputs and results")
    parser.add_argument("--fusion", action="store_true", help="eager, covan and unfused, on the transformers")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        with torch.no_grad():
            dtype = peers.DTYPES[options.dtype]
            row = measure(options.models[0], options.contenders, options.rounds, options.seconds, dtype)
        options.child.write_text(json.dumps(row))
        return

    if options.fusion:
        options.contenders = ["eager", peers.UNFUSED, peers.COVAN]
        options.models = options.models or TRANSFORMERS
    shown = [c for c in every if c in options.contenders]
    flags = ["--rounds", str(options.rounds), "--seconds", str(options.seconds), "--dtype", options.dtype]
    flags += ["--contenders", *options.contenders]
    rows = []
    for name in [n for model in options.models or WORKLOADS for n in GROUPS.get(model, (model,))]:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(common.in_child(__file__, "model", name, flags))
    host = common.machine()
    ratios = [f"{c}/covan" for c in shown if c != peers.COVAN]
    print(
        common.report(
            "Milliseconds per call (medians), times over covan's and the best peer's, covan's error over eager's",
            host,
            ["model", *shown, *ratios, "best", "ratio", "error"],
            rows,
            width=180,
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
    print(peers.summary({row["model"]: row.get("ratio") for row in rows}))
    if options.json:
        common.write_json(options.json, "models", host, rows)


if __name__ == "__main__":
    main()
