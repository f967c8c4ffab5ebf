"""Choices that are the same everywhere: torch-mlir drops them, and what they give has to be accounted for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import covan_mlir

X, Y = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([3.0, 0.0, -2.0])

CHOICES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "literal": lambda x, y: torch.where(torch.tensor(False), x, y + 1),
    "fill": lambda x, y: torch.where(torch.full((3,), True), x + 2, y.exp()),
    "computed": lambda x, y: torch.where(torch.tensor(2.0) == 0, x * 2, y * 3),
    "argument": lambda x, y: torch.where(torch.tensor(True), x, 2),
    "wider": lambda x, y: torch.where(torch.tensor(True), x.sum(), y),
    "another type": lambda x, y: torch.where(torch.tensor([True]), x.long(), y),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choice_that_is_none(name: str) -> None:
    exe = covan_mlir.compile_module(CHOICES[name], (X, Y))
    torch.testing.assert_close(exe(X, Y), CHOICES[name](X, Y))
    assert exe.verify().outcome == "yes"


def test_choice_that_is_none_of_open_length() -> None:
    size = torch.export.Dim("n")
    exe = covan_mlir.compile_module(CHOICES["literal"], (X, Y), dynamic_shapes=({0: size}, {0: size}))
    torch.testing.assert_close(exe(X[:2], Y[:2]), Y[:2] + 1)
    assert exe.verify().outcome == "yes"
