"""Kernels for CUDA without a GPU: numbers by Triton's interpreter, code by Triton's own assembler."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from fred_chains import (
    CAP,
    VARIANTS,
    Floats,
    attention,
    column_softmax,
    cosine_similarity,
    one_query,
    plain_attention,
    plain_one_query,
    row_cases,
)
from test_cpu_kernels import close, inputs_of, wider
from torch import Tensor

from covan_mlir.fred.chain import Axis, Chain, Input
from covan_mlir.lowering.kernels.cuda.compile import assemble, available, compile_kernel, without_hidden
from covan_mlir.lowering.kernels.cuda.device import DEVICES, CudaDevice
from covan_mlir.lowering.kernels.cuda.kernel import Binary, CudaKernel
from covan_mlir.lowering.kernels.cuda.lines import with_source_lines
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.cuda.templates.tiles import Tiles, TilesMatch
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.source_lines import SourceLine

pytestmark = pytest.mark.skipif(not available(), reason="Triton is not installed (pip install covan-mlir[cuda])")

HOPPER = DEVICES["sm_90a"]
HERE = Path(__file__).parent
Reference = Callable[..., Tensor]
Case = tuple[CudaKernel, list[Tensor], Reference]


def interpreted(folder: Path, cases: Sequence[Case]) -> list[Tensor]:
    """The first output of every kernel."""
    given, output = folder / "in.pt", folder / "out.pt"
    torch.save([(kernel, inputs) for kernel, inputs, _ in cases], given)
    command = [sys.executable, str(HERE / "triton_interpret.py"), str(given), str(output)]
    subprocess.run(command, check=True, env={**os.environ, "TRITON_INTERPRET": "1"})
    return [outputs[0] for outputs in torch.load(output, weights_only=False)]


def agree(folder: Path, cases: Sequence[Case], loose: float = 0.0) -> None:
    """All kernels against torch in the same precision and in double."""
    for (kernel, inputs, reference), got in zip(cases, interpreted(folder, cases), strict=True):
        exact = reference(*wider(inputs))
        if loose:
            assert torch.allclose(got.double(), exact, atol=loose, rtol=loose), kernel.launches
        else:
            close(got.float().numpy() if got.dtype == torch.bfloat16 else got.numpy(), reference(*inputs), exact)


def tiles(chain: Chain, device: CudaDevice) -> TilesMatch:
    match = Tiles().match(chain, CudaTarget(device))
    assert isinstance(match, TilesMatch), match
    return match


def source(chain: Chain, device: CudaDevice = HOPPER, **changes: Any) -> CudaKernel:
    """A kernel with its default schedule, changed."""
    match = tiles(chain, device)
    return match.write(dataclasses.replace(match.schedules()[0], **changes), "fred")


def case(chain: Chain, reference: Reference, **changes: Any) -> Case:
    """A kernel with its default schedule, changed."""
    return source(chain, **changes), inputs_of(chain), reference


def looped(chain: Chain, reference: Reference, block: int = 16, **changes: Any) -> Case:
    """A kernel that goes over rows in blocks, with repairs."""
    return case(chain, reference, shape="loop", block_stream=block, **changes)


def plain(variant: str) -> Reference:
    return lambda *inputs: plain_attention(variant, *inputs)


def test_rows_agree_with_torch(tmp_path: Path) -> None:
    cases = []
    for length in (1, 15, 17, 70):
        for name, (chain, reference) in row_cases(5, length).items():
            if name != "norm_of_normalised":  # 0/0 in rows of one, or not, as the rounding of the mean wants
                cases += [case(chain, reference, shape="whole", block_stream=128), looped(chain, reference)]
    agree(tmp_path, cases)


def test_rows_with_infinities_and_nan(tmp_path: Path) -> None:
    rows = torch.randn(11, 37, generator=torch.Generator().manual_seed(1))
    for n, value in enumerate((math.inf, -math.inf, math.nan)):
        rows[n] = value
        rows[3 + n, 18] = value
    rows[6] = 3.0
    rows[7] *= 1e30
    rows[8] *= 1e-30
    rows[9, :20] = -math.inf  # the first block is masked throughout
    rows[10] = torch.linspace(-200, 200, 37)
    cases = []
    for name in ("softmax", "log_softmax", "logsumexp", "var", "entropy"):
        chain, reference = row_cases(11, 37)[name]
        for kernel, _, _ in (case(chain, reference), looped(chain, reference)):
            cases.append((kernel, [rows], reference))
    for (kernel, inputs, reference), got in zip(cases, interpreted(tmp_path, cases), strict=True):
        torchs, exact = reference(*inputs), reference(*wider(inputs))
        for n in range(11):
            if not (n == 7 and torchs.dim() == 1):  # squares overflow in f32, or not, as the order of the sum wants
                close(got[n : n + 1].numpy(), torchs[n : n + 1], exact[n : n + 1])
        assert kernel.launches


def test_other_rows(tmp_path: Path) -> None:
    columns, by_column = column_softmax(33, 70)
    pair, cosine = cosine_similarity(9, 333)
    split, by_row = row_cases(2, 1000)["logsumexp"]
    f = Floats()
    over = ("c", "j")
    steps = (
        dataclasses.replace(f.reduce("s", "i", "j", "add", f.x), over=over),
        f.map("mu", "i", f.op("divf", f.s, f.c(150.0))),
        f.map("d", "icj", f.op("subf", f.x, f.mu)),
        dataclasses.replace(f.reduce("q", "i", "j", "add", f.op("mulf", f.d, f.d)), over=over),
        f.map("r", "i", f.op("rsqrt", f.op("addf", f.op("divf", f.q, f.c(150.0)), f.c(1e-5)))),
        f.map("y", "icj", f.op("mulf", f.op("mulf", f.d, f.r), f.g)),
    )
    axes = (Axis("i", 4), Axis("c", 3), Axis("j", 50))
    group = Chain(axes, (Input("x", ("i", "c", "j"), "f32"), Input("g", ("c",), "f32")), steps, ("y",))

    def group_norm(x: Tensor, g: Tensor) -> Tensor:
        return torch.nn.functional.group_norm(x.reshape(1, 12, 50), 4).reshape(4, 3, 50) * g[None, :, None]

    cases = [
        case(columns, by_column),
        looped(columns, by_column),
        case(pair, cosine),
        looped(pair, cosine, 64, parts=4),
        looped(split, by_row, 32, parts=7),
        case(group, group_norm),
        looped(group, group_norm, 32),
    ]
    agree(tmp_path, cases)


def test_attention_agrees_with_torch(tmp_path: Path) -> None:
    cases = []
    for variant in VARIANTS:
        for queries, keys, groups in ((70, 70, 1), (1, 143, 1), (3, 143, 4)):
            chain = attention(1, queries, keys, 20, variant, groups=groups)
            cases.append(case(chain, plain(variant), block_stream=32))
        chain = attention(1, 1, 150, 16, variant, groups=4)
        cases.append(case(chain, plain(variant), block_stream=16, parts=3))
    agree(tmp_path, cases)


def test_a_query_without_an_axis_of_its_own(tmp_path: Path) -> None:
    chain = one_query(3, 70, 16)
    agree(tmp_path, [case(chain, plain_one_query), case(chain, plain_one_query, block_stream=16, parts=3)])


def test_the_benchmarks_of_attention_in_half_precision(tmp_path: Path) -> None:
    cases = []
    for queries, keys in ((48, 48), (1, 200)):
        for variant in ("global", "causal", "alibi", "softcap", "gqa"):
            groups, kind = (4, "global") if variant == "gqa" else (1, variant)
            chain = attention(2, queries, keys, 32, kind, groups=groups, dtype="f16")
            cases.append(case(chain, plain(kind), block_stream=16, parts=1 if queries > 1 else 3))
    agree(tmp_path, cases, loose=2e-3)


def test_attention_with_any_number_of_keys(tmp_path: Path) -> None:
    cases = [case(attention(2, queries, keys, 16), plain("global")) for queries in (1, 17) for keys in (1, 15, 16, 17)]
    agree(tmp_path, cases)


def test_attention_with_masked_rows_infinities_and_nan(tmp_path: Path) -> None:
    cases: list[Case] = []
    for queries, changes in ((3, {}), (40, {"block_stream": 16}), (3, {"parts": 4, "block_stream": 16})):
        chain = attention(2, queries, 70, 16, "bias")
        kernel, (q, k, v, bias), reference = case(chain, plain("bias"), **changes)
        bias[0, 0] = -math.inf  # nothing is seen
        bias[0, 1, :60] = -math.inf  # nothing of the first blocks is seen
        bias[0, 2, 40:] = -math.inf
        bias[1, 0, 35] = math.nan
        bias[1, 1, 35] = math.inf
        bias[1, 2] = -1e9
        cases.append((kernel, [q, k, v, bias], reference))
    for (_, inputs, reference), got in zip(cases, interpreted(tmp_path, cases), strict=True):
        torchs, exact = reference(*inputs), reference(*wider(inputs))
        for head in range(2):
            for row in range(3):
                at = (slice(head, head + 1), slice(row, row + 1))
                close(got[at].numpy(), torchs[at], exact[at])


def test_blocks_that_no_mask_touches_have_none() -> None:
    chain = attention(1, 256, 256, 64, "causal", dtype="f16")
    match = tiles(chain, HOPPER)
    first, second = source(chain).launches[0].source.split("for start")[1:]
    assert "tl.where(cols" not in first
    assert "<=" not in first
    assert "<=" in second
    assert match.cost(match.schedules()[0]).flops == pytest.approx(4 * 256 * 256 * 64 * 257 / 512, rel=0.01)


def test_statements_say_what_they_do() -> None:
    chain = attention(2, 64, 64, 64, "softcap", dtype="f16")
    actions = {"s": "matmul_1", "m": "softmax_1", "p": "softmax_1", "l": "softmax_1", "o": "matmul_2", "x": "tanh_1"}
    match = tiles(chain, HOPPER)
    (launch,) = match.write(match.schedules()[0], "fred", actions).launches
    lines = launch.source.splitlines()
    inside = [line for line in lines if line.startswith("        ") and " = tl." in line and "arange" not in line]
    assert inside
    assert all("  # " in line for line in inside)
    assert next(line for line in inside if "tl.dot(q" in line).endswith("# matmul_1")
    assert next(line for line in lines if " = _tanh(" in line).endswith("# tanh_1")
    assert all(lines[number - 1].count("#") == 1 for number in launch.lines)


# Ahead of time


@pytest.fixture(scope="module")
def hopper() -> Binary:
    chain = attention(16, 1024, 1024, 64, "causal", dtype="f16")
    (binary,) = compile_kernel(source(chain))
    return with_source_lines(
        binary, {"s": SourceLine("/model/blocks.py", 41, "scores"), "o": SourceLine("/model/blocks.py", 43)}
    )


def spills(binary: Binary, architecture: str) -> int:
    """Bytes that the assembler spills."""
    said = assemble(binary, DEVICES[architecture])
    (stored,) = re.findall(r"(\d+) bytes spill stores", said)
    return int(stored)


def test_hopper_gets_its_matrix_instructions(hopper: Binary) -> None:
    assert "wgmma.mma_async" in hopper.ptx
    assert ".target sm_90a" in hopper.ptx
    assert ".version 8.0" in hopper.ptx
    assert spills(hopper, "sm_90a") == 0
    assert f".reqntid {hopper.threads}" in hopper.ptx or f".maxntid {hopper.threads}" in hopper.ptx


def test_parameters_are_the_operands(hopper: Binary) -> None:
    (head,) = re.findall(r"\.entry \w+\(\n(.*?)\n\)", hopper.ptx, re.S)
    assert head.count(".param") == 4
    with pytest.raises(UnsupportedError, match="hidden"):
        without_hidden(hopper.ptx, 3)


def test_line_tables_name_the_model(hopper: Binary) -> None:
    files = dict(re.findall(r'\.file\s+(\d+) "([^"]*)"', hopper.ptx))
    assert sorted(files.values()) == ["/model/blocks.py", "fred.py"]
    where, products = ("", ""), set()
    for line in hopper.ptx.splitlines():
        if directive := re.match(r"\s*\.loc\s+(\d+) (\d+)", line):
            where = files[directive.group(1)], directive.group(2)
        if "wgmma.mma_async" in line:
            products.add(where)
    assert products == {("/model/blocks.py", "41"), ("/model/blocks.py", "43")}
    # A named action is a function that is inlined there.
    assert re.search(r"\.loc\s+\d+ 41 \d+, function_name (\$\w+), inlined_at", hopper.ptx)
    assert "".join(f".b8 {n}\n" for n in b"scores\0") in hopper.ptx


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_other_architectures_assemble(architecture: str) -> None:
    device = DEVICES[architecture]
    attend = {
        "sm_80": attention(64, 2048, 2048, 128, "alibi", dtype="bf16"),
        "sm_86": attention(64, 2048, 2048, 64, "softcap", dtype="f16"),
        "sm_89": attention(4, 1, 8192, 128, groups=8, dtype="f16"),
        "sm_90": attention(8, 512, 512, 64),
    }[architecture]
    rows = {"sm_80": "layer_norm", "sm_86": "softmax", "sm_89": "cross_entropy", "sm_90": "var"}[architecture]
    for chain in (attend, row_cases(512, 3000)[rows][0]):
        for binary in compile_kernel(source(chain, device)):
            # sm_90 without an ``a``, as all that runs on what comes after, too.
            assert re.findall(r"^\.target (\S+)", binary.ptx, re.M) == [architecture]
            assert ".version 8.0" in binary.ptx
            assert spills(binary, architecture) == 0


# Schedules and refusals


def test_schedules_can_be_enumerated() -> None:
    chain = attention(8, 1024, 1024, 128, dtype="f16")
    match = tiles(chain, HOPPER)
    schedules = match.schedules()
    assert len(schedules) == len(set(schedules)) > 50
    assert min(map(match.predict, schedules)) == match.predict(schedules[0])
    assert all(match.read(schedule.to_json()) == schedule for schedule in (schedules[0], schedules[-1]))
    smaller = tiles(chain, DEVICES["sm_86"]).schedules()
    assert max(s.block_stream * s.num_stages for s in smaller) < max(s.block_stream * s.num_stages for s in schedules)


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (attention(2, 64, 64, 16, dtype="f64"), "s is a matrix product in f64"),
        (Chain((Axis("i", None), Axis("j", 4)), (Input("x", ("i", "j"), "f32"),),
               (Floats().reduce("s", "i", "j", "add", Floats().x),), ("s",)), "sizes of i are only known"),
        (Chain((Axis("i", 3), Axis("j", 4)), (Input("x", ("i", "j"), "f32"),),
               (Floats().reduce("s", "i", "j", "add", Floats().op("lgamma", Floats().x)),), ("s",)),
         "no code for math.lgamma"),
    ],
)  # fmt: skip
def test_refusals_say_why(chain: Chain, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        source(chain)


def test_tanh_keeps_its_precision(tmp_path: Path) -> None:
    f = Floats()
    chain = Chain(
        (Axis("i", 4), Axis("j", 512)),
        (Input("x", ("i", "j"), "f32"),),
        (f.reduce("y", "i", "j", "max", f.op("tanh", f.x)),),
        ("y",),
    )
    x = torch.stack([torch.full((512,), value) for value in (1e-6, 0.39, CAP / 100, -3.0)])
    kernel = source(chain)
    (got,) = interpreted(tmp_path, [(kernel, [x], torch.tanh)])
    exact = torch.tanh(x.double()).amax(-1)
    assert ((got.double() - exact).abs() <= 8 * exact.abs() * 2**-24).all()
