"""Reshapes of several sizes that are known at run time only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from limits import part
from torch import Tensor, nn
from torch.nn import functional as F

import covan_mlir

BATCH, LENGTH = torch.export.Dim("batch", min=2, max=8), torch.export.Dim("length", min=2, max=64)
LINEAR = nn.Linear(12, 20)


def _attend(x: Tensor) -> Tensor:
    heads = x.view(x.shape[0], x.shape[1], 3, 4).transpose(1, 2)
    rows = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(x.shape)
    return rows.view(-1, 12) + 1


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "matrix product": LINEAR,
    "merged": lambda x: x.reshape(-1, 12) + 1,
    "merged and split otherwise": lambda x: x.reshape(-1, 3, 4) + 1,
    "all merged": lambda x: x.reshape(-1) * 2,
    "all merged, with ones": lambda x: x.reshape(1, -1, 1) * 2,
    "split": lambda x: x.reshape(x.shape[0] * x.shape[1], 12).cos().reshape(x.shape[0], x.shape[1], 2, 6) + 1,
    "the open sizes apart": lambda x: x.reshape(x.shape[0], -1) * 2,
    "merged with a known size each": lambda x: x.transpose(1, 2).reshape(x.shape[0] * 12, -1).sin(),
    "heads": lambda x: (
        x.view(x.shape[0], x.shape[1], 3, 4).transpose(1, 2).reshape(x.shape[0] * 3, x.shape[1], 4).cumsum(1)
    ),
    "other strides than exported": _attend,
    "four open sizes": lambda x: (
        (x @ x.transpose(1, 2)).reshape(x.shape[0], -1).exp().reshape(-1, x.shape[1], x.shape[1])
    ),
}


@pytest.mark.parametrize("name", part(PROGRAMS, kept=list(PROGRAMS)[::2]))
def test_agrees_with_eager(name: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = LINEAR

        def forward(self, x: Tensor) -> Tensor:
            return PROGRAMS[name](x)

    example = torch.randn(2, 10, 12) / 4
    compiled = covan_mlir.compile_module(Model(), (example,), dynamic_shapes=({0: BATCH, 1: LENGTH},))
    for batch, length in ((2, 10), (3, 7), (4, 3)):
        x = torch.randn(batch, length, 12) / 4
        torch.testing.assert_close(compiled(x), PROGRAMS[name](x))
    assert compiled.verify()


@pytest.mark.parametrize(
    "model",
    [lambda x: x.reshape(x.shape[0], -1), lambda x: x.relu().reshape(x.shape[0], -1).softmax(-1)],
    ids=["an argument", "a value"],
)
def test_the_open_size_apart(model: Callable[[Tensor], Tensor]) -> None:
    """The shape is put together of sizes that nobody computes with: it is no step of the program's."""
    compiled = covan_mlir.compile_module(model, (torch.randn(2, 4, 5),), dynamic_shapes=({0: BATCH},))
    x = torch.randn(3, 4, 5)
    torch.testing.assert_close(compiled(x), model(x))
    assert compiled.verify(), str(compiled.verify())
