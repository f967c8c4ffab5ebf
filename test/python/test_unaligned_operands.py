"""Kernels read rows of what others computed, and write pieces of concatenations, wherever in memory these begin."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
import torch
from limits import part
from torch import Tensor

from covan_mlir import CompileOptions, compile_module
from covan_mlir.lowering.kernels.cuda.compile import available
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.vulkan.target import VulkanTarget
from covan_mlir.runtime import devices

_STEP = """
from pathlib import Path
def write(state):
    Path({path!r}).write_text(str(state.module))
"""


def steps(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    """Each reads a row of what is computed."""
    rows = x.neg()
    for row in rows:
        state = torch.sigmoid(row[None] @ weight + state)
    return state


def pieces(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    """Normalizes a slice that begins at an odd element, and puts it behind three others."""
    whole = (x.neg() @ weight + state).flatten()
    count = whole.numel()
    normalized = whole[count // 2 - 1 : count // 2 + 15].softmax(0), whole.softmax(0)
    return torch.cat([whole[:3], *normalized])


DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
USUAL = ((torch.float32, 19), (torch.float64, 2), (torch.float16, 5), (torch.bfloat16, 2))


@pytest.mark.parametrize(("dtype", "columns"), part(product(DTYPES, (2, 5, 19)), kept=USUAL), ids=str)
def test_rows_of_what_is_computed(dtype: torch.dtype, columns: int) -> None:
    args = _arguments(columns, dtype)
    exe = compile_module(steps, args, options=CompileOptions(fuse_reductions="always"))
    assert any(site.kernel.startswith("fred_") for site in exe.lineage.sites)
    _agree(exe(*args), steps(*(each.double() for each in args)), dtype)
    assert exe.verify()


@pytest.mark.parametrize(
    "target",
    [
        "cpu",
        pytest.param("vulkan", marks=pytest.mark.skipif(not devices.discover("vulkan"), reason="no Vulkan device")),
    ],
)
@pytest.mark.parametrize("columns", [7, 130])
def test_pieces(target: str, columns: int) -> None:
    args = _arguments(columns, torch.float32)
    exe = compile_module(pieces, args, target=target, options=CompileOptions(fuse_reductions="always"))
    _agree(exe(*args), pieces(*(each.double() for each in args)), torch.float32)
    assert exe.verify()


@pytest.mark.parametrize(
    ("target", "alignment"),
    [
        ("vulkan:lavapipe", VulkanTarget.alignment),
        pytest.param(
            "cuda:sm_80",
            CudaTarget.alignment,
            marks=pytest.mark.skipif(not available(), reason="Triton is not installed"),
        ),
    ],
)
def test_what_begins_elsewhere_is_copied(target: str, alignment: int, tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(_STEP.format(path=str(tmp_path / "scheduled.mlir")))
    for model in (steps, pieces):
        exe = compile_module(
            model,
            _arguments(7, torch.float32),
            target=target,
            options=CompileOptions(
                fuse_reductions="always", extra_steps=(("iree:stream", f"{tmp_path / 'step.py'}:write"),)
            ),
        )
        offsets = _offsets((tmp_path / "scheduled.mlir").read_text())
        assert offsets
        assert all(offset % alignment == 0 for offset in offsets)
        assert any("memcpy" in site.kernel for site in exe.lineage.sites)  # there was something to copy
        assert exe.verify()


def _arguments(columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(columns)
    return torch.randn(3, 2, dtype=dtype), torch.randn(2, columns, dtype=dtype), torch.randn(1, columns, dtype=dtype)


def _agree(given: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(given.double(), expected, rtol=0, atol=8 * torch.finfo(dtype).eps)


def _offsets(module: str) -> list[int]:
    """Where the operands of our kernels begin."""
    numbers = {name: int(number) for name, number in re.findall(r"(%c\w+) = arith.constant (\d+) : index", module)}
    bodies = re.findall(r"stream\.cmd\.dispatch @fred_\w+::.*?\{(.*?)\n *\}", module, re.S)
    return [numbers[each] for body in bodies for each in re.findall(r"[rw][ow] %\w+\[(%c\w+) for", body)]
