"""What provenance costs: whole compilations and calls, with it over without it.

    python bench/compile_overhead.py [names] [--steps] [--rounds 5] [--seconds 3] [--json overhead.json]

The time is that of `compile_module` from the module to the callable, export included, after one untimed
compilation of each kind. With and without take turns; their ratio is the median over pairs of neighbours.
``fastest`` is the ratio of their fastest samples, which other load on the machine disturbs least. ``passes`` is
provenance with ``trace="passes"``, measured after them. Calls must not differ at all: the kernels are the same.
``--steps``: of models that torch's exporter has quantised.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import common
import torch
from pt2e import exported_steps
from quantised import Whole
from workloads import WORKLOADS, build

import covan_mlir

DEFAULT = ("mobilenet", "blocks", "gpt2", "bert", "vit", "resnet", "t5_encoder")


def measure(name: str, rounds: int, seconds: float, steps: bool) -> common.Row:
    """Compile and call times of one model in all ways."""
    model, args, kwargs = build(name)
    if steps:
        model, kwargs = exported_steps(Whole(model, kwargs).eval(), args), {}

    def compiled(provenance: bool, trace: Literal["phases", "passes"] = "phases") -> Any:
        options = covan_mlir.CompileOptions(trace=trace)
        return covan_mlir.compile_module(model, args, kwargs, provenance=provenance, options=options)

    with_it, without = compiled(True), compiled(False)
    compiles = common.interleave(
        {"with": lambda: compiled(True), "without": lambda: compiled(False)},
        rounds=rounds,
        warmup=0,  # the compilations above
        collect=True,
    )
    # By itself: the compiler that prints passes is a process of its own, and taking turns would start it every time.
    compiles |= common.interleave({"passes": lambda: compiled(True, "passes")}, rounds=rounds, warmup=1, collect=True)
    with torch.no_grad():
        calls = common.interleave(
            {"with": lambda: with_it(*args, **kwargs), "without": lambda: without(*args, **kwargs)},
            rounds=30,
            seconds=seconds,
            warmup=3,
        )
    return {
        "model": name,
        "actions": len(with_it.lineage.actions),
        "sites": len(with_it.lineage.sites),
        "with s": compiles["with"].median,
        "without s": compiles["without"].median,
        "ratio": compiles["with"].over(compiles["without"]),
        "fastest ratio": min(compiles["with"].samples) / min(compiles["without"].samples),
        "passes s": compiles["passes"].median,
        "passes ratio": compiles["passes"].median / compiles["without"].median,
        "spread": f"±{100 * compiles['without'].spread:.1f} %",
        "call ms with": calls["with"].median * 1e3,
        "without": calls["without"].median * 1e3,
        "call ratio": calls["with"].over(calls["without"]),
        "samples_s": {k: list(t.samples) for k, t in compiles.items()},
    }


def main() -> None:
    assert __doc__
    parser = common.arguments(__doc__.splitlines()[0], rounds=5, seconds=3.0)
    parser.add_argument("--steps", action="store_true", help="models as torch's exporter quantises them")
    options = parser.parse_args()
    rows = []
    for name in options.models or DEFAULT:
        if name not in WORKLOADS:
            parser.error(f"no workload {name!r}; there are {', '.join(WORKLOADS)}")
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(measure(name, options.rounds, options.seconds, options.steps))
    host = common.machine()
    columns = [c for c in rows[0] if c != "samples_s"]
    print(common.report("Compile and call times with provenance over without", host, columns, rows))
    if options.json:
        common.write_json(options.json, "compile_overhead", host, rows)


if __name__ == "__main__":
    main()
