"""Composite operations: overridden where a rule says so, taken apart by their own kernels else."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from oracle import assert_same
from torch import Tensor, nn
from torch.export import ExportedProgram, exported_program

import covan_mlir
from covan_mlir.frontend import decompose as module
from covan_mlir.frontend.composites import overridden_only_by_rules


class _Several(nn.Module):
    """Operations with kernels that are taken apart (`linear`, `einsum`), with rules (`pad`) and with both."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        padded = nn.functional.pad(self.inner(x), (1, 2), mode="circular")
        return torch.einsum("nij,nik->njk", padded, nn.functional.rms_norm(x, (6,))).std(-1)


def _calls(program: ExportedProgram) -> list[str]:
    return [str(node.target) for node in module.decompose(program).graph.nodes]


def test_decomposes_as_torch_alone_does(monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(_Several(), (torch.randn(2, 4, 6),), strict=False)
    calls = _calls(program)
    monkeypatch.setattr(module, "overridden_only_by_rules", nullcontext)
    assert calls == _calls(program)


def test_few_are_overridden() -> None:
    with overridden_only_by_rules():
        composite, others = exported_program._split_decomp_table_to_cia_and_python_decomp(dict(module.table()))
    assert torch.ops.aten.pad.default in composite
    assert torch.ops.aten.linear.default not in composite | others


def test_composites_of_other_libraries_decompose() -> None:
    library = torch.library.Library("covan_test_composites", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")

    def twice(x: Tensor) -> Tensor:
        doubled: Tensor = torch.ops.covan_test_composites.twice(x)
        return doubled.relu()

    x = torch.randn(5)
    assert_same(covan_mlir.compile_module(twice, (x,))(x), twice(x))
