"""Versions of a program for some sizes: beside the general program, and one that is compiled for exactly that size.

    python bench/sizes.py [mlp, attention] [--sizes 1,2,8,17,32] [--rounds 40] [--json sizes.json]

Samples of the three are taken in turn, so that what else runs on the machine slows all of them down alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import common
import torch
from torch import nn
from torch.export import Dim

import covan_mlir
from covan_mlir import CompileOptions, Executable


class Attention(nn.Module):
    """One block of attention, as a decoder has them: a length of 1 is a step, others are prefill."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [length, width] -> the same shape."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(1, 2, 0, 3)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        out: torch.Tensor = self.out(y.transpose(0, 1).flatten(1))
        return out


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512), nn.Softmax(-1)), 512),
    "attention": (lambda: Attention(512, 8), 512),
}

COLUMNS = (
    *("model", "rows", "runs", "versions us", "general us", "exact us"),
    *("general/versions", "exact/versions"),
)


def compiled(model: nn.Module, width: int, specialise: dict[str, list[int]] | bool) -> Executable:
    """A program of an open number of rows."""
    return covan_mlir.compile_module(
        model,
        (torch.randn(4, width),),
        dynamic_shapes=({0: Dim("rows", max=2048)},),
        options=CompileOptions(specialise=specialise),
    )


def measured(name: str, sizes: list[int], options: argparse.Namespace) -> list[common.Row]:
    """Times of one model at some sizes."""
    make, width = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    versions = compiled(model, width, {"rows": sizes})
    general = compiled(model, width, False)
    rows: list[common.Row] = []
    for size in sizes:
        x = torch.randn(size, width)
        exact = covan_mlir.compile_module(model, (x,))
        times = common.interleave(
            {"versions": partial(versions, x), "general": partial(general, x), "exact": partial(exact, x)},
            rounds=options.rounds,
            seconds=options.seconds,
            settle=0.002,
        )
        own = times["versions"]
        rows.append(
            {
                "model": name,
                "rows": size,
                "runs": ", ".join(map(str, versions.version_for(x).ranges)) or "general",
                **{f"{each} us": timing.undisturbed * 1e6 for each, timing in times.items()},
                "general/versions": times["general"].over(own),
                "exact/versions": times["exact"].over(own),
                "samples": {each: timing.samples for each, timing in times.items()},
            }
        )
    return rows


def main() -> None:
    """Print times, and how the versions stand to the other two."""
    assert __doc__
    parser = common.arguments(__doc__.splitlines()[0], rounds=40, seconds=2.0)
    parser.add_argument("--sizes", default="1,8,32,128", help="numbers of rows")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    names = options.models or list(MODELS)
    rows = [row for name in names for row in measured(name, sizes, options)]
    print(common.report("versions for some sizes", common.machine(), COLUMNS, rows))
    if options.json:
        common.write_json(options.json, "sizes", common.machine(), rows)


if __name__ == "__main__":
    main()
