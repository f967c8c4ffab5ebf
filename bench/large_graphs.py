"""How provenance grows with the graph: MLP-mixers of more and more layers, up to 10,000 actions.

    python bench/large_graphs.py [layers ...] [--json large.json]

Per size: one compilation without and one with provenance (after a small one of each; `--only-with` leaves out the
former), what observers and the relation of the graphs took of it, the size of the lineage, and `verify()`. What
provenance costs per action should not depend on the number of actions.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import common
import torch
from torch import Tensor, nn

import covan_mlir
from covan_mlir.support.typed_json import dumps

DEFAULT = (25, 50, 100, 200, 556)  # 18 actions a layer


class Mixer(nn.Module):
    """One layer of an MLP-mixer over `[batch, tokens, channels]`."""

    def __init__(self, tokens: int, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(2))
        self.over_tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.over_channels = nn.Sequential(nn.Linear(channels, channels), nn.GELU(), nn.Linear(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.tanh(self.over_tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2) * 0.5)
        y = self.over_channels(self.norms[1](x))
        gated: Tensor = torch.sigmoid(y) * y - torch.relu(y) * 0.1
        return x + gated


def measure(layers: int, both: bool) -> common.Row:
    """One row of the table."""
    model = nn.Sequential(*(Mixer(8, 16) for _ in range(layers))).eval()
    args = (torch.randn(1, 8, 16),)

    def compiled(provenance: bool) -> tuple[Any, float]:
        start = time.perf_counter()
        exe = covan_mlir.compile_module(model, args, provenance=provenance)
        return exe, time.perf_counter() - start

    without = compiled(False)[1] if both else None
    exe, with_it = compiled(True)
    actions = len(exe.lineage.actions)
    start = time.perf_counter()
    verdict = exe.verify()
    seconds = time.perf_counter() - start
    return {
        "layers": layers,
        "actions": actions,
        "sites": len(exe.lineage.sites),
        "without s": without,
        "with s": with_it,
        "ratio": with_it / without if without else None,
        "own ms/action": (exe.info["seconds"]["observing"] + exe.info["seconds"]["lineage"]) / actions * 1e3,
        "lineage KB/action": len(dumps(exe.lineage.to_json())) / actions / 1e3,
        "verify s": seconds,
        "verify ms/action": seconds / actions * 1e3,
        "verdict": verdict.outcome,
    }


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layers", nargs="*", type=int, default=DEFAULT)
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--only-with", action="store_true", help="compile with provenance only")
    options = parser.parse_args()
    measure(2, both=True)
    rows = [measure(layers, not options.only_with) for layers in options.layers]
    host = common.machine()
    print(common.report("Provenance of large graphs", host, list(rows[0]), rows))
    if options.json:
        common.write_json(options.json, "large_graphs", host, rows)


if __name__ == "__main__":
    main()
