"""Programs with versions for some sizes: whatever the sizes, they compute what eager does."""

from __future__ import annotations

import logging
import re
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import fails
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from torch import Tensor, nn
from torch.export import Dim

import covan_mlir
from covan_mlir import Attachment, CompileOptions, Executable, InputError
from covan_mlir.artifacts.schema import Manifest, check_manifest
from covan_mlir.compilation.versions import MEMORY, weight_bytes
from covan_mlir.support.typed_json import SchemaError, decode
from covan_mlir.tools import cli


class Decoder(nn.Module):
    """A block of products and a softmax that asks for its batch: with one row it gives one dimension less."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, *, bias: Tensor) -> tuple[Tensor, int]:
        self.calls.add_(1)
        y = self.down(nn.functional.gelu(self.up(x))).squeeze(0)
        return torch.softmax(y + bias, -1), x.shape[1]


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder().eval()


def example(batch: int, length: int) -> tuple[tuple[Tensor], dict[str, Tensor]]:
    return (torch.randn(batch, length, 64),), {"bias": torch.randn(length, 64)}


def compiled(model: nn.Module, specialise: Any, **options: Any) -> Executable:
    batch, length = Dim("batch", max=64), Dim("length", max=128)
    args, kwargs = example(1, 5)
    shapes = {"x": {0: batch, 1: length}, "bias": {0: length}}
    return covan_mlir.compile_module(
        model, args, kwargs, dynamic_shapes=shapes, options=CompileOptions(specialise=specialise, **options)
    )


@pytest.fixture(scope="module")
def exe(decoder: Decoder) -> Executable:
    return compiled(decoder, {"batch": [4], "length": [1, 32]})


@pytest.fixture(scope="module")
def saved(exe: Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("versions") / "decoder.covan"
    exe.save(path)
    return path


def same(program: Any, decoder: Decoder, batch: int, length: int) -> None:
    args, kwargs = example(batch, length)
    torch.testing.assert_close(program(*args, **kwargs), decoder(*args, **kwargs), rtol=1e-4, atol=1e-5)


@given(st.integers(1, 9), st.integers(1, 40))
def test_results_are_eagers_at_all_sizes(exe: Executable, decoder: Decoder, batch: int, length: int) -> None:
    same(exe, decoder, batch, length)
    args, kwargs = example(batch, length)
    for each in exe.version_for(*args, **kwargs).ranges:
        size = batch if each.name == "batch" else length
        assert each.low <= size
        assert each.high is None or size <= each.high


def test_prefill_and_decoding_are_one_program(exe: Executable) -> None:
    names = {
        length: ", ".join(map(str, exe.version_for(*example(1, length)[0], **example(1, length)[1]).ranges))
        for length in (1, 7)
    }
    assert names[1] == "batch=1, length=1"
    assert names[7] == "batch=1"


def test_versions_share_the_models_state(exe: Executable, decoder: Decoder) -> None:
    before = int(decoder.calls)
    for batch in (1, 4, 5):
        args, kwargs = example(batch, 6)
        exe(*args, **kwargs)
    assert int(decoder.calls) == before + 3


def test_versions_share_their_weights(exe: Executable, decoder: Decoder) -> None:
    general = compiled(decoder, {"batch": []}, cache=False)
    own = {name for name in general._compiled.weights if name.startswith("constant.")}
    assert own
    assert weight_bytes(exe._compiled) <= MEMORY * weight_bytes(general._compiled)


def test_each_version_stands_in_the_lineage_with_its_sizes(exe: Executable) -> None:
    assert {"length=1", "batch=1", "batch=1, length=1"} <= set(exe.lineage.versions)
    text = exe.explain()
    for name, lineage in exe.lineage.versions.items():
        assert f"version {name}: " in text
        assert [a.name for a in exe.why(0, name)] == [a.name for a in lineage.why(0)]
    with pytest.raises(KeyError, match="no version 'batch=77'"):
        exe.why(0, "batch=77")


def test_versions_are_verified(exe: Executable) -> None:
    verdict = exe.verify(operators=False)
    assert verdict, verdict
    assert any(check.phase == "batch=1: program" for check in verdict.checks)


def test_a_false_version_is_told_of_by_its_sizes(exe: Executable) -> None:
    lineage = exe.lineage.versions["batch=1"]
    before = lineage.sites
    lineage.sites = (*before[:-1], replace(before[-1], parts=(), trace=()))
    try:
        verdict = exe.verify(operators=False)
    finally:
        lineage.sites = before
    assert not verdict
    assert all(example.phase.startswith("batch=1: ") for example in verdict.counterexamples)


def test_the_version_that_is_called_is_profiled_and_compared(exe: Executable) -> None:
    args, kwargs = example(1, 1)
    profile = exe.profile(*args, repeat=2, **kwargs)
    assert profile.lineage.sites == exe.lineage.versions["batch=1, length=1"].sites
    comparison = exe.compare(*args, **kwargs)
    assert comparison.first is None


@pytest.mark.parametrize("isolated", [False, True])
def test_artifacts_hold_versions(saved: Path, exe: Executable, decoder: Decoder, isolated: bool) -> None:
    loaded = covan_mlir.load(saved, isolated=isolated)
    try:
        assert list(loaded.lineage.versions) == list(exe.lineage.versions)
        for batch, length in ((1, 1), (1, 9), (5, 1), (5, 9)):
            same(loaded, decoder, batch, length)
    finally:
        loaded.close()


def test_an_artifact_holds_weights_once(saved: Path, decoder: Decoder, tmp_path: Path) -> None:
    compiled(decoder, {"batch": []}).save(tmp_path / "general.covan")
    held = []
    for path in (saved, tmp_path / "general.covan"):
        with zipfile.ZipFile(path) as archive:
            held.append(sum(each.file_size for each in archive.infolist() if each.filename.startswith("weights/")))
            programs = [each for each in archive.infolist() if each.filename.startswith("program")]
        assert max(each.file_size for each in programs) < decoder.up.weight.nbytes
    assert held[0] <= MEMORY * held[1]


def test_sizes_out_of_range_are_refused(exe: Executable) -> None:
    args, kwargs = example(65, 4)
    with pytest.raises(InputError, match="is 65"):
        exe(*args, **kwargs)
    with pytest.raises(InputError, match=r"args|kwargs"):
        exe(*args)


def test_threads(exe: Executable, decoder: Decoder) -> None:
    failures: list[BaseException] = []

    def calls(first: int) -> None:
        try:
            for batch in (first, 1, 4, 2):
                args, kwargs = example(batch, 3)
                y, length = exe(*args, **kwargs)
                hidden = nn.functional.gelu(decoder.up(args[0]))
                expected = torch.softmax(decoder.down(hidden).squeeze(0) + kwargs["bias"], -1)
                torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
                assert length == 3
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=calls, args=(first,)) for first in (1, 3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_attachments_are_in_every_version() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    exe = covan_mlir.compile_module(
        model,
        (torch.randn(4, 32),),
        dynamic_shapes=({0: Dim("batch", max=32)},),
        options=CompileOptions(specialise={"batch": [1]}, attach={"1": Attachment(lambda x: x.amax(), "tap", "peak")}),
    )
    for batch in (1, 5):
        x = torch.randn(batch, 32)
        y, taps = exe.call_with_attachments(x)
        torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(taps["peak"], model[1](model[0](x)).amax())


def test_a_version_that_is_not_predicted_to_be_faster_is_not_built(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "covan_mlir.specialised"):
        exe = covan_mlir.compile_module(
            nn.ReLU(),
            (torch.randn(4, 32),),
            dynamic_shapes=({0: Dim("n", min=2)},),
            options=CompileOptions(specialise={"n": [8]}),
        )
    assert not exe.versions
    assert "version n=8 is left out: it is not predicted to be faster" in caplog.text


@pytest.fixture
def model_file(here: Path) -> Path:
    (here / "net.py").write_text(
        "import torch\n\n\ndef make():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Linear(64, 256).eval(), (torch.randn(4, 64),)\n"
    )
    return here


def run(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert cli.main(args) == 0
    return capsys.readouterr().out


def test_command_line(model_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_it = ("compile", "net.py:make", "--dynamic", "0:0=batch", "--specialise", "batch=1", "-o", "net.covan")
    assert "versions: batch=1" in run(capsys, *compile_it)
    assert "versions (--version SIZES shows one): batch=1" in run(capsys, "explain", "net.covan")
    assert "site 0" in run(capsys, "explain", "net.covan", "--version", "batch=1")
    assert "no version 'batch=2'" in fails(capsys, "explain", "net.covan", "--version", "batch=2")[0]
    assert "batch=1: program" in run(capsys, "verify", "net.covan")
    assert "for sizes  batch=1" in run(capsys, "info", "net.covan")
    assert "output 0: f" in run(capsys, "run", "net.covan", "-i", "1x64xf32")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("batch", "'batch' is not understood"),
        ("batch=1,x", "'batch=1,x' is not understood"),
    ],
)
def test_command_line_refuses(model_file: Path, capsys: pytest.CaptureFixture[str], value: str, message: str) -> None:
    told = fails(capsys, "compile", "net.py:make", "--dynamic", "0:0=batch", "--specialise", value, code=2)
    assert message in told[0]


def test_the_page_shows_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "sizes.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    (file := tmp_path / "story.py").write_text(program)
    exec(compile(program, str(file), "exec"), {"__name__": "story"})


@pytest.mark.parametrize(
    ("places", "message"),
    [((0, 0), "name programs twice"), ((99,), "such as there are not"), (None, "no program that is for all sizes")],
)
def test_manifests_name_programs_of_versions_once(saved: Path, places: tuple[int, ...] | None, message: str) -> None:
    with zipfile.ZipFile(saved) as archive:
        manifest = decode(archive.read("manifest.json"), Manifest, "manifest.json")
    check_manifest(manifest)
    first = manifest.specialised[0]
    claimed = places or tuple(range(len(manifest.variants)))
    with pytest.raises(SchemaError, match=message):
        check_manifest(structs.replace(manifest, specialised=(structs.replace(first, variants=claimed),)))
