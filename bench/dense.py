"""Dense layers side by side: convolutions and products of well-known models, and odd ones, at their real sizes.

    python bench/dense.py [resnet50 conv3x3 ...] [--list] [--contenders covan onnxruntime] [--sample 20]
        [--rounds 15] [--seconds 1] [--json dense.json]

Arguments are parts of names: a layer that has one of them is measured. Each layer gets a process of its own, in which
the contenders of `peers` take turns, and with them fused multiply-adds on all cores and a copy of as many bytes as the
layer reads and writes (of 16 MiB at least): what the machine gives at most, in the same minute. Operations are counted
as the layer is written, whatever algorithm computes it.
"""

from __future__ import annotations

import json
import sys
import warnings
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import peers
import torch
from ceilings import Ceilings
from layers import LAYERS, Bilinear, Conv, Layer, Linear, Matmul, Operation, Step
from torch import Tensor, nn
from torch.nn import functional

from covan_mlir.machine.host import host

COPIED = 8 << 20
"""Bytes that a copy reads at least: a smaller one measures how threads wake."""


class _Factor(nn.Module):
    """One factor for each channel: of images the first axis after the batch, of rows the last."""

    def __init__(self, channels: int, axes: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.rand(channels, *(1,) * axes) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def _norm(channels: int, axes: int) -> nn.Module:
    """BatchNorm with statistics and factors unlike the initial ones, with which it would be the identity."""
    norms = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
    norm = norms[axes](channels)
    for values in (norm.running_mean, norm.bias):
        assert values is not None
        nn.init.normal_(values, std=0.2)
    for values in (norm.running_var, norm.weight):
        assert values is not None
        nn.init.uniform_(values, 0.5, 1.5)
    return norm


_ACTIVATIONS: dict[Step, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


class Dense(nn.Module):
    """A layer with weights: the product or convolution, then the steps of its epilogue in order."""

    def __init__(self, operation: Conv | Linear) -> None:
        super().__init__()
        bias = "bias" in operation.epilogue
        axes = len(operation.image) if isinstance(operation, Conv) else 0
        self.product: nn.Module = _conv(operation, bias) if isinstance(operation, Conv) else _linear(operation, bias)
        self.gate = _linear(operation, bias) if isinstance(operation, Linear) and operation.products == 2 else None
        self.steps = nn.ModuleDict()
        self.order = [step for step in operation.epilogue if step not in ("bias", "gate")]
        for step in self.order:
            if step == "bn":
                self.steps[step] = _norm(operation.outputs, axes)
            elif step == "scale":
                self.steps[step] = _Factor(operation.outputs, axes)
            elif step == "gelu_tanh":
                self.steps[step] = nn.GELU(approximate="tanh")
            elif step != "residual":
                self.steps[step] = _ACTIVATIONS[step]()

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y: Tensor = self.product(x)
        if self.gate is not None:
            y = functional.silu(y) * self.gate(x)
        for step in self.order:
            if step == "residual":
                assert residual is not None
                y = y + residual
            else:
                y = self.steps[step](y)
        return y


def _conv(operation: Conv, bias: bool) -> nn.Module:
    kinds: dict[tuple[int, bool], type[nn.Module]] = {
        (1, False): nn.Conv1d,
        (2, False): nn.Conv2d,
        (3, False): nn.Conv3d,
        (1, True): nn.ConvTranspose1d,
        (2, True): nn.ConvTranspose2d,
        (3, True): nn.ConvTranspose3d,
    }
    return kinds[len(operation.image), operation.transposed](
        operation.inputs,
        operation.outputs,
        operation.window,
        operation.stride,
        operation.paddings,
        groups=operation.groups,
        bias=bias,
        dilation=operation.dilation,
    )


def _linear(operation: Linear, bias: bool) -> nn.Module:
    return nn.Linear(operation.inputs, operation.outputs, bias=bias)


class Product(nn.Module):
    """A product of two inputs."""

    def __init__(self, operation: Matmul) -> None:
        super().__init__()
        self.left, self.right = operation.left, operation.right

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x.mT if self.left else x) @ (y.mT if self.right else y)


def build(operation: Operation) -> peers.Model:
    """A layer in eval mode with seeded weights, and its inputs."""
    torch.manual_seed(0)
    model: nn.Module
    args: tuple[Any, ...]
    if isinstance(operation, Matmul):
        batch = (operation.batch,) if operation.batch > 1 else ()
        left, right = (operation.rows, operation.inner), (operation.inner, operation.columns)
        model = Product(operation)
        args = (
            torch.randn(*batch, *(reversed(left) if operation.left else left)),
            torch.randn(*batch, *(reversed(right) if operation.right else right)),
        )
    elif isinstance(operation, Bilinear):
        model = nn.Bilinear(operation.left, operation.right, operation.outputs)
        args = (torch.randn(operation.rows, operation.left), torch.randn(operation.rows, operation.right))
    elif isinstance(operation, Linear):
        model = Dense(operation)
        args = (torch.randn(operation.rows, operation.inputs),)
        if "residual" in operation.epilogue:
            args += (torch.randn(operation.rows, operation.outputs),)
    else:
        model = Dense(operation)
        args = (torch.randn(operation.batch, operation.inputs, *operation.image),)
        if "residual" in operation.epilogue:
            args += (torch.randn(operation.batch, operation.outputs, *operation.result),)
    return model.eval(), args, {}


def measure(
    layer: Layer, contenders: Sequence[str], rounds: int, seconds: float, dtype: torch.dtype = torch.float32
) -> common.Row:
    """All contenders on one layer, in this process."""
    operation = layer.operation
    moved = dtype.itemsize * operation.elements
    lineup = peers.line_up(contenders, peers.cast(build(operation), dtype))
    ceilings = Ceilings(host(), copied=max(COPIED, moved // 2))
    calls = lineup.calls | {"fma": lambda: ceilings.run_fma(), "copy": lambda: ceilings.run_copy()}
    times = common.interleave(calls, rounds=rounds, seconds=seconds, warmup=2, settle=common.SETTLE, pause=common.REST)
    flops, bandwidth = ceilings.rates(min(times["fma"].samples), min(times["copy"].samples))
    row: common.Row = {
        "layer": layer.name,
        "flop": operation.flops,
        "bytes": moved,
        "compile_s": lineup.compile_s,
        "errors": lineup.errors,
        "fails": lineup.fails,
        "peak_gflops": flops / 1e9,
        "copy_gb_per_s": bandwidth / 1e9,
        "best": peers.best(times),
        "ratio": peers.gain(times),
        "error": lineup.error_over_eager(peers.COVAN),
        "samples_ms": {name: [1e3 * s for s in timing.samples] for name, timing in times.items()},
    }
    for contender in lineup.calls:
        row[contender] = times[contender].median * 1e3
    if peers.COVAN in times:
        row["of peak"] = operation.flops / times[peers.COVAN].median / flops
        row["of copy"] = moved / times[peers.COVAN].median / bandwidth
    return row


def chosen(patterns: Sequence[str], sample: int | None) -> list[Layer]:
    """Layers whose name has one of the patterns (all without any), or so many of them, spread evenly.

    Raises:
        SystemExit: a pattern is in no name.
    """
    for pattern in patterns:
        if not any(pattern in name for name in LAYERS):
            raise SystemExit(f"no layer has {pattern!r} in its name: python bench/dense.py --list")
    layers = [layer for name, layer in LAYERS.items() if not patterns or any(p in name for p in patterns)]
    if sample is None or sample >= len(layers):
        return layers
    return [layers[i * len(layers) // sample] for i in range(sample)]


def _shown(row: common.Row, contenders: Sequence[str]) -> common.Row:
    """A row as people read it: milliseconds, and GFLOP/s in parentheses."""
    shown = dict(row)
    for contender in contenders:
        if contender in row:
            shown[contender] = f"{common.cell(row[contender])} ({row['flop'] / row[contender] / 1e6:.0f})"
        elif contender in row["fails"]:
            shown[contender] = "fails"
    return shown


def main() -> None:
    assert __doc__
    parser = common.arguments(
        __doc__.splitlines()[0], rounds=15, seconds=1.0, what="layers", chosen="parts of names of layers"
    )
    parser.add_argument("--contenders", nargs="+", default=peers.CONTENDERS, choices=peers.CONTENDERS)
    parser.add_argument("--dtype", default="f32", choices=peers.DTYPES, help="of weights, inputs and results")
    parser.add_argument("--sample", type=int, help="so many of the layers only, spread evenly over the list")
    parser.add_argument("--list", action="store_true", help="print names, MFLOP and MB of the layers")
    parser.add_argument("--child", type=Path, help=SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.child:
        with torch.no_grad():
            dtype = peers.DTYPES[options.dtype]
            row = measure(LAYERS[options.layers[0]], options.contenders, options.rounds, options.seconds, dtype)
        options.child.write_text(json.dumps(row))
        return

    layers = chosen(options.layers, options.sample)
    if options.list:
        for layer in layers:
            print(f"{layer.name:60} {layer.operation.flops / 1e6:10.1f} {4e-6 * layer.operation.elements:8.2f}")
        return

    machine, rows = common.machine(), []
    flags = ["--rounds", str(options.rounds), "--seconds", str(options.seconds), "--dtype", options.dtype]
    flags += ["--contenders", *options.contenders]
    columns = ["layer", *options.contenders, "best", "ratio", "of peak", "of copy", "error"]
    for layer in layers:
        row = common.in_child(__file__, "layer", layer.name, flags)
        shown = _shown(row, options.contenders)
        print("  ".join(f"{name} {common.cell(shown.get(name))}" for name in columns), file=sys.stderr, flush=True)
        rows.append(row)
        if options.json:
            common.write_json(options.json, "dense", machine, rows)
    print(
        common.report(
            "Milliseconds per call, medians (GFLOP/s), the best peer's over covan's, covan's part of the ceilings, "
            "its error over eager's",
            machine,
            columns,
            [_shown(row, options.contenders) for row in rows],
            width=180,
        )
    )
    for row in rows:
        for contender, reason in row["fails"].items():
            print(f"{row['layer']}: {contender} fails: {reason}")
    print(peers.summary({row["layer"]: row.get("ratio") for row in rows}))


if __name__ == "__main__":
    main()
