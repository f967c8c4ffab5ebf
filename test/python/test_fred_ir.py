"""Chains of reductions in IR: raised from what torch-mlir makes of models, lowered again, embedded as kernels."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from limits import part
from lowered import linalg
from torch import Tensor, nn
from torch.nn import functional as F
from torch_mlir import ir

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.dialects.fred_chain import read_chain, write_chain
from covan_mlir.dialects.fred_limits import MAX_INPUTS, MAX_OUTPUTS
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering import stages
from covan_mlir.lowering.kernels import choice
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.passes.framework.pipeline import parse_pipeline
from covan_mlir.passes.raising.axis_groups import AxisGroups


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(*args)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ v


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    at = torch.arange(scores.shape[-1])
    ago = at[:, None] - at[None, :]
    return torch.softmax(scores.masked_fill((ago < 0) | (ago > 4), float("-inf")), -1) @ v


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    at = torch.arange(scores.shape[-1])
    slope = 2.0 ** (-8.0 / scores.shape[1] * (torch.arange(scores.shape[1]) + 1))
    return torch.softmax(scores + slope[:, None, None] * (at[None, :] - at[:, None]), -1) @ v


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(20 * torch.tanh(scores / 20), -1) @ v


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.25 + mask, -1) @ v


def entropy(x: Tensor) -> Tensor:
    return -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1)


def weighted_variance(x: Tensor, y: Tensor) -> Tensor:
    p = torch.softmax(x, -1)
    return (p * y * y).sum(-1) - (p * y).sum(-1) ** 2


def pooled(x: Tensor, w: Tensor) -> Tensor:
    return (torch.softmax(x @ w, -1).unsqueeze(-1) * x).mean(1)


def normalised_norm(x: Tensor) -> Tensor:
    y = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)
    return y.pow(2).sum(-1)


def heads(count: int = 2, length: int = 12, width: int = 8) -> Tensor:
    return torch.randn(1, count, length, width)


ROW = (5, 7)
# name: what it computes, inputs, and the reductions of each chain that is found in it
CASES: dict[str, tuple[Callable[..., Tensor], Callable[[], tuple[Tensor, ...]], list[int]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), lambda: (torch.randn(ROW),), [2]),
    "softmax of columns": (lambda x: torch.softmax(x, 0), lambda: (torch.randn(ROW),), [2]),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), lambda: (torch.randn(ROW),), [2]),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), lambda: (torch.randn(ROW),), [2]),
    "layer_norm": (lambda x: F.layer_norm(x, (7,)), lambda: (torch.randn(2, 5, 7),), [3]),
    "rms_norm": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), lambda: (torch.randn(ROW),), [1]),
    "group_norm": (lambda x: F.group_norm(x, 2), lambda: (torch.randn(2, 4, 3, 3),), [3]),
    "var": (lambda x: x.var(-1), lambda: (torch.randn(ROW),), [2]),
    "std": (lambda x: x.std(-1), lambda: (torch.randn(ROW),), [2]),
    "mean": (lambda x: x.mean((0, 2)), lambda: (torch.randn(2, 5, 7),), [1]),
    "cosine": (lambda x, y: F.cosine_similarity(x, y, -1), lambda: (torch.randn(ROW), torch.randn(ROW)), [3]),
    "cross_entropy": (
        lambda x, t: F.cross_entropy(x, t),
        lambda: (torch.randn(ROW), torch.tensor([1, 2, 3, -100, 5])),
        [3, 1, 1],
    ),
    "entropy of a softmax": (entropy, lambda: (torch.randn(ROW),), [3]),
    "weighted variance": (weighted_variance, lambda: (torch.randn(ROW), torch.randn(ROW)), [4]),
    "norm of a normalised row": (normalised_norm, lambda: (torch.randn(ROW),), [4]),
    "pooling": (pooled, lambda: (torch.randn(2, 5, 7), torch.randn(7)), [1, 3]),
    "attention": (attention, lambda: (heads(), heads(), heads()), [4]),
    "attention, one query": (attention, lambda: (heads(2, 1), heads(), heads()), [4]),
    "causal": (causal, lambda: (heads(), heads(), heads()), [4]),
    "window": (window, lambda: (heads(), heads(), heads()), [4]),
    "alibi": (alibi, lambda: (heads(), heads(), heads()), [4]),
    "soft cap": (capped, lambda: (heads(), heads(), heads()), [4]),
    "grouped queries": (grouped, lambda: (heads(4), heads(), heads()), [4]),
    "additive mask": (masked, lambda: (heads(), heads(), heads(), torch.randn(1, 1, 12, 12)), [4]),
    "sdpa": (F.scaled_dot_product_attention, lambda: (heads(), heads(), heads()), [5]),
}


def chains(module: ir.Module) -> list[ir.Operation]:
    chain_ops: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "fred.chain":
            chain_ops.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return chain_ops


def run_iree(module: ir.Module, args: tuple[Tensor, ...]) -> np.ndarray[Any, Any]:
    import iree.compiler as compiler
    import iree.runtime as runtime

    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]
    program = compiler.compile_str(str(module), target_backends=["llvm-cpu"], extra_args=flags)
    loaded = runtime.load_vm_flatbuffer(program, driver="local-sync")
    return np.asarray(loaded.main(*[arg.numpy() for arg in args]).to_host())


@pytest.mark.parametrize("name", part(CASES, kept=list(CASES)[::2]))
def test_raised_and_lowered_again_computes_the_same(name: str) -> None:
    function, inputs, reductions = CASES[name]
    torch.manual_seed(0)
    args = inputs()
    module = linalg(Function(function), args)
    parse_pipeline("builtin.module(func.func(fred-raise))").run(module)
    assert [len(read_chain(op).reductions) for op in chains(module)] == reductions
    parse_pipeline("builtin.module(func.func(fred-lower))").run(module)
    assert not chains(module)
    expected = function(*args).numpy()
    np.testing.assert_allclose(run_iree(module, args), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "causal", "grouped queries", "alibi"])
def test_chain_as_data_and_as_an_operation(name: str) -> None:
    function, inputs, _ = CASES[name]
    module = linalg(Function(function), inputs())
    parse_pipeline("builtin.module(func.func(fred-raise))").run(module)
    for op in chains(module):
        chain = read_chain(op)
        with op.context, op.location, ir.InsertionPoint(op):
            again = write_chain(chain, list(op.operands))
        assert read_chain(again) == chain
        again.verify()
        again.erase()


def test_chain_means_what_the_model_computes() -> None:
    torch.manual_seed(0)
    x = torch.randn(ROW)
    module = linalg(Function(entropy), (x,))
    parse_pipeline("builtin.module(func.func(fred-raise))").run(module)
    (op,) = chains(module)
    chain = read_chain(op)
    (given,) = interpret(chain, {chain.inputs[0].name: x.numpy()}).values()
    np.testing.assert_allclose(given, entropy(x).numpy(), rtol=1e-5)


def test_sizes_known_at_run_time() -> None:
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", min=2)
    model = Function(lambda x: torch.softmax(x, -1))
    module = linalg(model, (torch.randn(5, 7),), {"args": ({0: rows},)})
    parse_pipeline("builtin.module(func.func(fred-raise))").run(module)
    (op,) = chains(module)
    assert [axis.size for axis in read_chain(op).axes] == [None, 7]
    parse_pipeline("builtin.module(func.func(fred-lower))").run(module)
    x = torch.randn(9, 7)
    np.testing.assert_allclose(run_iree(module, (x,)), torch.softmax(x, -1).numpy(), rtol=1e-5)


def many_inputs(x: Tensor, *more: Tensor) -> Tensor:
    y = torch.softmax(x, -1)
    for term in more:
        y = y + torch.sigmoid(term)
    return y


def many_outputs(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.softmax(x, -1)
    return tuple(torch.sin(y * k) for k in range(12))


@pytest.mark.parametrize(("function", "inputs"), [(many_inputs, 32), (many_outputs, 1)])
def test_chains_are_as_wide_as_the_operation_can_be(function: Callable[..., Any], inputs: int) -> None:
    module = linalg(Function(function), tuple(torch.randn(ROW) for _ in range(inputs)))
    parse_pipeline("builtin.module(func.func(fred-raise))").run(module)
    (op,) = chains(module)
    chain = read_chain(op)
    assert len(chain.inputs) == min(inputs, MAX_INPUTS)
    assert len(chain.outputs) == (1 if inputs > 1 else MAX_OUTPUTS)


def test_what_depends_on_positions_only_is_the_compilers() -> None:
    module = linalg(Function(lambda x: x + torch.arange(7.0).square().sum()), (torch.randn(ROW),))
    before = str(module)
    parse_pipeline("builtin.module(func.func(fred-raise))").run(module)
    assert str(module) == before


def test_products_with_weights_are_chains_of_their_own() -> None:
    """They are large."""
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.Softmax(-1)).eval()
    module = linalg(model, (torch.randn(4, 8),))
    parse_pipeline("builtin.module(func.func(fred-raise))").run(module)
    assert [len(read_chain(op).reductions) for op in chains(module)] == [3, 1, 2]


ACTIONS = {
    "attention": ["matmul", "div", "softmax", "matmul_1"],
    "causal": ["matmul", "mul", "masked_fill", "softmax", "matmul_1"],
    "soft cap": ["matmul", "div", "tanh", "softmax", "matmul_1"],
}


@pytest.mark.parametrize("name", ACTIONS)
def test_one_kernel_names_all_its_actions(name: str) -> None:
    function, inputs, _ = CASES[name]
    torch.manual_seed(0)
    args = inputs()
    exe = covan_mlir.compile_module(Function(function), args)
    np.testing.assert_allclose(np.asarray(exe(*args)), function(*args).numpy(), rtol=1e-4, atol=1e-5)
    (site,) = exe.lineage.sites
    assert site.kernel.startswith("fred_")
    assert set(ACTIONS[name]) <= {exe.lineage.actions[action].name for action in site.trace}
    assert exe.verify(), exe.verify()
    assert {exe.lineage.fate(action.name).kind for action in exe.lineage.actions} <= {"dispatched", "view", "folded"}


def test_fusion_can_be_turned_off() -> None:
    x = torch.randn(ROW)
    model = Function(lambda x: torch.softmax(x, -1))
    exe = covan_mlir.compile_module(model, (x,), options=CompileOptions(fuse_reductions=False))
    assert not any(site.kernel.startswith("fred_") for site in exe.lineage.sites)


def test_what_does_not_pay_is_not_fused(caplog: pytest.LogCaptureFixture) -> None:
    model = Function(lambda x: torch.sin(x).sum(-1))
    with caplog.at_level(logging.INFO, "covan_mlir"):
        exe = covan_mlir.compile_module(model, (torch.randn(6),))
    assert not any(site.kernel.startswith("fred_") for site in exe.lineage.sites)
    (message,) = [record.getMessage() for record in caplog.records if "not fused" in record.getMessage()]
    assert "it does not pay: predicted to take" in message
    assert "sum_1 (aten.sum.dim_IntList)" in message
    assert "test_fred_ir.py:" in message
    exe = covan_mlir.compile_module(model, (torch.randn(512, 512),))
    assert [site.kernel[:5] for site in exe.lineage.sites] == ["fred_"]


def test_twins_share_a_kernel() -> None:
    model = Function(lambda x, y: torch.softmax(x, -1) @ torch.softmax(y, -1).T)
    args = (torch.randn(ROW), torch.randn(ROW))
    exe = covan_mlir.compile_module(model, args)
    fused = [site for site in exe.lineage.sites if site.kernel.startswith("fred_")]
    names = {exe.lineage.actions[action].name for site in fused for action in site.trace}
    assert {"softmax", "softmax_1"} <= names
    np.testing.assert_allclose(np.asarray(exe(*args)), model(*args).numpy(), rtol=1e-4, atol=1e-6)
    assert exe.verify(), exe.verify()


def test_what_is_refused_stays_as_it_was(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    module = linalg(Function(attention), (heads(), heads(), heads()))
    before = str(module)
    asked: list[Chain] = []

    def refuse(chain: Chain, *_: object, **__: object) -> Refusal:
        asked.append(chain)
        return Refusal("not today")

    monkeypatch.setattr(choice, "select", refuse)
    with caplog.at_level(logging.INFO, "covan_mlir"):
        parse_pipeline("builtin.module(func.func(fred-raise{target=cpu}),fred-kernels{target=cpu})").run(module)
    said, _ = stages.take_off(module)
    assert str(module) == before
    assert [decision.reason for decision in said] == ["not today"] * len(asked)
    # First with the products of matrices, then without; then these by themselves, with what is behind them or alone.
    assert [len(chain.reductions) for chain in asked][:2] == [4, 2]
    assert {len(chain.reductions) for chain in asked[2:]} == {1}
    assert sum(chain.product for chain in asked) >= 2
    assert "not fused into one kernel: not today" in caplog.text


def test_kernels_are_told_of_as_they_are_decided_on() -> None:
    module = linalg(Function(attention), (heads(), heads(), heads()))
    told: list[str] = []
    with choice.telling(lambda kernel: told.append(kernel.name)):
        parse_pipeline("builtin.module(func.func(fred-raise{target=cpu fuse=always}))").run(module)
        parse_pipeline("builtin.module(fred-kernels{target=cpu fuse=always})").run(module)
    parse_pipeline("builtin.module(func.func(fred-raise{target=cpu fuse=always}))").run(module)
    assert told == re.findall(r"func.func private @(fred_\w+)", str(module))
    assert told


def test_unknown_sizes_are_the_same_only_where_known_ones_tell() -> None:
    axes = AxisGroups()
    known = {size: axes.new(size) for size in (4, 8)}
    rows, more, columns, others = (axes.new(None) for _ in range(4))
    # (rows, 8) as (4, columns) need not have four rows; as (more, 8) it has as many.
    assert not axes.copy().unify([*rows, *known[8]], [*known[4], *columns])
    assert not axes.copy().unify([*rows, *columns], [*more, *others])
    assert axes.unify([*rows, *known[8]], [*more, *axes.new(8)])
    assert axes.leaves(rows) == axes.leaves(more)
    assert axes.unify(columns, [*known[4], *more])
    assert axes.leaves(columns) == axes.leaves([*known[4], *rows])


def test_dimensions_are_unified_through_reshapes() -> None:
    axes = AxisGroups()
    twelve, two, six = axes.new(12), axes.new(2), axes.new(6)
    assert axes.new(1) == []
    assert axes.unify(twelve, [*two, *six])
    assert axes.leaves(twelve) == axes.leaves([*two, *six])
    three = axes.new(3)
    assert axes.unify(six, [*three, *axes.new(2)])
    assert len(axes.leaves(twelve)) == 3
    assert not axes.unify(axes.new(4), axes.new(6))
    unknown, eight = axes.new(None), axes.new(8)
    assert axes.unify(unknown, [*eight, *axes.new(None)])
    assert len(axes.leaves(unknown)) == 2
