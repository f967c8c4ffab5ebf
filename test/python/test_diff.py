"""`covan diff`: what changed between two compilations, of which each change is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from artifacts import lineage
from command_line import fails
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.artifacts import artifact
from covan_mlir.profiling.differences import align
from covan_mlir.provenance.model import Action, LineageData
from covan_mlir.tools import cli


class Before(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Any) -> Any:
        hidden = torch.relu(self.first(x))
        y = self.last(hidden)
        return torch.softmax(y, -1)


class After(Before):
    def forward(self, x: Any) -> Any:
        hidden = torch.nn.functional.gelu(self.first(x))
        y = self.last(hidden)
        return torch.softmax(y, -1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("diff")
    x = torch.ones(128, 64)
    paths = {name: str(folder / f"{name}.covan") for name in ("before", "after", "plain", "newer")}
    for name, model, fuse in (("before", Before, True), ("after", After, True), ("plain", Before, False)):
        torch.manual_seed(0)
        options = CompileOptions(fuse_reductions=fuse, external_weight_bytes=1024)
        covan_mlir.compile_module(model().eval(), (x,), options=options).save(paths[name])
    contents = artifact.read(paths["before"])
    weights = dict(contents.weights)
    name = next(iter(weights))
    weights[name] = replace(weights[name], data=bytes(len(bytes(weights[name].data))))
    newer = replace(contents, versions={**contents.versions, "iree-base-compiler": "9.9"}, weights=weights)
    artifact.write(paths["newer"], newer)
    return paths


def told(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert cli.main(["diff", *args]) == 0
    return capsys.readouterr().out


def line(cls: type, statement: str) -> str:
    """Where a statement stands in this file."""
    source = Path(__file__).read_text().splitlines()
    start = next(i for i, text in enumerate(source) if text.startswith(f"class {cls.__name__}("))
    return f"{Path(__file__).name}:{next(i for i, t in enumerate(source) if i > start and statement in t) + 1}"


def test_an_edited_line_is_told_with_its_kernel(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    changes = json.loads(told(capsys, files["before"], files["after"], "--json"))
    assert [(a["change"], a["op"]) for a in changes["actions"]] == [
        ("removed", "aten.relu.default"),
        ("added", "aten.gelu.default"),
    ]
    assert [a["line"] for a in changes["actions"]] == [line(Before, "relu"), line(After, "gelu")]
    assert changes["settings"] == []
    assert changes["same"] is False
    edited = [site for site in changes["sites"] if line(After, "gelu") in site["lines"]]
    assert len(edited) == 1
    assert "also performs gelu" in edited[0]["what"]
    assert "no longer performs relu" in edited[0]["what"]
    assert edited[0]["kernel_before"] != edited[0]["kernel_after"]
    # The lines below are where they were in the other class, and their kernels are as they were.
    rows = {row["line"]: row for row in changes["lines"]}
    softmax = rows[line(After, "softmax")]
    assert softmax["was"] == [line(Before, "softmax")]
    assert softmax["before"] == pytest.approx(softmax["after"])
    assert changes["kept"] == 2
    # What lines and the rest take adds up to what a call takes.
    for side, total in zip(("before", "after"), changes["total"], strict=True):
        assert sum(row[side] or 0.0 for row in changes["lines"]) == pytest.approx(total)
    assert changes["times"] == "predicted"
    text = told(capsys, files["before"], files["after"])
    assert f"+ gelu (aten.gelu.default)  {line(After, 'gelu')}" in text
    assert "2 sites are as they were" in text


def test_options_versions_and_weights(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    assert told(capsys, files["before"], files["before"]) == "the same program\n"
    plain = told(capsys, files["before"], files["plain"])
    assert "option fuse_reductions: false, was true" in plain
    assert "is another kernel" in plain
    newer = json.loads(told(capsys, files["before"], files["newer"], "--json"))
    settings = {setting["what"]: setting["after"] for setting in newer["settings"]}
    assert settings.pop("version of iree-base-compiler") == "9.9"
    assert settings == {"values of outside weights": "1 of 3 are others: first.weight"}
    assert (newer["actions"], newer["fates"], newer["sites"]) == ([], [], [])


def test_profiled_times(capsys: pytest.CaptureFixture[str], files: dict[str, str], tmp_path: Path) -> None:
    times = [str(tmp_path / f"{name}.json") for name in ("before", "after")]
    for name, path in zip(("before", "after"), times, strict=True):
        assert cli.main(["profile", files[name], "--repeat", "3", "--save", path]) == 0
    given = ["--profile-before", times[0], "--profile-after", times[1]]
    changes = json.loads(told(capsys, files["before"], files["after"], *given, "--json"))
    assert changes["times"] == "profiled"
    assert changes["total"] == [json.loads(Path(path).read_text())["total_ns"] for path in times]
    for side, total in zip(("before", "after"), changes["total"], strict=True):
        assert sum(row[side] or 0.0 for row in changes["lines"]) == pytest.approx(total)
    assert "two profiles" in fails(capsys, "diff", files["before"], files["after"], *given[:2], code=2)[0]
    assert "another program" in fails(capsys, "diff", files["after"], files["before"], *given)[0]


def test_actions_are_known_again_wherever_they_stand() -> None:
    whole = lineage()
    assert align.actions(whole, whole) == {action.id: action.id for action in whole.actions}

    def shuffled(order: list[int]) -> LineageData:
        return LineageData([replace(whole.actions[old], id=new, name=f"other_{new}") for new, old in enumerate(order)])

    count = len(whole.actions)
    turned = [*range(1, count), 0]
    assert {old: turned[new] for old, new in align.actions(whole, shuffled(turned)).items()} == {
        old: old for old in range(count)
    }
    other = Action(count, "new", "aten.tan.default", "", (), ("f32[2]",))
    assert count not in align.actions(whole, LineageData([*whole.actions, other])).values()
