"""Attached operators: what names name, what is refused before anything is compiled, writes in place, command line."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import fails
from torch import nn

import covan_mlir
from covan_mlir import Attachment, CompileOptions, InputError, MlirFunction
from covan_mlir.attaching import attach, locate
from covan_mlir.frontend.capture import capture
from covan_mlir.tools import cli


def clip(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(0.1, 0.3)


class Calls(nn.Module):
    """A module called twice, one in place, one that gives two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = self.act(self.act(self.linear(x)) - 1)
        a, b = y.chunk(2, -1)
        z = y * 2
        z.add_(1)
        return a, b, z


class Trains(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Counts(nn.Module):
    n: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1)
        return x + self.n


@pytest.mark.parametrize(
    ("attached", "said"),
    [
        ({"lineer": clip}, "nothing in the model is called 'lineer'; did you mean linear"),
        ({"act": clip}, r"'act' gives 2 tensors: attach to one of them by name: relu f32\[2, 4\], relu_1"),
        ({"chunk": clip}, "chunk .* gives 2 tensors: attach to one of getitem, getitem_1"),
        ({99: clip}, "no action 99"),
        ({"sub": Attachment(lambda x: x.half(), "replace")}, r"gives f16\[2, 4\] in place of sub, .* f32\[2, 4\]"),
        ({"sub": Attachment(lambda x: (x, x + 1), "replace")}, "replaces one tensor and gives 2"),
        ({"mul": Attachment(clip, "replace")}, "add_ writes to mul: attach to add_"),
        ({"sub": lambda x: x @ x}, "'sub' cannot be traced on f32.*same reduction dim"),
        ({"sub": lambda x: x.mul_(2)}, "writes to its tensor"),
        ({"sub": Counts().eval()}, "or to its own buffers"),
        ({"sub": lambda x: torch.ones(3)}, "does not depend on sub"),
        ({"sub": Trains()}, "training mode"),
        ({"sub": lambda x: 3}, "gives 3, which is no tensor"),
        ({"sub": (Attachment(clip, "replace", "a"), Attachment(clip, "replace", "b"))}, "two attachments replace sub"),
        ({"sub": MlirFunction("func.func @f(%x: tensor<3xf32>)")}, "no valid MLIR|no body"),
        ({"sub": MlirFunction("module {")}, "no valid MLIR"),
        (
            {"sub": MlirFunction("func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }")},
            r"takes tensor<3xf32>, not f32\[2, 4\]",
        ),
    ],
)  # fmt: skip
def test_bad_attachments(calls: Any, attached: dict[str | int, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"attach: .*({said})"):
        attach.plan(calls, attached)


class InPlace(nn.Module):
    """A buffer that is written to, values that are written to, and results that are no tensors."""

    n: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(4))

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> dict[str, Any]:
        self.n.add_(x.sum(0))
        y = x * scale
        y.add_(1)
        a, b = (y * self.n).split(2, -1)
        return {"none": None, "a": a, "three": (3, b)}


def test_writes_in_place_and_odd_results() -> None:
    """The program with its taps is an exported program like others: eager PyTorch runs it."""
    x = torch.randn(3, 4)
    captured = capture(InPlace(), (x,), {"scale": 3.0}, None)
    attachments: dict[str | int, Any] = {
        "mul": Attachment(lambda t: t + 0.5),
        "getitem_1": lambda t: {"both": (t * 5, t.sum())},
        "sum_1": torch.neg,
    }
    with_taps = attach.plan(captured, attachments).captured
    want = InPlace()(x, scale=3.0)
    got, taps = with_taps.program.module()(x, scale=3.0)
    torch.testing.assert_close(got, want)
    b = want["three"][1]
    torch.testing.assert_close(
        taps, {"mul": 3 * x + 0.5, "getitem_1": {"both": (b * 5, b.sum())}, "sum_1": -x.sum(0)}
    )  # `mul` before it was written to


@pytest.fixture(scope="module")
def calls() -> Any:
    return capture(Calls(), (torch.randn(2, 4),), None, None)


def test_what_names_name(calls: Any) -> None:
    graph = calls.program.graph
    assert locate.named(graph, "linear").node.name == "linear"
    assert locate.named(graph, 0).node.name == "linear"
    assert locate.named(graph, "module:linear").node.name == "linear"


def test_options_say_what_is_no_attachment() -> None:
    with pytest.raises(TypeError, match="not a int"):
        CompileOptions(attach={"x": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'tap' or 'replace'"):
        Attachment(clip, "tapp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name them"):
        CompileOptions(attach={"x": (clip, clip)})
    with pytest.raises(ValueError, match=r"two attachments are called 'a.b'"):
        CompileOptions(attach={"a_b": clip, "a.b": clip})
    assert "attach" not in CompileOptions(attach={"x": clip}).to_json()


def test_lineage_is_needed() -> None:
    with pytest.raises(InputError, match="provenance=True"):
        covan_mlir.compile_module(
            nn.ReLU(), (torch.randn(3, 4),), options=CompileOptions(attach={"relu": clip}), provenance=False
        )


# --- command line, targets -------------------------------------------------------------------------------------------


def test_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "post.py").write_text("import torch\ndef quantise(x):\n    return (x * 100).to(torch.int8)\n")
    compile_ = ["compile", "models.py:make", "-o", "m.covan", "--target", "cpu,cuda:sm_80"]
    assert cli.main([*compile_, "--attach", "softmax=post.py:quantise", "--attach", "linear=post.py:quantise:tap"]) == 0
    capsys.readouterr()
    assert cli.main(["explain", "m.covan"]) == 0
    said = capsys.readouterr().out
    assert "attached 'softmax' to softmax: tap, dispatched, sites" in said
    assert "split" in said or "at hand" in said or "recompute" in said
    assert cli.main(["explain", "m.covan", "--json", "--target", "cuda:sm_80"]) == 0
    rows = json.loads(capsys.readouterr().out)["attachments"]
    assert [row["name"] for row in rows] == ["softmax", "linear"]
    assert cli.main(["run", "m.covan", "-i", "2x4xf32=1"]) == 0
    assert "tap softmax: int8[2, 8]" in capsys.readouterr().out
    with zipfile.ZipFile(here / "m.covan") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert [len(row["attachments"]) for row in manifest["variants"]] == [2, 2]


@pytest.mark.parametrize(
    ("row", "code", "error", "hint"),
    [
        ("softmax", 2, "not understood", "--attach features.3.conv=post.py:quantise"),
        ("softmax=post.txt:f", 2, "not understood", "--attach"),
        ("softmax=none.py:f", 1, "none.py: no such file", "path"),
        ("softmax=models.py:doubel", 1, "there is no 'doubel'", "did you mean double"),
        ("softmax=models.py:number", 1, "is a int, not a function", "name a function"),
        ("sofmax=models.py:double", 1, "nothing in the model is called 'sofmax'", "did you mean softmax"),
    ],
)
def test_command_line_errors(
    here: Path, capsys: pytest.CaptureFixture[str], row: str, code: int, error: str, hint: str
) -> None:
    said = fails(capsys, "compile", "models.py:make", "-o", "m.covan", "--attach", row, code=code)
    assert error in said[0]
    assert hint in said[1]
