"""Models and what `torch.onnx.export` makes of them: kernels, call times and lineage of the two programs.

    python bench/onnx_exports.py [names, small, real] [--rounds 9] [--seconds 2] [--json onnx_exports.json]

Each model is compiled twice, as PyTorch's and as a file of ONNX, and the two are called in turns. Kernels are the same
if one template wrote them by one schedule for the same sizes; how many of the export's have such a partner is told.
Nodes are *placed* if a kernel performs them, reads what they give or indexes by them, or the fate says that they were
computed ahead of time, or that nothing needs them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import common
import peers
import torch
from workloads import GROUPS, build

import covan_mlir
from covan_mlir.executable import Executable

COLUMNS = (
    *("model", "PyTorch, ms", "ONNX, ms", "ONNX / PyTorch", "sites", "of ONNX", "same kernels"),
    *("nodes placed", "error", "verify"),
)


def kernels(exe: Executable) -> Counter[tuple[Any, ...]]:
    """Of the sites of a call: template, schedule and sizes; of IREE's own kernels the shapes in their names."""
    by_name = {record.kernel: record for record in exe.lineage.fusions if record.kernel}
    counts: Counter[tuple[Any, ...]] = Counter()
    for site in exe.lineage.sites:
        if site.phase == "init" or site.kind == "transfer":
            continue
        record = by_name.get(site.kernel)
        if record is None:
            counts["IREE", site.kernel.partition("dispatch_")[2].partition("_")[2]] += 1
        else:
            sizes = sorted(size for _, size in record.source["axes"])
            counts[record.template, json.dumps(record.schedule, sort_keys=True), str(sizes)] += 1
    return counts


def placed(exe: Executable) -> str:
    """How many of the source's nodes have a place, of all."""
    fates = exe.lineage.fates
    count = sum(bool(fate.sites) or fate.kind in ("folded", "dead") for fate in fates)
    return f"{count} of {len(exe.lineage.actions)}"


def measure(name: str, rounds: int, seconds: float) -> common.Row:
    """One model, both ways, in this process."""
    workload = build(name)
    model, args, kwargs = workload
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        peers.onnx_program(torch.export.export(model, args, kwargs, strict=False)).save(path)
        theirs = covan_mlir.compile_module(path)
    own = covan_mlir.compile_module(model, args, kwargs)
    tensors = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    times = common.interleave(
        {"own": lambda: own(*args, **kwargs), "onnx": lambda: theirs(*tensors)},
        rounds=rounds,
        seconds=seconds,
        warmup=3,
        settle=common.SETTLE,
        pause=common.REST,
    )
    before, after = kernels(own), kernels(theirs)
    values = (
        name,
        times["own"].median * 1e3,
        times["onnx"].median * 1e3,
        times["onnx"].over(times["own"]),
        before.total(),
        after.total(),
        f"{(before & after).total()} of {after.total()}",
        placed(theirs),
        peers.relative_error(theirs(*tensors), peers.in_double(workload)),
        theirs.verify().outcome,
    )
    other = [
        f"{side}: {count} {' '.join(kernel)}"
        for side, alone in (("PyTorch", before - after), ("ONNX", after - before))
        for kernel, count in alone.items()
    ]
    return {**dict(zip(COLUMNS, values, strict=True)), "other kernels": other}


def main() -> None:
    """Measure, and print."""
    parser = common.arguments(str(__doc__), 9, 2.0)
    parser.add_argument("--child", type=Path, help="where the row of one model is written")
    options = parser.parse_args()
    if options.child:
        with torch.no_grad():
            row = measure(options.models[0], options.rounds, options.seconds)
        options.child.write_text(json.dumps(row))
        return
    rows = []
    flags = ["--rounds", str(options.rounds), "--seconds", str(options.seconds)]
    for name in [n for model in options.models or ("real",) for n in GROUPS.get(model, (model,))]:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(common.in_child(__file__, "model", name, flags))
    host = common.machine()
    print(common.report("Models of PyTorch, and their exports to ONNX", host, COLUMNS, rows, width=180))
    for row in rows:
        for line in (*row.get("fails", {}).values(), *row.get("other kernels", ())):
            print(f"{row['model']}: {line}")
    if options.json:
        common.write_json(options.json, "onnx_exports", host, rows)


if __name__ == "__main__":
    main()
