"""Kernels for CPUs against torch: every shape of code, lengths around the vector width, infinities and NaN."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from fred_chains import (
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
from limits import part, some
from torch import Tensor

from covan_mlir.fred.chain import Axis, Chain, Input
from covan_mlir.lowering.kernels.cpu.contraction import contraction, stack
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.reductions.redundant_precision import without_redundant_precision
from covan_mlir.lowering.kernels.reductions.sweeps import Sweeps
from covan_mlir.lowering.kernels.select import Choices, Selection, choices, select
from covan_mlir.lowering.kernels.standalone import Standalone, compile_text, program
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.host import host

MACHINE = dataclasses.replace(host(), cores=2)
LENGTHS = (1, 15, 16, 17, 1023)
NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}


def selection(chain: Chain, name: str = "k", machine: Machine = MACHINE, **changes: Any) -> Selection:
    """The only template's kernel for a chain, with its own choice of a schedule, changed."""
    choice = choices(chain, CpuTarget(machine))
    assert isinstance(choice, Choices), choice
    (candidate,) = choice.candidates
    written = candidate.write(dataclasses.replace(candidate.first, **changes), name)
    assert isinstance(written, Selection), written
    return written


def kernel(chain: Chain, name: str = "k", machine: Machine = MACHINE, **changes: Any) -> Executable:
    return selection(chain, name, machine, **changes).executable


def run(alone: Standalone, name: str, inputs: list[Tensor]) -> np.ndarray[Any, Any]:
    result = alone[name](*(alone.buffer(array(x)) for x in inputs))
    return np.asarray(result.to_host())


def array(x: Tensor) -> np.ndarray[Any, Any]:
    return x.float().numpy().astype(NUMPY["bf16"]) if x.dtype == torch.bfloat16 else x.numpy()


def close(got: np.ndarray[Any, Any], torchs: Tensor, exact: Tensor) -> None:
    """At most four times torch's own error, or that of a unit in the last place of the largest value.

    IREE's workers flush denormals, so the smallest normal number is always allowed.
    """
    wide, want = got.astype(np.float64), exact.double().numpy()
    assert wide.shape == want.shape
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(wide), np.isinf(torchs.double().numpy()))
    finite = np.isfinite(want) & np.isfinite(wide)
    if finite.any():
        ours = np.abs(wide - want)[finite].max()
        unit = np.abs(want[finite]).max() * float(torch.finfo(torchs.dtype).eps)
        theirs = np.abs(torchs.double().numpy() - want)[finite].max()
        smallest = float(torch.finfo(torchs.dtype).smallest_normal)
        assert ours <= 4 * max(theirs, unit, smallest), (ours, theirs, unit)


def inputs_of(chain: Chain, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for value in chain.inputs:
        shape = [chain.sizes[axis] or 0 for axis in value.axes]
        if value.dtype == "i1":
            tensors.append(torch.rand(shape, generator=generator) > 0.3)
        elif value.dtype == "i64":
            tensors.append(torch.randint(0, chain.sizes["j"] or 1, shape, generator=generator))
        else:
            tensors.append(torch.randn(shape, generator=generator).to(TORCH[value.dtype]))
    return tensors


def wider(inputs: list[Tensor]) -> list[Tensor]:
    return [x.double() if x.is_floating_point() else x for x in inputs]


@pytest.mark.parametrize("length", LENGTHS)
def test_rows_agree_with_torch(length: int) -> None:
    cases = row_cases(5, length)
    alone = Standalone([kernel(chain, name) for name, (chain, _) in cases.items()])
    for name, (chain, reference) in cases.items():
        inputs = inputs_of(chain)
        close(run(alone, name, inputs), reference(*inputs), reference(*wider(inputs)))


@pytest.mark.parametrize("lane", [0, 1])
def test_sizes_known_at_run_time_only(lane: int) -> None:
    """Lanes along the reduced axis and along the kept one; rows of special values, at sizes around the vector's."""
    chain, _ = row_cases(2, 2)["softmax"]
    if lane == 0:
        turned = {value.name: value.axes[::-1] for value in (*chain.inputs, *chain.steps) if len(value.axes) == 2}
        inputs = tuple(dataclasses.replace(value, axes=turned[value.name]) for value in chain.inputs)
        steps = tuple(dataclasses.replace(s, axes=turned.get(s.name, s.axes)) for s in chain.steps)
        chain = dataclasses.replace(chain, inputs=inputs, steps=steps)
    chain = dataclasses.replace(chain, axes=tuple(dataclasses.replace(axis, size=None) for axis in chain.axes))
    alone = Standalone([kernel(chain)])
    for rows, length in itertools.product((1, 3, 16, 65), (1, 15, 16, 17, 130)):
        x = torch.randn(rows, length)
        x[0, -1] = -torch.inf
        x[-1, 0] = torch.nan if rows > 1 else 0.0
        x[rows // 2, :] = -torch.inf if rows > 2 else x[rows // 2, :]
        x = x if lane else x.T.contiguous()
        close(run(alone, "k", [x]), torch.softmax(x, lane), torch.softmax(x.double(), lane))


@pytest.mark.parametrize(("rows", "length"), [(511, 1000), (8, 128), (2, 32768), (4, 48)])
def test_rows_of_other_shapes(rows: int, length: int) -> None:
    cases = {
        name: case for name, case in row_cases(rows, length).items() if name in ("softmax", "layer_norm", "entropy")
    }
    alone = Standalone([kernel(chain, name) for name, (chain, _) in cases.items()])
    for name, (chain, reference) in cases.items():
        inputs = inputs_of(chain)
        close(run(alone, name, inputs), reference(*inputs), reference(*wider(inputs)))


def test_rows_with_infinities_and_nan() -> None:
    inf, nan = math.inf, math.nan
    names = ("softmax", "log_softmax", "logsumexp", "layer_norm", "var", "entropy")
    for length in (1, 17, 70):
        rows = torch.randn(12, length, generator=torch.Generator().manual_seed(1))
        for n, value in enumerate((inf, -inf, nan)):
            rows[n] = value
            rows[3 + n, length // 2] = value
        rows[6] = 3.0
        rows[7] *= 1e30
        rows[8] *= 1e-30
        rows[9] = 1e-40
        rows[10, : length // 2] = -inf
        rows[11] = torch.linspace(-200, 200, length)
        cases = {name: row_cases(12, length)[name] for name in names}
        alone = Standalone([kernel(chain, name) for name, (chain, _) in cases.items()])
        for name, (chain, reference) in cases.items():
            inputs = [rows, *inputs_of(chain)[1:]]
            got, torchs, exact = run(alone, name, inputs), reference(*inputs), reference(*wider(inputs))
            for n in range(12):
                if n == 7 and name in ("layer_norm", "var"):
                    continue  # overflows in f32, or not, as the order of the sum wants
                close(got[n : n + 1], torchs[n : n + 1], exact[n : n + 1])


def test_variances_are_as_exact_as_torchs() -> None:
    # A mean far from 0 leaves no bits of f32 for the deviations; equal values have none.
    x = torch.randn(5, 1000, generator=torch.Generator().manual_seed(2))
    rows = torch.stack([x[0], x[1] * 1e-3 + 100, x[2] * 1e-2 + 1e4, torch.full((1000,), 0.1), x[4] * 1e18])
    chain, reference = row_cases(5, 1000)["var"]
    got, torchs, exact = run(Standalone([kernel(chain)]), "k", [rows]), reference(rows), reference(rows.double())
    for n in range(5):
        close(got[n : n + 1], torchs[n : n + 1], exact[n : n + 1])


def test_a_sum_with_one_term_is_that_term() -> None:
    chain, _ = row_cases(6, 40)["cross_entropy"]
    assert Sweeps(chain, picks=True).count == Sweeps(chain).count - 1
    x, t = inputs_of(chain)
    t[:3] = torch.tensor([0, 39, 17])
    expected = -torch.log_softmax(x.double(), -1)[torch.arange(6), t]
    t[3:] = torch.tensor([40, -100, -1])  # no position is any of these: a sum of zeros
    expected[3:] = 0
    np.testing.assert_allclose(run(Standalone([kernel(chain)]), "k", [x, t]), expected, rtol=1e-6)


def test_a_sum_that_is_taken_in_two_precisions_is_taken_once() -> None:
    chain = row_cases(3, 40)["layer_norm"][0]
    once = without_redundant_precision(chain)
    assert [step.name for step in chain.reductions] == ["ws", "wq", "s"]
    assert [step.name for step in once.reductions] == ["ws", "wq"]
    late = dataclasses.replace(chain, steps=(chain.steps[6], *chain.steps[:6], *chain.steps[7:]))
    assert [step.name for step in late.reductions] == ["s", "ws", "wq"]
    assert [step.name for step in without_redundant_precision(late).reductions] == ["ws", "wq"]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (7, 15), (33, 70), (16, 64), (100, 17)])
def test_reductions_over_an_axis_that_is_not_contiguous(rows: int, length: int, transposed: bool) -> None:
    chain, reference = column_softmax(rows, length, transposed=transposed)
    selected = selection(chain)
    assert selected.schedule["shape"] == "columns"
    inputs = inputs_of(chain)
    close(run(Standalone([selected.executable]), "k", inputs), reference(*inputs), reference(*wider(inputs)))


def test_two_inputs_and_a_row_result() -> None:
    chain, reference = cosine_similarity(9, 333)
    inputs = inputs_of(chain)
    close(run(Standalone([kernel(chain)]), "k", inputs), reference(*inputs), reference(*wider(inputs)))


def test_several_axes_are_reduced() -> None:
    f = Floats()
    over = ("c", "j")
    steps = (
        dataclasses.replace(f.reduce("s", "i", "j", "add", f.x), over=over),
        f.map("mu", "i", f.op("divf", f.s, f.c(3.0 * 50))),
        dataclasses.replace(
            f.reduce("q", "i", "j", "add", f.op("mulf", f.op("subf", f.x, f.mu), f.op("subf", f.x, f.mu))), over=over
        ),
        f.map("r", "i", f.op("rsqrt", f.op("addf", f.op("divf", f.q, f.c(3.0 * 50)), f.c(1e-5)))),
        f.map("y", "icj", f.op("mulf", f.op("mulf", f.op("subf", f.x, f.mu), f.r), f.g)),
    )
    axes = (Axis("i", 4), Axis("c", 3), Axis("j", 50))
    chain = Chain(axes, (Input("x", ("i", "c", "j"), "f32"), Input("g", ("c",), "f32")), steps, ("y",))
    x, g = inputs_of(chain)

    def reference(x: Tensor, g: Tensor) -> Tensor:
        return torch.nn.functional.group_norm(x.reshape(1, 12, 50), 4).reshape(4, 3, 50) * g[None, :, None]

    close(run(Standalone([kernel(chain)]), "k", [x, g]), reference(x, g), reference(x.double(), g.double()))


SHAPES = ((3, 70, 32, 1), (2, 143, 20, 4), (2, 17, 64, 1), (1, 128, 17, 2))
"""(heads, keys, depth, queries that share a head)"""


@pytest.mark.parametrize(
    ("variant", "queries", "shapes"),
    [
        *((variant, 70, tuple(some(SHAPES, 2))) for variant in VARIANTS),
        *part(
            ((variant, 1, SHAPES[:2]) for variant in VARIANTS), kept=[("alibi", 1, SHAPES[:2]), ("bool", 1, SHAPES[:2])]
        ),
        ("causal", 5, SHAPES),
    ],
)
def test_attention_agrees_with_torch(variant: str, queries: int, shapes: tuple[tuple[int, ...], ...]) -> None:
    chains = {
        f"k{n}": attention(heads, queries, keys, depth, variant, groups=groups)
        for n, (heads, keys, depth, groups) in enumerate(shapes)
    }
    alone = Standalone([kernel(chain, name) for name, chain in chains.items()])
    for name, chain in chains.items():
        inputs = inputs_of(chain)
        torchs, exact = plain_attention(variant, *inputs), plain_attention(variant, *wider(inputs))
        close(run(alone, name, inputs), torchs, exact)


@pytest.mark.parametrize("keys", LENGTHS)
def test_attention_with_any_number_of_keys(keys: int) -> None:
    chains = {f"k{queries}": attention(2, queries, keys, 16) for queries in (1, 15, 16, 17)}
    alone = Standalone([kernel(chain, name) for name, chain in chains.items()])
    for name, chain in chains.items():
        inputs = inputs_of(chain)
        close(run(alone, name, inputs), plain_attention("global", *inputs), plain_attention("global", *wider(inputs)))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_attention_in_other_precisions(dtype: str) -> None:
    chains = {f"k{queries}": attention(2, queries, 77, 24, "causal", dtype=dtype) for queries in (1, 40)}
    alone = Standalone([kernel(chain, name) for name, chain in chains.items()])
    for name, chain in chains.items():
        inputs = inputs_of(chain)
        close(run(alone, name, inputs), plain_attention("causal", *inputs), plain_attention("causal", *wider(inputs)))


@pytest.mark.parametrize("queries", [3, 40])
def test_attention_with_masked_rows_infinities_and_nan(queries: int) -> None:
    chain = attention(2, queries, 150, 16, "bias")
    q, k, v, bias = inputs_of(chain)
    bias[0, 0] = -math.inf  # nothing is seen
    bias[0, 1, :140] = -math.inf  # nothing of the first blocks is seen
    bias[0, 2, 100:] = -math.inf
    bias[1, 0, 75] = math.nan
    bias[1, 1, 75] = math.inf
    bias[1, 2] = -1e9
    got = run(Standalone([kernel(chain)]), "k", [q, k, v, bias])
    torchs, exact = plain_attention("bias", q, k, v, bias), plain_attention("bias", *wider([q, k, v, bias]))
    for head in range(2):
        for row in range(3):
            at = (slice(head, head + 1), slice(row, row + 1))
            close(got[at], torchs[at], exact[at])


@pytest.mark.parametrize("variant", part(VARIANTS, kept=("causal", "bias", "window")))
def test_loops_in_parts_are_merged(variant: str) -> None:
    shapes = [(1, 1, 700, 20, 4, 3), (2, 2, 90, 144, 1, 2)]
    chains = {
        f"k{n}": (attention(heads, queries, keys, depth, variant, groups=groups), split)
        for n, (heads, queries, keys, depth, groups, split) in enumerate(shapes)
    }
    # Short blocks, so that there are parts of which a mask leaves nothing.
    alone = Standalone([kernel(chain, name, split=split, block=32) for name, (chain, split) in chains.items()])
    for name, (chain, _) in chains.items():
        inputs = inputs_of(chain)
        torchs, exact = plain_attention(variant, *inputs), plain_attention(variant, *wider(inputs))
        close(run(alone, name, inputs), torchs, exact)


def test_parts_are_merged_for_any_batch() -> None:
    known = attention(1, 1, 700, 20, "causal", groups=4)
    axes = tuple(dataclasses.replace(axis, size=None if axis.name == "h" else axis.size) for axis in known.axes)
    alone = Standalone([kernel(dataclasses.replace(known, axes=axes), split=3, block=32)])
    for heads in (1, 3, 8):
        inputs = inputs_of(attention(heads, 1, 700, 20, "causal", groups=4))
        torchs, exact = plain_attention("causal", *inputs), plain_attention("causal", *wider(inputs))
        close(run(alone, "k", inputs), torchs, exact)


def test_parts_of_masked_rows_infinities_and_nan() -> None:
    chain = attention(5, 1, 150, 16, "bias")
    q, k, v, bias = inputs_of(chain)
    bias[0] = -math.inf
    bias[1, 0, :140] = -math.inf
    bias[2, 0, 20:] = -math.inf
    bias[3, 0, 75] = math.nan
    bias[4, 0, 75] = math.inf
    got = run(Standalone([kernel(chain, split=4, block=32)]), "k", [q, k, v, bias])
    torchs, exact = plain_attention("bias", q, k, v, bias), plain_attention("bias", *wider([q, k, v, bias]))
    for head in range(5):
        close(got[head : head + 1], torchs[head : head + 1], exact[head : head + 1])


def test_few_rows_are_split_over_the_cores() -> None:
    machine = dataclasses.replace(MACHINE, cores=4)

    def parts(chain: Chain) -> int:
        split: int = selection(chain, machine=machine).schedule["split"]
        return split

    assert parts(attention(1, 1, 16384, 64)) % 4 == 0  # one head: as many workgroups
    assert parts(attention(1, 1, 16384, 64, groups=8)) % 4 == 0
    assert parts(attention(8, 1, 16384, 64)) == 1
    assert parts(attention(1, 1, 128, 64)) == 1


def test_rows_that_share_no_keys() -> None:
    chain = one_query(3, 70, 20)
    inputs = inputs_of(chain)
    got = run(Standalone([kernel(chain)]), "k", inputs)
    close(got, plain_one_query(*inputs), plain_one_query(*(x.double() for x in inputs)))


def growth(call: Callable[[], object]) -> int:
    """Bytes by which the process' resident memory peaks above what it was. The runtime's statistics leave out
    transient buffers."""

    def line(name: str) -> int:
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(row.split()[1]) * 1024 for row in status if row.startswith(name))

    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = line("VmRSS")
    result = call()
    peak = line("VmHWM")
    del result
    return peak - before


_SCORES = """
func.func @scores_main(%q: tensor<2048x64xf32>, %k: tensor<64x2048xf32>, %v: tensor<2048x64xf32>)
    -> tensor<2048x64xf32> {
  %zero = arith.constant 0.0 : f32
  %s0 = tensor.splat %zero : tensor<2048x2048xf32>
  %s = linalg.matmul ins(%q, %k : tensor<2048x64xf32>, tensor<64x2048xf32>)
    outs(%s0 : tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %o0 = tensor.splat %zero : tensor<2048x64xf32>
  %o = linalg.matmul ins(%s, %v : tensor<2048x2048xf32>, tensor<2048x64xf32>)
    outs(%o0 : tensor<2048x64xf32>) -> tensor<2048x64xf32>
  return %o : tensor<2048x64xf32>
}
"""


def _growths() -> tuple[int, int, int]:
    """What attention over 2048 keys allocates, what it may, and what the same with a matrix of scores allocates."""
    chain = attention(1, 2048, 2048, 64)
    (candidate,) = choices(chain, CpuTarget(MACHINE)).candidates
    executable = kernel(chain)
    q, k, v = inputs_of(chain)
    alone, other = Standalone([executable]), Standalone([], code=compile_text(_SCORES))
    ours = [alone.buffer(array(x)) for x in (q, k, v)]
    plain = [other.buffer(array(x)) for x in (q[0], k[0].T.contiguous(), v[0])]
    outputs = executable.outputs[0].shape[1] * executable.outputs[0].shape[2] * 4
    task = contraction(chain)
    tiles = MACHINE.cores * stack(task.nominal, MACHINE, candidate.first, task.roles)
    allowed = int(outputs + 0.2 * candidate.match.cost(candidate.first).bytes + tiles + (1 << 20))
    return growth(lambda: alone["k"](*ours)), allowed, growth(lambda: other["scores"](*plain))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of resident memory is read from Linux")
def test_no_matrix_of_scores_is_allocated() -> None:
    # In a process of its own: memory that other tests freed and that is still resident would be used again.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        fused, allowed, scores = pool.submit(_growths).result()
    assert fused <= allowed
    assert scores >= 2048 * 2048 * 4  # what the measurement shows where there is one


def test_masks_that_compare_positions_bound_the_loop() -> None:
    full, causal, window = (
        selection(attention(1, 1024, 1024, 16, mask)).cost.flops for mask in ("global", "causal", "window")
    )
    assert causal == pytest.approx(full * 1025 / 2048)
    assert window < full / 20


@pytest.mark.parametrize("changes", [{"vectors": 2, "unroll": 6}, {"vectors": 1, "unroll": 1}, {"block": 20}])
def test_schedules_do_not_change_what_is_computed(changes: dict[str, int]) -> None:
    chain = attention(2, 70, 90, 16, "causal")
    inputs = inputs_of(chain)
    got = run(Standalone([kernel(chain, **changes)]), "k", inputs)
    close(got, plain_attention("causal", *inputs), plain_attention("causal", *wider(inputs)))


def test_narrow_vectors_compute_the_same() -> None:
    machine = PRESETS["avx2"]
    chains = {
        "a": attention(2, 30, 41, 16),
        "b": attention(2, 1, 41, 16),
        "e": attention(1, 40, 150, 128),
        "f": attention(1, 1, 20000, 128),
        "c": row_cases(3, 37)["softmax"][0],
        "d": row_cases(3, 37, "f64")["softmax"][0],
    }
    alone = Standalone([kernel(chain, name, machine) for name, chain in chains.items()])
    for name, chain in chains.items():
        inputs = inputs_of(chain)

        def reference(*x: Tensor) -> Tensor:
            return plain_attention("global", *x) if len(x) > 1 else torch.softmax(x[0], -1)

        close(run(alone, name, inputs), reference(*inputs), reference(*wider(inputs)))


def test_arm_gets_an_object() -> None:
    machine = PRESETS["neon"]
    chains = [attention(2, 70, 41, 24, "causal"), attention(2, 1, 41, 24), row_cases(3, 37)["softmax"][0]]
    chains += [attention(2, 70, 300, 128), attention(1, 1, 20000, 128)]
    target = (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu",
        "--iree-llvmcpu-target-cpu-features=+neon",
        "--iree-llvmcpu-stack-allocation-limit=524288",
        "--iree-llvmcpu-link-embedded=true",
    )
    text = program([kernel(chain, f"k{n}", machine) for n, chain in enumerate(chains)])
    code = compile_text(text, target=target)
    at = code.find(b"\x7fELF")
    assert at >= 0
    assert int.from_bytes(code[at + 18 : at + 20], "little") == 183  # EM_AARCH64
    # mrs xN, fpcr: a team's threads compute as the caller does.
    assert re.search(rb"[\x00-\x1f]\x44\x3b\xd5", code)


def test_refusals_say_why() -> None:
    f = Floats()
    empty = Chain(
        (Axis("i", 0), Axis("j", 4)),
        (Input("x", ("i", "j"), "f32"),),
        (f.reduce("s", "i", "j", "add", f.x),),
        ("s",),
    )
    refused = select(empty, "k", CpuTarget(MACHINE), always=True)
    assert isinstance(refused, Refusal)
    assert "an axis is empty" in refused.reason
    strange = dataclasses.replace(
        empty, axes=(Axis("i", 3), Axis("j", 4)), steps=(f.reduce("s", "i", "j", "add", f.op("lgamma", f.x)),)
    )
    refused = select(strange, "k", CpuTarget(MACHINE), always=True)
    assert isinstance(refused, Refusal)
    assert "math.lgamma" in refused.reason
