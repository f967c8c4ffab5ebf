"""Gradients of attention: its weights are computed again, a tile at a time, and are in no memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_subst_rules import rule
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import covan_mlir
from covan_mlir.subst.prove import lift, prove
from covan_mlir.training.wide_values import recompute_wide_values

LENGTH, WIDTH, HEADS = 48, 8, 3


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    bias = torch.arange(LENGTH).float() * -0.1
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(bias[:, None] - bias).expand(2, HEADS, -1, -1))


def thinned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.dropout(torch.softmax(q @ k.transpose(-2, -1), -1), 0.25) @ v


def without_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.relu(q @ k.transpose(-2, -1)) @ v


def crossed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of rows that sum to 1, columns are multiplied with values: the gradient's sums are of other elements."""
    return torch.softmax(q @ k.transpose(-2, -1), -1).transpose(-2, -1) @ v


def in_one_matrix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries of all heads read the values of one."""
    weights = torch.softmax(q @ k.transpose(-2, -1), -1).reshape(2, HEADS * LENGTH, LENGTH)
    return (weights @ v[:, 0]).reshape(2, HEADS, LENGTH, WIDTH)


def inputs(length: int = LENGTH) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, HEADS, length, WIDTH, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("attention", [plain, causal, biased, thinned, without_softmax], ids=lambda f: f.__name__)
def test_no_weights_between_forward_and_backward(attention: Callable[..., Tensor]) -> None:
    args = inputs()
    slope = torch.randn(2, HEADS, LENGTH, WIDTH)
    compiled = torch.compile(attention, backend="covan")
    torch.manual_seed(1)
    result = compiled(*args)
    gradients = torch.autograd.grad(result, args, slope)
    torch.manual_seed(1)
    eager = attention(*args)
    torch.testing.assert_close(result, eager, rtol=1e-5, atol=1e-5)
    for got, want in zip(gradients, torch.autograd.grad(eager, args, slope), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    programs = covan_mlir.last_compiled()[-2:]
    for program in programs:
        assert program.verify()
    # One kernel has all products of the forward program, another one those of the backward program.
    for program in programs:
        performed = [[action.op for action in program.lineage.why(site)] for site in program.lineage.sites]
        products = [targets.count("aten.bmm.default") for targets in performed if "aten.bmm.default" in targets]
        assert products == [2 if program is programs[0] else 5]


@pytest.mark.parametrize("attention", [crossed, in_one_matrix], ids=lambda f: f.__name__)
def test_weights_in_other_places(attention: Callable[..., Tensor]) -> None:
    args = inputs()
    slope = torch.randn(2, HEADS, LENGTH, WIDTH)
    gradients = torch.autograd.grad(torch.compile(attention, backend="covan")(*args), args, slope)
    for got, want in zip(gradients, torch.autograd.grad(attention(*args), args, slope), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_the_sum_of_a_row_turns_for_all_sizes() -> None:
    """What softmax's gradient sums of a row: over its positions, or over the features behind them."""
    source = "sum(mul(a, matmul(b, transpose(c, axes=(1, 0)))), axis=1)"
    target = "sum(mul(b, matmul(a, c)), axis=1)"
    assert prove(lift(rule(source, target))).certificate.status == "proved"


def traced(function: Callable[..., Tensor], *, returns: bool = False) -> torch.fx.GraphModule:
    """A function and its gradients as one graph."""

    def joint(q: Tensor, k: Tensor, v: Tensor, tangents: Tensor) -> Any:
        result = function(q, k, v)
        kept = torch.softmax(q @ k.transpose(-2, -1) / 4, -1) if returns else None
        gradients = torch.autograd.grad(result, (q, k, v), tangents)
        return (result, kept, *gradients)

    args = inputs()
    return make_fx(joint, tracing_mode="fake")(*args, torch.randn(2, HEADS, LENGTH, WIDTH))


def again(module: torch.fx.GraphModule) -> list[str]:
    for node in module.graph.find_nodes(op="placeholder"):
        if "tangents" in node.name:
            node.name = "tangents_1"
    recompute_wide_values(module.graph)
    return [node.name for node in module.graph.nodes if "recompute" in node.meta]


def test_what_is_marked() -> None:
    names = again(traced(plain))
    assert any(name.startswith("bmm") for name in names)
    assert any(name.startswith("exp") for name in names)


def test_short_sequences_keep_their_weights() -> None:
    """They are no more than what they come from."""

    def short(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain(q[:, :, :16], k[:, :, :16], v[:, :, :16]).sum().expand(2, HEADS, LENGTH, WIDTH)

    assert again(traced(short)) == []


def test_weights_that_others_read_are_kept() -> None:
    def returned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.softmax(q @ k.transpose(-2, -1), -1)
        return weights @ v + weights.cumsum(-1)[..., :WIDTH]

    assert again(traced(returned)) == []


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH * HEADS, 3 * WIDTH * HEADS), nn.Linear(WIDTH * HEADS, 2)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (y.view(batch, length, HEADS, WIDTH).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


def test_a_step_computes_them_again_as_well() -> None:
    """Common subexpression elimination makes one of both; each has its own again."""
    torch.manual_seed(0)
    model = Layer()
    eager = copy.deepcopy(model)
    x, y = torch.randn(2, LENGTH, WIDTH * HEADS), torch.randn(2, LENGTH, 2)
    step = covan_mlir.compile_training_step(model, F.mse_loss, lambda p: torch.optim.SGD(p, lr=0.1), (x, y))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(3):
        loss = F.mse_loss(eager(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert float(step(x, y)) == pytest.approx(float(loss.detach()), rel=1e-5)
    assert step.executable.verify()
    lineage = step.executable.lineage
    performed = [[action.op for action in lineage.why(site)] for site in lineage.sites]
    assert [targets.count("aten.bmm.default") for targets in performed if "aten.bmm.default" in targets] == [2, 5]
