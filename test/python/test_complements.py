"""A negated comparison and its complement are one value, for which of the types they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import covan_mlir
from covan_mlir.frontend.decompose import decompose

_NAN = float("nan")


def unequal(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (~(x == y)).sum(0), (x != y).float() * 2


def not_less(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.logical_not(x < y).sum(0), (x >= y).float() * 2


@pytest.mark.parametrize(
    ("model", "x", "one"),
    [
        (unequal, torch.tensor([1.0, 2.0, _NAN, 3.0]), True),
        (unequal, torch.tensor([1, 2, 3, 4]), True),
        (not_less, torch.tensor([1.0, 2.0, _NAN, 3.0]), False),
        (not_less, torch.tensor([1, 2, 3, 4]), True),
    ],
)
def test_complement(model: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], x: Tensor, one: bool) -> None:
    y = torch.tensor([1, 1, 2, 4], dtype=x.dtype)
    compiled = covan_mlir.compile_module(model, (x, y))
    for got, want in zip(compiled(x, y), model(x, y), strict=True):
        torch.testing.assert_close(got, want)
    assert compiled.verify()
    negation, comparison = (
        next(part for part in compiled.lineage.parts.values() if part.name == name)
        for name in (("bitwise_not", "ne") if model is unequal else ("logical_not", "ge"))
    )
    assert (comparison.twin == negation.id) is one


@pytest.mark.parametrize(("number", "kept"), [(2, False), (2.5, True), (_NAN, False)])
def test_numbers_that_may_be_nan_have_no_complement(number: float, kept: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.logical_not(x < number), x >= number

    x = torch.tensor([1, 2, 3])
    decomposed = decompose(torch.export.export(Model(), (x,), strict=False))
    # What is compared with NaN is a constant.
    assert any(node.target is torch.ops.aten.logical_not.default for node in decomposed.graph.nodes) is kept
    for got, expected in zip(decomposed.module()(x), Model()(x), strict=True):
        assert torch.equal(got, expected)
