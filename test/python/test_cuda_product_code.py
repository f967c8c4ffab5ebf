"""Products and convolutions for CUDA without a GPU: instructions, line tables, schedules, refusals, programs."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from dense_chains import convolution, product
from plain_chains import Writer, attention
from test_cuda_kernels import spills
from test_cuda_products import kernel, match_of
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine, Const, Window
from covan_mlir.lowering.kernels.cuda.compile import available, compile_kernel
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.cuda.lines import with_source_lines
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.select import Selection, select
from covan_mlir.lowering.kernels.targets import named, of
from covan_mlir.lowering.source_lines import SourceLine

pytestmark = pytest.mark.skipif(not available(), reason="Triton is not installed (pip install covan-mlir[cuda])")

# Ahead of time

HALF = product("ik", "jk", "ij", "k", "f16", i=512, j=768, k=1024)
SINGLE = product("ik", "kj", "ij", "k", i=1024, j=1024, k=512)
IMAGE = convolution(64, 64, (3, 3), (28, 28), batch=4, dtype="bf16")
INSTRUCTIONS = {
    "sm_80": r"mma\.sync\S*\.f32\.{0}\.{0}\.f32",
    "sm_90": r"mma\.sync\S*\.f32\.{0}\.{0}\.f32",
    "sm_90a": r"wgmma\.mma_async\S*\.f32\.{0}\.{0}",
}


@pytest.mark.parametrize("architecture", list(INSTRUCTIONS))
@pytest.mark.parametrize(
    ("chain", "kind"), [(HALF, "f16"), (SINGLE, "tf32"), (IMAGE, "bf16")], ids=["f16", "f32", "bf16"]
)
def test_code_has_matrix_instructions(chain: Chain, kind: str, architecture: str) -> None:
    # The asynchronous instructions have no operands of f32 that are rounded, or taken apart, in registers.
    used = "sm_90" if kind == "tf32" and architecture == "sm_90a" else architecture
    for binary in compile_kernel(kernel(chain, architecture)):
        assert re.findall(r"^\.target (\S+)", binary.ptx, re.M) == [used]
        assert ".version 8.0" in binary.ptx
        assert spills(binary, architecture) == 0
        if not binary.launch.name.endswith("_merge"):
            assert re.search(INSTRUCTIONS[used].format(kind), binary.ptx)
            assert ("wgmma" in binary.ptx) == (used == "sm_90a")
            assert "cp.async" in binary.ptx


def test_single_precision_is_three_products_unless_the_schedule_says_otherwise() -> None:
    match, schedule = match_of(SINGLE)
    assert schedule.precision == "tf32x3"
    assert {one.precision for one in match.schedules()} == {"tf32x3"}
    counts = {}
    for precision in ("tf32x3", "tf32", "ieee"):
        (binary,) = compile_kernel(kernel(SINGLE, precision=precision, parts=1, num_warps=4))
        counts[precision] = len(re.findall(r"mma\.sync\S*\.tf32\.tf32", binary.ptx))
        # Cut off by the instruction, operands would all be too small.
        assert ("cvt.rna.tf32" in binary.ptx) == (precision != "ieee")
    assert counts["tf32x3"] == 3 * counts["tf32"] > 0
    assert counts["ieee"] == 0


@pytest.mark.parametrize("chain", [SINGLE, attention(n=256)], ids=["product", "attention"])
def test_a_target_may_round_operands_to_tf32(chain: Chain) -> None:
    for name, precision in (("cuda:sm_90", "tf32x3"), ("cuda:sm_90+tf32", "tf32")):
        target = of(name)
        assert target is not None
        chosen = select(chain, "k", target, always=True)
        assert isinstance(chosen, Selection)
        assert chosen.schedule["precision"] == precision
        assert target.name == name.removeprefix("cuda:")


def test_line_tables_name_the_model() -> None:
    (binary,) = compile_kernel(kernel(IMAGE, parts=1))
    lines = {"s": SourceLine("/model/net.py", 7, "conv2d"), "y": SourceLine("/model/net.py", 8, "relu")}
    told = with_source_lines(binary, lines)
    files = dict(re.findall(r'\.file\s+(\d+) "([^"]*)"', told.ptx))
    assert sorted(files.values()) == ["/model/net.py", "fred.py"]
    where, products = ("", ""), set()
    for line in told.ptx.splitlines():
        if directive := re.match(r"\s*\.loc\s+(\d+) (\d+)", line):
            where = files[directive.group(1)], directive.group(2)
        if "mma.sync" in line:
            products.add(where)
    assert products == {("/model/net.py", "7")}
    assert re.search(r"\.loc\s+\d+ 8 \d+, function_name (\$\w+), inlined_at", told.ptx)


# Schedules and refusals


def test_schedules_are_listed_by_predicted_time() -> None:
    for chain in (HALF, SINGLE, IMAGE):
        for architecture in INSTRUCTIONS:
            match, first = match_of(chain, architecture)
            schedules = list(match.schedules())
            assert len(schedules) == len(set(schedules)) > 50
            assert min(map(match.predict, schedules)) == match.predict(first)
            assert all(match.read(schedule.to_json()) == schedule for schedule in (schedules[0], schedules[-1]))
            assert match.cost(first).flops == chain.contraction_flops


def test_no_prediction_is_better_than_the_device() -> None:
    for chain, peak in ((HALF, 1.0), (SINGLE, 1 / 6)):
        for architecture in INSTRUCTIONS:
            match, first = match_of(chain, architecture)
            device, cost = DEVICES[architecture], match.cost(first)
            assert cost.seconds >= max(cost.flops / (device.flops * peak), cost.bytes / device.bandwidth)


def test_long_sums_of_few_tiles_are_split() -> None:
    few = product("ik", "jk", "ij", "k", "f16", i=16, j=256, k=16384)
    many = product("ik", "jk", "ij", "k", "f16", i=4096, j=4096, k=4096)
    assert match_of(few)[1].parts > 1
    assert match_of(many)[1].parts == 1
    assert match_of(many)[1].group > 0


def test_what_pays() -> None:
    """Products of all types, but for the smallest: IREE's own code has no matrix instructions."""
    target = CudaTarget(DEVICES["sm_80"])
    small = select(product("ik", "jk", "ij", "k", i=7, j=77, k=100), "fred_x", target)
    assert isinstance(small, Refusal)
    assert "it does not pay" in small.reason
    odd = product("ik", "jk", "ij", "k", "f16", i=197, j=197, k=64)
    for chain in (SINGLE, HALF, odd, product("ik", "jk", "ij", "k", "f16", i=2048, j=2048, k=2048)):
        selection = select(chain, "fred_y", target)
        assert isinstance(selection, Selection)
        assert selection.template == "product"


def pooling() -> Chain:
    w = Writer(c=5, p=21, q=21, h=10, w=10, r=3, s=3)
    w.input("x", "cpq")
    at = [Affine.of([("c", 1)]), Affine.of([("h", 2), ("r", 1)]), Affine.of([("w", 2), ("s", 1)])]
    w.reduce("y", "chw", "max", "rs", Window("x", "f32", tuple(at), Const(-np.inf, "f32")))
    return w.chain("y")


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (product("ik", "jk", "ij", "k", "f64", i=64, j=64, k=64), "s is a matrix product in f64"),
        (product("ik", "jk", "ij", "k", unknown="i", i=1, j=64, k=64), "the sizes of i are only known at run time"),
        (convolution(32, 32, (3, 3), (14, 14), groups=32), "one of its factors has no axis of its own"),
        (pooling(), "it is no sum from 0 on"),
    ],
)
def test_refusals_say_why(chain: Chain, reason: str) -> None:
    refusal = select(chain, "fred", CudaTarget(DEVICES["sm_80"]), always=True)
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason


@pytest.mark.parametrize(
    ("chain", "reason"),
    [(HALF, "there is no template for vulkan"), (IMAGE, "through a window, which no template for vulkan takes")],
)
def test_vulkan_leaves_them_to_the_compiler(chain: Chain, reason: str) -> None:
    refusal = select(chain, "fred", named("vulkan", "", {}), always=True)
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason


# Programs


@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, "tf32"), (torch.float16, "f16")])
def test_a_network_is_our_kernels(dtype: torch.dtype, kind: str) -> None:
    """A product with an activation behind it is one kernel, of halves without conversions beside it."""
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).to(dtype).eval()
    options = CompileOptions(fuse_reductions="always")
    exe = covan_mlir.compile_module(mlp, (torch.randn(512, 512).to(dtype),), options=options, target="cuda:sm_80")
    kernels = [site for site in exe.lineage.sites if site.kernel.startswith("fred_")]
    names = [{exe.lineage.actions[n].name for n in site.trace} for site in kernels]
    assert names[0] == {"linear", "gelu"}
    assert names[1:] in ([{"linear_1"}], [{"linear_1"}] * 2)  # at once, or in parts and their sum
    assert len(kernels) == len(exe.lineage.sites)
    assert exe.verify()
    assert f".{kind}.{kind}.f32".encode() in exe.kernel_code(kernels[0])


def test_a_convolutional_network_is_our_kernels() -> None:
    """Each convolution with BatchNorm and activation."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(16, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Conv2d(64, 128, 1)).half().eval()
    options = CompileOptions(fuse_reductions="always")
    exe = covan_mlir.compile_module(network, (torch.randn(2, 16, 28, 28).half(),), options=options, target="cuda:sm_90")
    kernels = [site for site in exe.lineage.sites if site.kernel.startswith("fred_")]
    names = [{exe.lineage.actions[n].name for n in site.trace} for site in kernels]
    assert names == [{"conv2d", "batch_norm", "relu"}, {"conv2d_1", "relu_1"}, {"conv2d_2"}]
    assert {site.kernel for site in exe.lineage.sites} - {site.kernel for site in kernels} <= {"fill"}
    assert exe.verify()
