"""`covan extract`: what IREE's own tool computes from the folder is what the executable gives, and eager PyTorch."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import fails
from limits import HANG

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.runtime.profile import tool
from covan_mlir.tools import cli


class Everything(torch.nn.Module):
    """Large weights, a buffer that changes, an input that is written to, bfloat16, complex numbers, an index."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 64)
        self.linear = torch.nn.Linear(64, 128)
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, index: Any, z: Any, times: int, written: Any) -> Any:
        self.calls.add_(1)
        written.mul_(2)
        y = torch.relu(self.linear(self.table(index))) * times
        return y, y[:, 0].to(torch.bfloat16), z * z, self.calls[0] > 0


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Module, Path]:
    folder = tmp_path_factory.mktemp("extract")
    torch.manual_seed(0)
    model = Everything().eval()
    example = (torch.arange(3), torch.ones(2, dtype=torch.complex64), 3, torch.ones(2))
    shapes = ({0: torch.export.Dim("n", min=2, max=9)}, None, torch.export.Dim.DYNAMIC, None)
    options = CompileOptions(external_weight_bytes=1024)
    exe = covan_mlir.compile_module(model, example, dynamic_shapes=shapes, options=options)
    exe.save(folder / "model.covan")
    return model, folder


def _run(folder: Path) -> list[Any]:
    environment = {
        "IREE_RUN_MODULE": tool("iree-run-module"),
        "PATH": "/usr/bin:/bin",
    }  # no covan and no Python of ours
    subprocess.run(["sh", folder / "run.sh"], env=environment, check=True, capture_output=True, timeout=HANG)
    files = sorted((folder / "results").iterdir(), key=lambda file: int(file.stem))
    return [np.load(file) if file.suffix == ".npy" else np.fromfile(file, np.uint16) for file in files]


def test_the_tool_computes_what_the_model_does(extracted: tuple[torch.nn.Module, Path]) -> None:
    model, folder = extracted
    index = np.array([4, 0, 2, 2])
    np.save(folder / "index.npy", index)
    args = ["-i", str(folder / "index.npy"), "-i", str(folder / "z.npy"), "-i", "3", "-i", "2xf32=1.5"]
    z = np.array([1 + 2j, 3 - 1j], np.complex64)
    np.save(folder / "z.npy", z)
    assert cli.main(["extract", str(folder / "model.covan"), "-o", str(folder / "out"), *args]) == 0
    written = torch.full((2,), 1.5)
    expected = model(torch.from_numpy(index), torch.from_numpy(z), 3, written)
    calls, new, y, half, squares, some = _run(folder / "out")
    np.testing.assert_array_equal(calls, [1, 1])
    np.testing.assert_array_equal(new, written)
    np.testing.assert_allclose(y, expected[0].detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        torch.from_numpy(half).view(torch.bfloat16).float(), expected[1].detach().float(), rtol=0.01
    )
    np.testing.assert_allclose(squares.view(np.complex64)[..., 0], expected[2], rtol=1e-6)
    assert bool(some) is True
    script = (folder / "out" / "run.sh").read_text()
    assert "# input 0: index: int64[n]\n" in script.replace(_symbol(script), "n")
    assert "--parameters=covan=weights.irpa" in script
    assert "# results/1.npy: new value of argument written: float32[2]\n" in script


def _symbol(script: str) -> str:
    return script.partition("index: int64[")[2].partition("]")[0]


def test_what_does_not_fit_is_told_and_leaves_nothing(
    extracted: tuple[torch.nn.Module, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = extracted[1]
    file, out = str(folder / "model.covan"), folder / "refused"

    def inputs(index: str, last: str = "2xf32") -> list[str]:
        np.save(folder / "pairs.npy", np.ones(2, np.complex64))
        return ["-i", index, "-i", str(folder / "pairs.npy"), "-i", "3", "-i", last]

    for given, said in (
        (["3xi64=7", "2xf32"], "7, of argument index, is no index"),
        (["12xi64=1", "2xf32"], "dimension"),
        (["3xi64=1", "3xf32"], "argument written has size 3"),
        (["3xi32=1", "2xf32"], "argument index is int32"),
    ):
        assert said in fails(capsys, "extract", file, "-o", str(out), *inputs(*given))[0]
        assert not out.exists()
    out.mkdir()
    (out / "mine").write_text("kept")
    error, hint = fails(capsys, "extract", file, "-o", str(out), *inputs("3xi64=1"))
    assert "not empty" in error
    assert "does not exist" in hint
    assert [path.name for path in out.iterdir()] == ["mine"]
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
