"""What is computed of a value and of another shape of it is computed of the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from covan_mlir.frontend.decompose import decompose

CASES: dict[str, tuple[Callable[[Tensor], Any], set[tuple[int, ...]]]] = {
    "a transposition": (lambda x: (x.mT.exp(), x.exp()), {(3, 4)}),
    "whoever comes first": (lambda x: (x.exp(), x.mT.exp()), {(3, 4)}),
    "two other shapes": (lambda x: (x.mT.exp(), x[:, None].exp()), {(3, 4)}),
    "what reads it": (lambda x: (x.mT.abs().exp(), x.abs().exp()), {(3, 4)}),
    "two operands": (lambda x: ((x.mT * x.abs().mT).exp(), (x * x.abs()).exp()), {(3, 4)}),
    "numbers": (lambda x: (x.mT.clamp(min=0.5).exp(), x.clamp(min=0.5).exp()), {(3, 4)}),
    "a constant": (lambda x: ((x.mT * torch.ones(4, 3)).exp(), (x * torch.ones(3, 4)).exp()), {(3, 4)}),
    "complex numbers": (
        lambda x: (
            torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2)).mT.unsqueeze(1)).exp(),
            torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2))).flatten(1).exp(),
        ),
        {(3, 2, 2)},
    ),
    "a conversion": (lambda x: (x.mT.double().exp(), x.double().exp()), {(3, 4)}),
    "one shape alone": (lambda x: (x.mT.exp(),), {(4, 3)}),
    "one shape twice": (lambda x: (x.mT.exp(), x.mT.exp() * 2), {(4, 3)}),
    "operands of other shapes": (lambda x: ((x.mT * x[:3].reshape(4, 3)).exp(), (x * x).exp()), {(4, 3), (3, 4)}),
    "another number": (lambda x: ((x.mT * 2).exp(), (x * 3).exp()), {(4, 3), (3, 4)}),
}
"""And the sizes of what exponentials are taken of; the argument has three rows of four numbers."""


@pytest.mark.parametrize("name", CASES)
def test_work_is_done_once(name: str) -> None:
    model, sizes = CASES[name]

    class Program(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return model(x)

    x = torch.randn(3, 4)
    decomposed = decompose(torch.export.export(Program(), (x,)))
    torch.testing.assert_close(decomposed.module()(x), model(x))
    exponentials = decomposed.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default)
    assert {tuple(node.meta["val"].shape) for node in exponentials} == sizes
