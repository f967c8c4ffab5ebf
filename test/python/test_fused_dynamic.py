"""Fused reductions whose sizes are known at run time only: compiled once, they compute what eager does at any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

import covan_mlir

SIZES = (1, 2, 15, 16, 17, 1023)
Row = Callable[[Tensor], Tensor]


class Rows(nn.Module):
    """Each function of an input of its own, so that none of them shares a kernel."""

    def __init__(self, functions: Sequence[Row]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(function(x) for function, x in zip(self.functions, inputs, strict=True))


def entropy(x: Tensor) -> Tensor:
    logs = torch.log_softmax(x, -1)
    return -(logs.exp() * logs).sum(-1)


def layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def spread(x: Tensor) -> Tensor:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + 1)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def over_rows(x: Tensor) -> Tensor:
    return torch.softmax(x, -2)


def norm(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def variance(x: Tensor) -> Tensor:
    return x.var(-1, correction=0)


def loss(x: Tensor) -> Tensor:
    return F.cross_entropy(x, x.argmin(-1), reduction="none")


def check(
    model: nn.Module, example: Sequence[Tensor], dynamic: Any, calls: Sequence[Sequence[Tensor]], kernels: int
) -> covan_mlir.Executable:
    exe = covan_mlir.compile_module(model, (list(example),), dynamic_shapes=([dynamic] * len(example),))
    sites = [site for site in exe.lineage.sites if site.phase == "call"]
    assert sum(site.kernel.startswith("fred_") for site in sites) == kernels, [site.kernel for site in sites]
    for inputs in calls:
        with torch.no_grad():
            expected = model(list(inputs))
        for n, (a, b) in enumerate(zip(exe(list(inputs)), expected, strict=True)):
            np.testing.assert_allclose(np.asarray(a), b.numpy(), rtol=1e-4, atol=1e-5, err_msg=f"{n} {tuple(b.shape)}")
    assert exe.verify(), exe.verify()
    return exe


def normal(count: int, *shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def test_number_of_rows() -> None:
    functions = [softmax, layer_norm, norm, entropy, spread, loss]
    calls = [normal(len(functions), n, 100) for n in SIZES]
    check(Rows(functions), normal(len(functions), 8, 100), {0: Dim("n")}, calls, len(functions))


def test_length_of_rows() -> None:
    """The length is computed with, too: what is divided by it is part of the chain."""
    functions = [softmax, layer_norm, norm, entropy, spread, variance, loss]
    calls = [normal(len(functions), 30, n) for n in SIZES]
    exe = check(Rows(functions), normal(len(functions), 30, 8), {1: Dim("n")}, calls, len(functions))
    assert [len(exe.lineage.where(name)) for name in ("layer_norm", "mean", "var")] == [1, 1, 1]


class Attention(nn.Module):
    """Causal attention of many rows, and attention of one row over many keys."""

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        q, k, v, last, keys, values = inputs
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return causal, F.scaled_dot_product_attention(last, keys, values)


def test_attention_of_any_batch() -> None:
    def inputs(batch: int) -> list[Tensor]:
        shapes = [(batch, 2, 40, 16)] * 3 + [(batch, 2, 1, 16)] + [(batch, 2, 2048, 16)] * 2
        return [normal(1, *shape)[0] + n for n, shape in enumerate(shapes)]

    exe = check(Attention(), inputs(3), {0: Dim("n")}, [inputs(n) for n in (1, 2, 5, 17)], 2)
    kernels = [record.schedule for record in exe.lineage.fusions if record.kernel]
    assert {schedule["shape"] for schedule in kernels} == {"queries", "keys"}


class Sequences(nn.Module):
    """Attention over sequences of any length: of as many queries as keys, of one query, with masks and without."""

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        q, k, v, last, half, seen, bias = inputs
        attend = F.scaled_dot_product_attention
        return (
            attend(q, k, v, is_causal=True, enable_gqa=True),
            attend(q[:, :2], k, v),
            attend(q[:, :2] + 1, k, v, attn_mask=seen),
            attend(q[:, 2:], k, v, attn_mask=torch.where(bias > 1, -torch.inf, bias)),
            attend(last, k, v, enable_gqa=True),
            attend(half, half, half, is_causal=True).float(),
        )


def test_sequences_of_any_length() -> None:
    """At lengths around the vector's, of one block of keys and of many; the last keys are masked, and all of a row."""

    def inputs(n: int) -> list[Tensor]:
        shapes = [(1, 4, n, 8), (1, 2, n, 8), (1, 2, n, 8), (1, 4, 1, 8), (1, 2, n, 8), (1, 1, n, n), (1, 1, n, n)]
        tensors = [normal(1, *shape)[0] + k / 8 for k, shape in enumerate(shapes)]
        tensors[4] = tensors[4].to(torch.bfloat16)
        tensors[5] = tensors[5] > -0.5
        tensors[5][..., -1:, :] = False
        return tensors

    n, m = Dim("n", max=8192), Dim("m", max=8192)
    dynamic = [{2: n}, {2: n}, {2: n}, {}, {2: m}, {2: n, 3: n}, {2: n, 3: n}]
    exe = covan_mlir.compile_module(Sequences(), (inputs(40),), dynamic_shapes=(dynamic,))
    sites = [site for site in exe.lineage.sites if site.phase == "call" and site.kernel.startswith("fred_")]
    whole = [site for site in sites if any("attention" in action.op for action in exe.lineage.why(site))]
    assert len({site.kernel.removesuffix("_merge") for site in whole}) == 6
    for length in (1, 15, 16, 17, 100, 1023):
        given = inputs(length)
        with torch.no_grad():
            expected = Sequences()(given)
        for n_, (a, b) in enumerate(zip(exe(given), expected, strict=True)):
            tolerance = 2e-2 if n_ == 5 else 2e-5
            np.testing.assert_allclose(
                np.asarray(a), b.numpy(), rtol=tolerance, atol=tolerance, err_msg=f"{n_} {length}"
            )
    assert exe.verify(), exe.verify()


class Cached(nn.Module):
    """Causal attention of new positions over a cache and themselves: whose number is a sum."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new, past = q.shape[1], keys.shape[1]
        k, v = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        at, seen = torch.arange(new)[:, None] + past, torch.arange(past + new)
        scores = (q @ k.transpose(-1, -2) / 4).masked_fill(seen > at, -torch.inf)
        return torch.softmax(scores, -1) @ v, k, v


@pytest.mark.parametrize("new", [1, 3, None])
def test_attention_over_a_cache_that_grows(new: int | None) -> None:
    def inputs(new: int, past: int) -> list[Tensor]:
        return [*normal(3, 4, new, 16), *normal(2, 4, past, 16)]

    n, p = ({} if new else {1: Dim("n", min=2)}), {1: Dim("p", min=2)}
    exe = covan_mlir.compile_module(Cached(), tuple(inputs(new or 3, 37)), dynamic_shapes=(n, n, n, p, p))
    (record,) = exe.lineage.fusions
    assert "4 reductions" in record.what  # the scores too: they are not written to memory
    for positions in (new,) if new else (2, 5, 40):
        for past in (2, 15, 16, 17, 300):
            arguments = inputs(positions, past)
            for a, b in zip(exe(*arguments), Cached()(*arguments), strict=True):
                np.testing.assert_allclose(np.asarray(a), b.numpy(), rtol=1e-4, atol=1e-5)
    assert exe.verify()
