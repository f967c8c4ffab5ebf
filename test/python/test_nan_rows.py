"""Attention that gives zeros for rows without any key: which elements of a softmax are NaN is asked of its rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import covan_mlir


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.where(mask, q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -math.inf)
    weights = torch.softmax(scores, -1)
    return torch.where(torch.isnan(weights), 0.0, weights) @ v


def _arguments() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    mask = torch.rand(2, 1, 40, 40) > 0.5
    mask[:, :, 3] = False
    return (*torch.randn(3, 2, 3, 40, 16), mask)


def test_attention_is_one_kernel() -> None:
    args = _arguments()
    exe = covan_mlir.compile_module(attention, args)
    (site,) = exe.lineage.sites
    assert {exe.lineage.actions[index].name for index in site.trace} >= {"softmax", "isnan", "where_1"}
    given = exe(*args)
    assert not given[:, :, 3].any()
    torch.testing.assert_close(
        given.double(), attention(*(each.double() for each in args[:3]), args[3]), atol=1e-5, rtol=0
    )
    assert exe.verify()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_with_what_is_no_number(bad: float) -> None:
    q, k, v, mask = _arguments()
    exe = covan_mlir.compile_module(attention, (q, k, v, mask))
    k[0, 0, 5, 3] = q[1, 1, 7, 3] = bad
    assert torch.equal(exe(q, k, v, mask).isnan(), attention(q, k, v, mask).isnan())


@pytest.mark.parametrize(
    "model",
    [
        lambda x: torch.softmax(x, -1).isnan(),  # a mask of elements is asked for
        lambda x: torch.where(torch.softmax(x, -1).isnan(), 1.0, x[:, :1]),  # and here it alone has the shape
        lambda x: torch.where((x.exp() / x.exp().sum(-1, keepdim=True)).isnan(), 0.0, x),  # infinity over infinity
    ],
)
def test_other_questions_are_left_alone(model: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(5, 7)
    x[1, 2], x[2, 3], x[3] = 100, math.nan, -math.inf
    exe = covan_mlir.compile_module(model, (x,))
    given, expected = exe(x), model(x)
    assert given.shape == expected.shape
    torch.testing.assert_close(given, expected, equal_nan=True)
    assert exe.verify()
