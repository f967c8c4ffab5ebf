"""What fusion is worth to the tuner: layers as one kernel, and as the kernels of their parts, both tuned.

    python bench/tuning_fusion.py [--minutes 1] [--rounds 15] [--seconds 2] [--json FILE]

Parts are programs of their own, tuned for as long as the whole, and called one after the other.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import common
import torch
from torch import Tensor, nn
from torch.nn import functional

import covan_mlir
from covan_mlir import CompileOptions

Function = Callable[..., Tensor]


class Called(nn.Module):
    """A function of some inputs and of a module's weights."""

    def __init__(self, function: Callable[..., Tensor], inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.function = inner or nn.Identity(), function

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(self.inner, *args)


def layers() -> dict[str, tuple[nn.Module, tuple[nn.Module, nn.Module], tuple[Tensor, ...], tuple[Tensor, ...]]]:
    """By name: the whole, its first and its second part, the inputs of the first, and those of the second besides the
    first one's result."""
    torch.manual_seed(0)
    conv = nn.Conv2d(64, 64, 3, padding=1)
    image, residual = torch.randn(1, 64, 56, 56), torch.randn(1, 64, 56, 56)
    q, k = torch.randn(12, 128, 64), torch.randn(12, 128, 64)
    return {
        "convolution, residual, relu": (
            Called(lambda inner, x, y: functional.relu(inner(x) + y), conv),
            (Called(lambda inner, x: inner(x), conv), Called(lambda _, x, y: functional.relu(x + y))),
            (image,),
            (residual,),
        ),
        "product, softmax": (
            Called(lambda _, x, y: torch.softmax(x @ y.mT, -1)),
            (Called(lambda _, x, y: x @ y.mT), Called(lambda _, x: torch.softmax(x, -1))),
            (q, k),
            (),
        ),
    }


def tuned(model: nn.Module, args: tuple[Tensor, ...], minutes: float, folder: str) -> Callable[..., Tensor]:
    """A model compiled with what was measured."""
    records = Path(folder) / f"{id(model)}.sqlite"
    covan_mlir.tune(model.eval(), args, minutes=minutes, records=records)
    exe: Callable[..., Tensor] = covan_mlir.compile_module(model, args, options=CompileOptions(records=records))
    return exe


def main() -> None:
    assert __doc__
    parser = common.arguments(__doc__.splitlines()[0], rounds=15, seconds=2.0, what="layers", chosen="their names")
    parser.add_argument("--minutes", type=float, default=1.0, help="of tuning, for each program")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    machine, rows = common.machine(), list[common.Row]()
    for name, (whole, (first, second), inputs, besides) in layers().items():
        if options.layers and name not in options.layers:
            continue
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            fused = tuned(whole, (*inputs, *besides), options.minutes, folder)
            between = first(*inputs)
            before = tuned(first, inputs, options.minutes, folder)
            after = tuned(second, (between, *besides), options.minutes, folder)

            def apart(
                before: Callable[..., Tensor] = before,
                after: Callable[..., Tensor] = after,
                inputs: tuple[Tensor, ...] = inputs,
                besides: tuple[Tensor, ...] = besides,
            ) -> Tensor:
                return after(before(*inputs), *besides)

            torch.testing.assert_close(fused(*inputs, *besides), apart(), atol=1e-4, rtol=1e-4)
            calls = {"fused": lambda fused=fused, args=(*inputs, *besides): fused(*args), "apart": apart}
            clock = time.process_time if common.cores() == 1 else time.perf_counter
            times = common.interleave(calls, rounds=options.rounds, seconds=options.seconds, warmup=2, clock=clock)
        row: common.Row = {"layer": name, **{each: timing.median * 1e3 for each, timing in times.items()}}
        rows.append({**row, "apart / fused": times["apart"].over(times["fused"])})
    if options.json:
        common.write_json(options.json, "tuning_fusion", machine, rows)
    print(common.report("Milliseconds per call", machine, ["layer", "fused", "apart", "apart / fused"], rows))


if __name__ == "__main__":
    main()
