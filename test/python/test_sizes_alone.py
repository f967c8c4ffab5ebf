"""Results that are sizes, or made of sizes alone: no element of an argument lies behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import covan_mlir
from covan_mlir.checking.verify import verify
from covan_mlir.lineage import Lineage


def _counted_down(x: Tensor) -> Tensor:
    return x.shape[0] - torch.arange(x.shape[0])


def _positions(x: Tensor) -> Tensor:
    """Two dispatches, of which the second reads only what the first gives."""
    angles = torch.arange(x.shape[0], dtype=torch.float32)[:, None] * torch.exp(torch.arange(3) / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def _written_down(x: Tensor) -> tuple[Tensor, int]:
    """Each number fills its place, and a size is returned as it is."""
    return torch.tensor([x.shape[0], x.shape[0] * 2]), x.shape[0] * 3 + 1


@pytest.mark.parametrize("model", [_counted_down, _positions, _written_down])
def test_what_sizes_alone_give_verifies(model: Callable[[Tensor], Any]) -> None:
    exe = covan_mlir.compile_module(model, (torch.randn(5, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    x = torch.randn(8, 3)
    torch.testing.assert_close(exe(x), model(x))
    assert exe.verify(), str(exe.verify())


def test_who_fills_which_place_is_checked() -> None:
    """Two numbers fill two places: each site performs its own."""
    x = torch.randn(5, 3)
    exe = covan_mlir.compile_module(_written_down, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    data = exe.lineage.to_json()
    first, second = (site for site in data["sites"])
    for column in (3, 4, 6):  # trace, parts and views
        first[column], second[column] = second[column], first[column]
    assert verify(Lineage.from_json(data)).outcome == "no"
