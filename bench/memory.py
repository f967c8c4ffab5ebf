"""Memory of activations: bytes that a call allocates, of covan's programs and of stock torch-mlir + IREE.

    python bench/memory.py [names, small, real] [--json memory.json]

Both run on IREE's `local-sync` device (covan's with torch's threads as a team, which is that device), whose allocator
counts. What is told is the peak during a call of what lives on the device besides inputs and weights: activations and
results. It depends on the program alone, not on how busy the machine is. Each model gets a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
from stock import RawProgram, StockFailure, compile_stock
from workloads import GROUPS, WORKLOADS, build

import covan_mlir

MIB = 2.0**20


def allocated(device: Any, call: Callable[[], object]) -> float:
    """MiB that a call takes from a device's allocator, results included.

    A program takes all of its activations by one allocation, whose parts its values share in turns: so what a call
    takes in all is what lives at its peak, but for results.
    """
    call()
    device.allocator.trim()  # what it keeps for the next call
    before = device.allocator.statistics["device_bytes_allocated"]
    call()
    return float((device.allocator.statistics["device_bytes_allocated"] - before) / MIB)


def measure(name: str) -> common.Row:
    """Both on one model, in this process."""
    model, args, kwargs = build(name)
    row: common.Row = {"model": name, "fails": {}}
    options = covan_mlir.CompileOptions(device="local-sync")
    exe = covan_mlir.compile_module(model, args, kwargs, options=options)
    row["covan"] = allocated(exe.program.device, lambda: exe(*args, **kwargs))
    try:
        raw = RawProgram(compile_stock(model, args, kwargs).vmfb, "local-sync")
    except StockFailure as failure:
        row["fails"]["stock"] = str(failure)
        return row
    inputs = raw.arguments(args, kwargs)
    row["stock"] = allocated(raw.device, lambda: raw.run(inputs))
    row["covan/stock"] = row["covan"] / row["stock"]
    return row


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names of workloads (default: all)")
    parser.add_argument("--json", type=Path, help="also write results and machine to this file")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        with torch.no_grad():
            options.child.write_text(json.dumps(measure(options.models[0])))
        return
    rows = []
    for name in [n for model in options.models or WORKLOADS for n in GROUPS.get(model, (model,))]:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(common.in_child(__file__, "model", name, []))
    columns = ["model", "stock", "covan", "covan/stock"]
    print(common.table("MiB that a call allocates: activations and results", columns, rows))
    for row in rows:
        for contender, reason in row["fails"].items():
            print(f"{row['model']}: {contender} fails: {reason}")
    if options.json:
        common.write_json(options.json, "memory", common.machine(), rows)


if __name__ == "__main__":
    main()
