"""Kernels for chains of reductions against torch: ten kinds of attention, eight row reductions.

    python bench/fused_reductions.py [attention] [rows] [--variants causal gqa] [--prefill 512 1024] [--decode 4096]
        [--depth 64 128] [--extras] [--without flex stock] [--seconds 1] [--json fused.json]

Every case: this project's kernel alone, its work shared with torch's threads as in programs
(`CompileOptions(device="auto")`), and whatever of eager plain code, scaled_dot_product_attention, torch.compile
of the plain code, FlexAttention and the stock IREE path can express it, interleaved. The ratio is the best baseline's
time over ours, as the median over rounds. Fractions are of the FMA peak (counting matmuls that no mask leaves out)
and of the copy bandwidth of the same run.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import common
import iree.runtime as rt
import torch
from ceilings import Ceilings
from torch import Tensor

sys.path.insert(0, str(common.ROOT / "test" / "python"))  # the chains are those that the tests check
from fred_chains import CAP, WINDOW, attention, plain_attention, row_cases

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.select import Selection, select
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.host import host
from covan_mlir.runtime import team, values

VARIANTS = ("global", "causal", "alibi", "softcap", "gqa")
HEADS, SHARED = 8, 2
ROWS = ((2048, 1024), (8192, 128), (64, 32768), (511, 1000))
ROW_KINDS = ("softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "var", "cross_entropy", "entropy")


@dataclass(frozen=True)
class Case:
    """One chain, its inputs, and the ways to compute it."""

    name: str
    chain: Chain
    inputs: tuple[Tensor, ...]
    baselines: dict[str, Callable[[], Callable[[], Tensor]]]


class Unable(Exception):
    """A baseline cannot express a case."""


def _attention(variant: str, queries: int, keys: int, depth: int, dtype: torch.dtype = torch.float32) -> Case:
    groups = HEADS // SHARED if variant == "gqa" else 1
    kind = "global" if variant == "gqa" else variant
    name = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
    chain = attention(HEADS // groups, queries, keys, depth, kind, groups=groups, dtype=name)
    generator = torch.Generator().manual_seed(0)
    shapes = [tuple(chain.sizes[axis] or 0 for axis in value.axes) for value in chain.inputs]
    q, k, v, *extra = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    extra = [x.float() for x in extra]

    def plain(*inputs: Tensor) -> Tensor:
        return plain_attention(kind, *inputs)

    def sdpa() -> Callable[[], Tensor]:
        if variant in ("softcap",):
            raise Unable("no soft cap")
        at, j = torch.arange(queries)[:, None] + keys - queries, torch.arange(keys)[None]
        mask = None
        if variant == "alibi":
            mask = (extra[0][:, None, None] * (j - at)).masked_fill(j > at, -math.inf)
        if variant == "window":
            mask = (j <= at) & (j > at - WINDOW)
        queried, keyed, valued = (x.reshape(1, -1, *x.shape[-2:]) for x in (q, k, v))
        causal = variant == "causal" and queries == keys
        return lambda: torch.nn.functional.scaled_dot_product_attention(
            queried,
            keyed,
            valued,
            attn_mask=None if mask is None else mask[None],
            is_causal=causal,
            enable_gqa=groups > 1,
        )

    def flex() -> Callable[[], Tensor]:
        return _flex(variant, (q, k, v), extra, queries, keys, groups)

    def compiled() -> Callable[[], Tensor]:
        torch._dynamo.reset()
        call = torch.compile(plain, dynamic=False)
        return lambda: call(q, k, v, *extra)

    baselines = {"eager": lambda: lambda: plain(q, k, v, *extra), "sdpa": sdpa, "compile": compiled, "flex": flex}
    if dtype == torch.float32:
        baselines["stock"] = lambda: _stock(plain, (q, k, v, *extra))
    stage = "decode" if queries == 1 else "prefill"
    size = keys if queries == 1 else queries
    return Case(f"{variant} {stage} {size} d{depth} {name}", chain, (q, k, v, *extra), baselines)


def _flex(
    variant: str, qkv: tuple[Tensor, ...], extra: list[Tensor], queries: int, keys: int, groups: int
) -> Callable[[], Tensor]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (x.reshape(1, -1, *x.shape[-2:]) for x in qkv)
    off = keys - queries
    score: Any = None
    mask: Any = None
    if variant == "softcap":

        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.tanh(s / CAP) * CAP

    if variant == "alibi":

        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + extra[0][h] * (j - i - off)

    if variant in ("causal", "alibi", "window"):

        def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            near = (j > i + off - WINDOW) if variant == "window" else (j >= 0)
            return (j <= i + off) & near

        mask = create_block_mask(seen, None, None, queries, keys, device="cpu")
    torch._dynamo.reset()
    call = torch.compile(flex_attention, dynamic=False)
    return lambda: call(q, k, v, score_mod=score, block_mask=mask, enable_gqa=groups > 1)


def _stock(plain: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    import stock

    class Model(torch.nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return plain(*args)

    raw = stock.compile_stock(Model(), inputs).raw
    arguments = raw.arguments(inputs, {})
    return lambda: raw.invoke(arguments)[0]


def _row(kind: str, rows: int, length: int) -> Case:
    chain, reference = row_cases(rows, length)[kind]
    generator = torch.Generator().manual_seed(0)
    inputs = []
    for value in chain.inputs:
        shape = [chain.sizes[axis] or 0 for axis in value.axes]
        normal = torch.randn(shape, generator=generator)
        inputs.append(torch.randint(0, length, shape, generator=generator) if value.dtype == "i64" else normal)

    def compiled() -> Callable[[], Tensor]:
        torch._dynamo.reset()
        call = torch.compile(reference, dynamic=False)
        return lambda: call(*inputs)

    baselines = {"eager": lambda: lambda: reference(*inputs), "compile": compiled}
    return Case(f"{kind} {rows}x{length}", chain, tuple(inputs), baselines)


def measure(case: Case, without: list[str], seconds: float, peaks: Ceilings) -> common.Row:
    """Times of a case."""
    target = CpuTarget(host())
    selection, generated = common.once(lambda: select(case.chain, "fred", target, always=True))
    assert isinstance(selection, Selection), selection
    kernel, cost = selection.executable, selection.cost
    alone, compiled = common.once(lambda: Standalone([kernel], team.DRIVER))
    read = values.torch_reader(alone.device, "float32")  # all contenders read the same memory
    call = alone.bound(kernel.name, *map(read, case.inputs))
    contenders: dict[str, Callable[[], object]] = {"ours": call}
    write = values.torch_writer(alone.device, str(case.inputs[0].dtype).removeprefix("torch."))
    got = write(call().get_as_object(0, rt.HalBufferView)).float()
    unable = {}
    error = math.nan
    for name, build in case.baselines.items():
        if name in without:
            continue
        try:
            baseline = build()
            result = baseline()
        except Exception as failure:  # whatever it raises is the finding
            unable[name] = common.short(failure)
            continue
        if name == "eager":
            error = float((result.float().reshape(got.shape) - got).abs().max())
        contenders[name] = baseline
    contenders |= {"fma": lambda: peaks.run_fma(), "copy": lambda: peaks.run_copy()}
    times = common.interleave(contenders, rounds=7, seconds=seconds, warmup=2, settle=common.SETTLE, pause=common.REST)
    best = min((n for n in contenders if n not in ("ours", "fma", "copy")), key=lambda n: times[n].median)
    ours = times["ours"]
    flops, bandwidth = peaks.rates(min(times["fma"].samples), min(times["copy"].samples))
    return {
        "case": case.name,
        "ours ms": ours.median * 1e3,
        "best": best,
        "best ms": times[best].median * 1e3,
        "ratio": times[best].over(ours),
        "of peak": cost.flops / ours.median / flops if cost.flops else None,
        "of copy": cost.bytes / ours.median / bandwidth,
        "fastest ms": min(ours.samples) * 1e3,
        "fastest of peak": cost.flops / min(ours.samples) / flops if cost.flops else None,
        "fastest of copy": cost.bytes / min(ours.samples) / bandwidth,
        "fastest ratio": min(times[best].samples) / min(ours.samples),
        "predicted ms": cost.seconds * 1e3,
        "generate s": generated,
        "compile s": compiled,
        "difference": error,
        "peak gflops": flops / 1e9,
        "copy gb/s": bandwidth / 1e9,
        "unable": unable,
        "samples_s": {name: list(t.samples) for name, t in times.items()},
    }


def cases(options: argparse.Namespace) -> Iterator[Callable[[], Case]]:
    """What to measure; each is built when its turn comes."""
    if "attention" in options.kinds:
        for depth in options.depth:
            for variant in options.variants:
                for size in options.prefill:
                    yield partial(_attention, variant, size, size, depth)
                for size in options.decode:
                    yield partial(_attention, variant, 1, size, depth)
            if options.extras:
                yield partial(_attention, "window", 2048, 2048, depth)
                yield partial(_attention, "causal", 1024, 1024, depth, torch.bfloat16)
                yield partial(_attention, "global", 1, 4096, depth, torch.bfloat16)
    if "rows" in options.kinds:
        for kind in options.rows:
            for rows, length in ROWS:
                yield partial(_row, kind, rows, length)


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=["attention", "rows"], help="attention, rows (default: both)")
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--rows", nargs="+", default=ROW_KINDS)
    parser.add_argument("--prefill", nargs="*", type=int, default=[512, 1024, 2048, 4096])
    parser.add_argument("--decode", nargs="*", type=int, default=[1024, 4096, 16384])
    parser.add_argument("--depth", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--extras", action="store_true", help="sliding window and bf16 too")
    parser.add_argument("--without", nargs="*", default=[], help="baselines to leave out")
    parser.add_argument("--seconds", type=float, default=1.0, help="time per case, at least")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows: list[common.Row] = []
    facts, peaks = common.machine(), Ceilings(host())
    columns = ["case", "ours ms", "best", "best ms", "ratio", "of peak", "of copy", "fastest ratio", "compile s"]
    with torch.no_grad():
        for build in cases(options):
            row = measure(build(), options.without, options.seconds, peaks)
            print("  ".join(f"{name} {common.cell(row[name])}" for name in columns), file=sys.stderr, flush=True)
            rows.append(row)
            if options.json:
                common.write_json(options.json, "fused_reductions", facts, rows)
    print(common.report("Fused reductions", facts, columns, rows))
    ratios = [row["ratio"] for row in rows]
    print(f"ratios: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
