"""Kernels stay one to one with operators: steps that change that are named."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import covan_mlir

STEPS = """
def walk(state, name):
    import iree.compiler.ir as ir

    operations = []

    def visit(op):
        if op.name == name and "fred_" in str(op.attributes["entry_points"]):
            operations.append(op)
        return ir.WalkResult.ADVANCE

    state.module.operation.walk(visit)
    return operations


def merge(state):
    first, second = walk(state, "flow.dispatch")
    second.results[0].replace_all_uses_with(first.results[0])
    second.erase()


def cross(state):
    first, second = walk(state, "flow.dispatch")
    second.operands[0] = first.results[0]

"""


class Twice(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x, -1), torch.softmax(y, -1)


@pytest.mark.parametrize(
    ("step", "after", "said"),
    [
        ("merge", "iree:embed", "after extra:merge: there are 1 of fred_"),
        ("merge", "iree:abi", "after extra:merge: there are 1 of fred_"),
        ("cross", "iree:preprocessing", "after extra:cross: fred_"),
        ("merge", "iree:flow", "after iree:stream: 1 kernels are not dispatched as often as before"),
    ],
)
def test_steps_that_change_the_graph(
    step: str, after: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is told, with what it changed; the program is compiled as it is."""
    (file := tmp_path / "steps.py").write_text(STEPS)
    extra = ((after, f"{file}:{step}"),)
    options = covan_mlir.CompileOptions(extra_steps=extra, fuse_reductions="always")
    args = torch.randn(64, 512), torch.randn(64, 512)
    with caplog.at_level(logging.WARNING):
        covan_mlir.compile_module(Twice(), args, options=options)
    told = [record.getMessage() for record in caplog.records if "one to one" in record.getMessage()]
    assert len(told) == 1
    assert said in told[0]


def test_nothing_is_said_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """Of loops over parts that are merged, of weights that are prepared, and of what views are between."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(96, 128), nn.Linear(128, 64)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.softmax(self.first(x), -1).unflatten(-1, (2, 64)).transpose(0, 1)
            return self.second(y.transpose(0, 1).flatten(1)).sum(0)

    options = covan_mlir.CompileOptions(fuse_reductions="always")
    with caplog.at_level(logging.WARNING):
        exe = covan_mlir.compile_module(Layers(), (torch.randn(40, 96),), options=options)
    assert len(exe.lineage.operators()) >= 3
    assert not [record for record in caplog.records if "one to one" in record.getMessage()]
