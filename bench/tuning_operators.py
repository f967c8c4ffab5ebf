"""Operators that no template is made for, tuned, beside their untuned kernels, IREE's own code and the peers.

    python bench/tuning_operators.py [conv3d norm ...] [--minutes 1] [--rounds 15] [--seconds 2] [--json FILE]

Those of Zheng et al. 2020 ("Ansor"), section 7.1, that are not plain convolutions and products, and contractions of
five axes; f32, batch 1. Each is tuned from empty records, then all contenders take turns in the same process. Tuning
measures and searches with all cores that the process may use, and so do the peers.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import common
import peers
import torch
from ceilings import Ceilings
from torch import Tensor, nn
from torch.nn import functional

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.machine.host import host

TUNED = "tuned"
COPIED = 8 << 20
"""Bytes that a copy reads."""


class CapsuleConv(nn.Module):
    """A convolution whose elements are matrices: (N, C, H, W, 4, 4) with weights (3, 3, C, F, 4, 4)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, inputs, outputs, 4, 4) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unfold(2, 3, 1).unfold(3, 3, 1)  # (N, C, H, W, 4, 4, 3, 3)
        return torch.einsum("nchwikrs,rscfkj->nfhwij", windows, self.weight)


class Norm(nn.Module):
    """The 2-norm of a matrix's elements."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * x).sum((1, 2)).sqrt()


class Scores(nn.Module):
    """A batched product with a transposed operand, and the softmax of its rows."""

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.softmax(q @ k.mT, -1)


class Contraction(nn.Module):
    """Two tensors of five axes, three of which are contracted, in another order in each."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("abcde,ecxdy->abxy", x, y)


class Distances(nn.Module):
    """L1 distances of rows."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x[:, None, :] - y[None, :, :]).abs().sum(-1)


class Dilated(nn.Module):
    """A grouped convolution along one axis whose taps lie apart."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(64, 64, 3, padding=4, dilation=4, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.conv(x))


def operators() -> dict[str, peers.Model]:
    """The operators, by name."""
    torch.manual_seed(0)
    return {
        "conv3d": (nn.Conv3d(16, 32, 3, padding=1), (torch.randn(1, 16, 8, 28, 28),), {}),
        "conv3d_strided": (nn.Conv3d(32, 64, 3, stride=2, padding=1), (torch.randn(1, 32, 8, 28, 28),), {}),
        "dilated": (nn.Conv2d(64, 64, 3, padding=2, dilation=2), (torch.randn(1, 64, 28, 28),), {}),
        "dilated_1d_grouped": (Dilated(), (torch.randn(1, 64, 2048),), {}),
        "transposed": (nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1), (torch.randn(1, 128, 16, 16),), {}),
        "transposed_3d": (nn.ConvTranspose3d(32, 16, 4, stride=2, padding=1), (torch.randn(1, 32, 4, 14, 14),), {}),
        "capsule": (CapsuleConv(8, 8), (torch.randn(1, 8, 16, 16, 4, 4),), {}),
        "norm": (Norm(), (torch.randn(1, 512, 512),), {}),
        "scores": (Scores(), (torch.randn(12, 128, 64), torch.randn(12, 128, 64)), {}),
        "contraction": (Contraction(), (torch.randn(12, 8, 12, 10, 16), torch.randn(16, 12, 14, 10, 16)), {}),
        "distances": (Distances(), (torch.randn(192, 64), torch.randn(256, 64)), {}),
    }


def measure(name: str, minutes: float, rounds: int, seconds: float) -> common.Row:
    """An operator: tuned, and beside all others."""
    model, args, kwargs = operators()[name]
    model = model.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        records = Path(folder) / "records.sqlite"
        begin = time.perf_counter()
        tuning = covan_mlir.tune(model, args, kwargs, minutes=minutes, records=records)
        took = time.perf_counter() - begin
        lineup = peers.line_up(peers.CONTENDERS, (model, args, kwargs))
        exe = covan_mlir.compile_module(model, args, kwargs, options=CompileOptions(records=records))
        expected = peers.in_double((model, args, kwargs))
        error = peers.relative_error(exe(*args, **kwargs), expected)
        if not error <= peers.WRONG[torch.float32]:
            raise SystemExit(f"{name}: what was tuned is wrong, off by {error:.2g} of the largest element")
        calls = {**lineup.calls, TUNED: lambda: exe(*args, **kwargs)}
        ceilings = Ceilings(host(), copied=COPIED)
        beside = {"fma": lambda: ceilings.run_fma(), "copy": lambda: ceilings.run_copy()}
        # Of one thread, what others take of its core is not counted.
        clock = time.process_time if common.cores() == 1 else time.perf_counter
        how: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "warmup": 2, "clock": clock}
        how |= {"settle": common.SETTLE, "pause": common.REST}
        stock = calls.pop("stock", None)  # which takes as long as all others together
        times = common.interleave({**calls, **beside}, **how)
        slow = common.interleave({"stock": stock, TUNED: calls[TUNED]}, **how) if stock is not None else {}
    flops, bandwidth = ceilings.rates(min(times["fma"].samples), min(times["copy"].samples))
    peer = peers.best(times)
    row: common.Row = {
        "operator": name,
        "kernels": len(tuning.rows),
        "timed": sum(each.tried for each in tuning.rows),
        "tuning_s": took,
        "schedule": "; ".join(each.chosen for each in tuning.rows if each.chosen),
        "left": dict(tuning.left),
        "fails": lineup.fails,
        "peak_gflops": flops / 1e9,
        "copy_gb_per_s": bandwidth / 1e9,
        **{each: timing.median * 1e3 for each, timing in times.items() if each in calls},
    }
    row["stock"] = slow["stock"].median * 1e3 if slow else None
    row["stock / tuned"] = slow["stock"].over(slow[TUNED]) if slow else None
    row["untuned / tuned"] = times[peers.COVAN].over(times[TUNED]) if peers.COVAN in times else None
    row["best"], row["best / tuned"] = peer, times[peer].over(times[TUNED]) if peer else None
    return row


def main() -> None:
    assert __doc__
    parser = common.arguments(__doc__.splitlines()[0], rounds=15, seconds=2.0, what="operators", chosen="their names")
    parser.add_argument("--minutes", type=float, default=1.0, help="of tuning, for each")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    names = options.operators or list(operators())
    columns = ["operator", "kernels", "timed", *peers.CONTENDERS, TUNED, "untuned / tuned", "stock / tuned"]
    columns += ["best", "best / tuned"]
    machine, rows = common.machine(), []
    for name in names:
        row = measure(name, options.minutes, options.rounds, options.seconds)
        print("  ".join(f"{column} {common.cell(row.get(column))}" for column in columns), file=sys.stderr, flush=True)
        rows.append(row)
        if options.json:
            common.write_json(options.json, "tuning_operators", machine, rows)
    print(common.report("Milliseconds per call, medians, and ratios of times", machine, columns, rows, width=180))
    for row in rows:
        for contender, reason in row["fails"].items():
            print(f"{row['operator']}: {contender} fails: {reason}")
    for column in ("untuned / tuned", "stock / tuned", "best / tuned"):
        known = {row["operator"]: row[column] for row in rows if row[column] is not None}
        if known:
            least = min(known, key=known.__getitem__)
            mean = common.cell(geometric_mean(list(known.values())))
            print(f"{column}, over {len(known)}: geometric mean {mean}, least {common.cell(known[least])} ({least})")


if __name__ == "__main__":
    main()
