"""Memory that results had is used by the next ones; how much of it is kept has a limit."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
import torch

import covan_mlir
from covan_mlir.runtime import devices


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_results_is_used_again_and_what_is_kept_is_bounded() -> None:
    exe = covan_mlir.compile_module(
        lambda x: x.unsqueeze(0) + x.unsqueeze(1), (torch.ones(64),), dynamic_shapes=({0: torch.export.Dim.AUTO},)
    )
    large = torch.ones(4096)
    pages = 4 * 4096 * 4096 // resource.getpagesize()
    for _ in range(3):
        exe(large)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        exe(large)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages
    start = resident()
    for size in range(3000, 4000, 50):  # 36 to 64 MB each, 970 MB in all
        exe(torch.ones(size))
    assert resident() - start < devices.KEPT["local-task"] + (64 << 20)
