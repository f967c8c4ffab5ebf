"""Values that the compiler merges although different operations make them: one location is left, data flow tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import covan_mlir

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    # program, actions of which each must be performed somewhere
    "sum, then mean": (lambda x: (x.sum(-1, keepdim=True) / 64, x.mean(-1, keepdim=True)), ("sum_1", "div", "mean")),
    "mean, then sum": (lambda x: (x.mean(-1, keepdim=True), x.sum(-1, keepdim=True) / 64), ("sum_1", "div", "mean")),
    "centred, and variance": (
        lambda x: (x - x.mean(-1, keepdim=True), x.var(-1, unbiased=False)),
        ("mean", "sub", "var"),
    ),
    "layer norm": (nn.LayerNorm(64).double(), ("layer_norm",)),
    "layer norm of converted values": (lambda x: nn.functional.layer_norm(x * 2, (64,)), ("mul", "layer_norm")),
    "three times the same": (
        lambda x: (x.std(-1), x.var(-1), (x - x.mean(-1, keepdim=True)).pow(2).sum(-1) / 63),
        ("std", "var", "sum_1"),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_merged_values_keep_their_history(name: str) -> None:
    program, actions = PROGRAMS[name]
    x: Tensor = torch.randn(16, 64, dtype=torch.float64)
    exe = covan_mlir.compile_module(
        program, (x,), options=covan_mlir.CompileOptions(fuse_reductions=False)
    )  # unfused: each operation of the compiler is looked at
    torch.testing.assert_close(exe(x), program(x))
    assert exe.verify(), exe.verify()
    for action in actions:
        assert exe.lineage.where(action), action


B, S = torch.export.Dim("b", min=2, max=64), torch.export.Dim("s", min=2, max=512)


@pytest.mark.parametrize("fuse", [False, True])
def test_arithmetic_on_sizes_is_no_work(fuse: bool) -> None:
    """Sizes are computed once for all who need them, and whoever's location is left says nothing."""

    def heads(x: Tensor) -> Tensor:
        split = x.view(x.shape[0], x.shape[1], 2, 8)
        return torch.softmax(split.transpose(1, 2) @ split.permute(0, 2, 3, 1), -1) + x.shape[0]

    options = covan_mlir.CompileOptions(fuse_reductions=fuse)
    x = torch.randn(4, 8, 16)
    exe = covan_mlir.compile_module(heads, (x,), dynamic_shapes=({0: B, 1: S},), options=options)
    torch.testing.assert_close(exe(x[:3, :5].contiguous()), heads(x[:3, :5].contiguous()))
    assert exe.verify(), exe.verify()
