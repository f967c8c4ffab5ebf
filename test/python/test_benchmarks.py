"""Benchmarks build what they measure; what they measure is in docs/benchmarks.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from covan_mlir.machine.host import host

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))


def test_ceilings() -> None:
    from ceilings import Ceilings

    peaks = Ceilings(host(), copied=1 << 16)
    assert peaks.flops() > 0
    assert peaks.bandwidth() > 0


@pytest.mark.parametrize("variant", ["causal", "gqa"])
def test_attention(variant: str) -> None:
    from ceilings import Ceilings
    from fused_reductions import _attention, measure

    case = _attention(variant, 16, 16, 16)
    row = measure(case, ["compile", "flex", "stock"], 0.0, Ceilings(host(), copied=1 << 16))
    assert row["best"] in ("eager", "sdpa")
    assert row["difference"] < 1e-5
    assert not row["unable"]
