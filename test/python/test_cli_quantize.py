"""``covan quantize``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, said

MODEL = textwrap.dedent("""
    import torch
    from torch import nn

    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).eval(), (torch.randn(4, 16),)
""")


@pytest.fixture
def layers(here: Path) -> Path:
    (here / "layers.py").write_text(MODEL)
    np.savez(here / "data.npz", input=np.random.default_rng(0).standard_normal((12, 16), np.float32))
    return here


def test_from_a_model_to_an_artifact(layers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("quantize", "layers.py:make", "--calibration", "data.npz", "--keep", "0", "--report", "cost.json")
    assert said(capsys, *arguments).startswith("1 layers in int8, 1 in float; the results have ")
    cost = json.loads((layers / "cost.json").read_text())
    assert [(cost["calls"], layer["name"]) for layer in cost["layers"]] == [(3, "2")]
    assert cost["left"] == [{"name": "0", "why": "kept"}]
    said(capsys, "compile", "layers.pt2", "-o", "one.covan")
    said(capsys, "quantize", "layers.py:make", "--mode", "weights-int4", "--group", "8", "-o", "b.covan")
    for artifact in ("one.covan", "b.covan"):
        said(capsys, "verify", artifact)


def test_mistakes(layers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("quantize", "layers.py:make")
    assert fails(capsys, *given, code=2) == (
        "int8 needs calibration data",
        "give --calibration FILE.npz, or another --mode",
    )
    assert fails(capsys, *given, "--calibration", "data.npz", "-o", "a.onnx", code=2)[0] == (
        "a.onnx: neither a .pt2 nor a .covan file"
    )
    assert fails(capsys, *given, "--calibration", "gone.npz") == (
        "gone.npz: no such file",
        "write one with numpy.savez(path, argument=array)",
    )
    assert fails(capsys, *given, "--calibration", "data.npz", "--keep", "3") == (
        "keep: no layer is called '3'",
        "there are 0, 2",
    )
    assert not (layers / "layers.pt2").exists()
