"""Kernels of chains for Vulkan: an invocation a row, run on the device that is here (lavapipe in CI)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from fred_chains import Floats, attention, column_softmax, one_query, plain_attention, plain_one_query, row_cases
from limits import part
from test_cpu_kernels import array, close, inputs_of, wider
from torch import Tensor, nn

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.fred.chain import Axis, Chain, Input
from covan_mlir.fred.expression import Apply
from covan_mlir.lowering.kernels.cpu.contraction import contraction
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.reductions.demote import demoted
from covan_mlir.lowering.kernels.select import Selection, select
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.lowering.kernels.vulkan.device import VulkanDevice, device
from covan_mlir.lowering.kernels.vulkan.invocation import INVOCATIONS, MOST
from covan_mlir.lowering.kernels.vulkan.limits import iterations_of_contractions, iterations_of_rows
from covan_mlir.lowering.kernels.vulkan.target import VulkanTarget
from covan_mlir.lowering.targets import parse
from covan_mlir.runtime import devices, remote

needs_vulkan = pytest.mark.skipif(
    not devices.discover("vulkan"), reason=f"no Vulkan device: {devices.trouble('vulkan')}"
)
LAVAPIPE = device(parse("vulkan:lavapipe").devices)
NVIDIA = device(parse("vulkan:nvidia").devices)
Reference = Callable[..., Tensor]


def chosen(gpu: VulkanDevice, always: bool, chain: Chain, name: str) -> Selection | Refusal:
    return select(chain, name, VulkanTarget(gpu), always=always)


def computed(cases: list[tuple[Chain, list[Tensor]]]) -> list[np.ndarray]:
    """The first output of each chain, of one program for all."""
    kernels = []
    for n, (chain, _) in enumerate(cases):
        choice = chosen(LAVAPIPE, True, demoted(chain), f"k{n}")  # as in programs: the device has no f64
        assert isinstance(choice, Selection), choice
        kernels.append(choice.executable)
    alone = Standalone(kernels, "vulkan", target=parse("vulkan"))
    outputs = []
    for n, ((_, inputs), kernel) in enumerate(zip(cases, kernels, strict=True)):
        result = alone[f"k{n}"](*(alone.buffer(array(x)) for x in inputs))
        names = {"f32": "float32", "f16": "float16", "i1": "bool"}
        outputs.append(remote.to_numpy(alone.device, result._buffer_view, names[kernel.outputs[0].dtype]))
    return outputs


def agree(cases: list[tuple[Chain, Reference]]) -> None:
    """All chains against torch in the same precision and in double."""
    given = [(chain, inputs_of(chain)) for chain, _ in cases]
    for (_, inputs), (_, reference), got in zip(given, cases, computed(given), strict=True):
        close(got, reference(*inputs), reference(*wider(inputs)))


@needs_vulkan
def test_rows_agree_with_torch() -> None:
    cases = [case for length in (37,) for case in row_cases(5, length).items()]
    # 0/0 in rows of one, or not, as the rounding of the mean wants
    agree([case for name, case in cases if name != "norm_of_normalised"] + [column_softmax(9, 20)])


@needs_vulkan
def test_attention_agrees_with_torch() -> None:
    cases: list[tuple[Chain, Reference]] = [(one_query(3, 30, 8), plain_one_query)]
    for variant in ("causal", "softcap", "bool", "window"):
        cases.append((attention(1, 40, 40, 40, variant), lambda *x, v=variant: plain_attention(v, *x)))
    cases.append((attention(1, 3, 43, 40, groups=4), lambda *x: plain_attention("global", *x)))
    agree(cases)


@needs_vulkan
def test_rows_with_infinities_and_nan() -> None:
    rows = torch.randn(10, 12, generator=torch.Generator().manual_seed(1))
    for n, value in enumerate((math.inf, -math.inf, math.nan)):
        rows[n] = value
        rows[3 + n, 7] = value
    rows[6] = 3.0
    rows[7, :5] = -math.inf
    rows[8] = torch.linspace(-200, 200, 12)
    cases = [row_cases(10, 12)[name] for name in ("softmax", "logsumexp", "entropy")]
    for (_, reference), got in zip(cases, computed([(chain, [rows]) for chain, _ in cases]), strict=True):
        torchs, exact = reference(rows), reference(rows.double())
        for n in range(10):
            close(got[n : n + 1], torchs[n : n + 1], exact[n : n + 1])


@needs_vulkan
def test_attention_with_masked_rows() -> None:
    chain = attention(1, 4, 11, 8, "bias")
    q, k, v, bias = inputs_of(chain)
    bias[0, 0] = -math.inf  # nothing is seen
    bias[0, 1, :9] = -math.inf
    bias[0, 2, 3] = math.nan
    bias[0, 3] = -1e9
    given = [q, k, v, bias]
    (got,) = computed([(chain, given)])
    torchs, exact = plain_attention("bias", *given), plain_attention("bias", *wider(given))
    for row in range(4):
        close(got[:, row], torchs[:, row], exact[:, row])


FUNCTIONS = ("erf", "expm1", "tanh", "tan", "powf", "exp2", "log10", "rsqrt", "roundeven", "sin")


@needs_vulkan
def test_functions() -> None:
    f = Floats()
    axes, inputs = (Axis("i", 3), Axis("j", 8)), (Input("x", ("i", "j"), "f32"),)
    x = torch.rand(3, 8, generator=torch.Generator().manual_seed(0)) + torch.tensor([1e-4, 0.3, 2.0])[:, None]
    cases = []
    for op in FUNCTIONS:
        expr = Apply("math.powf", (f.x, f.c(2.5)), "f32") if op == "powf" else f.op(op, f.x)
        cases.append((Chain(axes, inputs, (f.reduce("y", "i", "j", "max", expr),), ("y",)), [x]))
    for op, got in zip(FUNCTIONS, computed(cases), strict=True):
        exact = {"powf": lambda t: t**2.5, "roundeven": torch.round}.get(op) or getattr(torch, op)
        # Vulkan allows exp 3 + 2 |x| units, and others more (section "Precision and Operation of SPIR-V Instructions").
        want = exact(x.double()).amax(-1).numpy()
        np.testing.assert_allclose(got, want, rtol=64 * 2**-24, atol=2**-20, err_msg=op)


@needs_vulkan
def test_more_rows_than_workgroups_along_one_axis() -> None:
    rows = MOST * INVOCATIONS + 70
    f = Floats()
    chain = Chain(
        (Axis("i", rows), Axis("j", 1)),
        (Input("x", ("i", "j"), "f32"),),
        (f.reduce("y", "i", "j", "add", f.op("mulf", f.x, f.c(2.0))),),
        ("y",),
    )
    x = torch.arange(rows, dtype=torch.float32)[:, None]
    (got,) = computed([(chain, [x])])
    np.testing.assert_array_equal(got, 2 * x[:, 0].numpy())


# Whole programs


class Model(nn.Module):
    """A norm, causal attention and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(40)

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = nn.functional.scaled_dot_product_attention(self.norm(x), k, v, is_causal=True)
        return torch.softmax(y, -1)


@needs_vulkan
@pytest.mark.parametrize("dtype", part([torch.float32, torch.float16], kept=[torch.float32]))
def test_programs(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(1, 1, 40, 40) for _ in range(3)]
    model = Model()
    with torch.no_grad():
        exact = model.double()(*(x.double() for x in inputs))
        model, given = model.to(dtype), tuple(x.to(dtype) for x in inputs)
        options = CompileOptions(fuse_reductions="always")
        exe = covan_mlir.compile_module(model, given, target="vulkan", options=options)
        close(exe(*given).numpy(), model(*given), exact)
    sites = [site for site in exe.lineage.sites if site.kernel.startswith("fred_")]
    performed = [{exe.lineage.actions[n].op for n in site.trace} for site in sites]
    for op in ("aten.layer_norm.default", "aten.scaled_dot_product_attention.default", "aten.softmax.int"):
        assert any(op in ops for ops in performed)
    assert exe.verify()
    assert all(exe.kernel_code(site) for site in sites)


@needs_vulkan
def test_sizes_that_are_known_at_run_time_only() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

    rows = {0: torch.export.Dim("rows", max=100)}
    options = CompileOptions(fuse_reductions="always")
    exe = covan_mlir.compile_module(
        program, (torch.randn(4, 5),), target="vulkan", options=options, dynamic_shapes={"x": rows}
    )
    assert next(site.kernel for site in exe.lineage.sites).startswith("fred_")
    for shape in ((4, 5), (1, 5), (70, 5)):
        x = torch.randn(shape)
        close(exe(x).numpy(), program(x), program(x.double()))


# Which chains


def longest(chain_of: Callable[[int], Chain]) -> Chain:
    """About the longest chain that lavapipe takes."""

    def iterations(chain: Chain) -> int:
        count = iterations_of_rows(chain) if chain.single_domain else iterations_of_contractions(contraction(chain))
        return count or 0

    few, many = (iterations(chain_of(n)) for n in (64, 128))
    chain = chain_of(64 + 64 * (LAVAPIPE.speed.iterations - few) // (many - few) - 1)
    assert isinstance(chosen(LAVAPIPE, True, chain, "k"), Selection)
    return chain


@needs_vulkan
def test_loops_end_before_the_driver_ends_them() -> None:
    # Mesa's gallivm silently leaves loops when an invocation has run 65535 iterations of all of them.
    shapes: list[tuple[Callable[[int], Chain], Reference]] = [
        (lambda n: row_cases(2, n)["softmax"][0], lambda x: torch.softmax(x, -1)),
        (lambda n: attention(1, 2, n, 64), lambda *x: plain_attention("global", *x)),
        (lambda n: one_query(2, n, 64), plain_one_query),
    ]
    cases = [(longest(chain_of), reference) for chain_of, reference in shapes]
    assert min(max(axis.size or 0 for axis in chain.axes) for chain, _ in cases) > 100
    given = [(chain, inputs_of(chain)) for chain, _ in cases]
    for (_, inputs), (_, reference), got in zip(given, cases, computed(given), strict=True):
        # Sums of thousands of terms, one after the other.
        np.testing.assert_allclose(got, reference(*wider(inputs)).numpy(), rtol=2e-4, atol=1e-6)
    refusal = chosen(LAVAPIPE, True, row_cases(2, 40_000)["softmax"][0], "k")
    assert isinstance(refusal, Refusal)
    assert "leaves loops after 65535" in refusal.reason
    assert isinstance(chosen(NVIDIA, True, row_cases(2, 40_000)["softmax"][0], "k"), Selection)


def test_what_pays() -> None:
    def reason(chain: Chain) -> str:
        choice = chosen(NVIDIA, False, chain, "k")
        return choice.reason if isinstance(choice, Refusal) else ""

    assert reason(column_softmax(4096, 4096)[0]) == ""
    # Invocations side by side are rows side by side, far apart in memory.
    assert "does not pay" in reason(row_cases(4096, 4096)["softmax"][0])
    assert reason(attention(16, 1024, 1024, 64, "causal", dtype="f16")) == ""
    # What our code loses in matrix products is more than memory takes for the scores: 84 ms against 24, measured.
    slower = chosen(LAVAPIPE, False, attention(8, 256, 256, 64), "k")
    assert isinstance(slower, Refusal)
    assert isinstance(chosen(NVIDIA, True, row_cases(4096, 4096)["softmax"][0], "k"), Selection)


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (attention(2, 6, 6, 8, dtype="f64"), "in f64"),
        (attention(1, 8, 8, 4096), "bytes of stack"),
        (Chain((Axis("i", 3), Axis("j", 4)), (Input("x", ("i", "j"), "f32"),),
               (Floats().reduce("s", "i", "j", "add", Floats().op("log1p", Floats().x)),), ("s",)),
         "no code for math.log1p"),
    ],
)  # fmt: skip
def test_refusals(chain: Chain, words: str) -> None:
    refusal = chosen(LAVAPIPE, True, chain, "k")
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason


def test_types_that_a_device_does_not_have() -> None:
    bare = dataclasses.replace(LAVAPIPE, types=frozenset({"fp32", "int32"}))
    refusal = chosen(bare, True, attention(1, 8, 8, 8, dtype="f16"), "k")
    assert isinstance(refusal, Refusal)
    assert "in f16" in refusal.reason


def test_variances_in_double_become_single() -> None:
    f = Floats()
    d = Floats("f64")
    total = d.reduce("s", "i", "j", "add", d.op("mulf", Apply("arith.extf", (f.x,), "f64"), d.c(2.0)))
    steps = (total, f.map("y", "i", Apply("arith.truncf", (d.s,), "f32")))
    chain = Chain((Axis("i", 2), Axis("j", 4)), (Input("x", ("i", "j"), "f32"),), steps, ("y",))
    demoted_chain = demoted(chain)
    assert "f64" not in repr(demoted_chain)
    assert "extf" not in repr(demoted_chain)
    assert "truncf" not in repr(demoted_chain)
    assert demoted(demoted_chain) is demoted_chain


def test_values_in_double_between_kernels_become_single() -> None:
    """IREE demotes what calls of kernels are given and give, too."""
    d = Floats("f64")
    chain = Chain(
        (Axis("i", 2), Axis("j", 4)), (Input("x", ("i", "j"), "f64"),), (d.reduce("s", "i", "j", "add", d.x),), ("s",)
    )
    assert "f64" not in repr(demoted(chain))
