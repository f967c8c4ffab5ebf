"""``covan tune`` and ``covan records``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import covan, fails

from covan_mlir.lowering.kernels import database


def test_from_a_model_to_records_and_back(here: Path) -> None:
    tune = covan("tune", "models.py:make", "--minutes", "0.01", "--records", "kept.sqlite", "--json", cwd=here)
    assert tune.returncode == 0, tune.stderr
    told = json.loads(tune.stdout.removeprefix("hello from the factory\n"))
    assert [row["what"] for row in told["rows"]] == ["linear, softmax"]
    shown = covan("records", "--records", "kept.sqlite", cwd=here)
    assert " kernels were timed on this machine" in shown.stdout
    assert covan("records", "--records", "kept.sqlite", "--export", "lines", cwd=here).returncode == 0
    count = len((here / "lines").read_text().splitlines())
    read = covan("records", "--records", "other.sqlite", "--import", "lines", cwd=here)
    assert read.stdout == f"other.sqlite: {count} records added\n"
    compiled = covan("compile", "models.py:make", "--records", "other.sqlite", "-o", "m.covan", cwd=here)
    assert compiled.returncode == 0, compiled.stderr
    explained = covan("explain", "m.covan", "--fusion", cwd=here)
    assert "to be the best" in explained.stdout


def test_mistakes(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert fails(capsys, "tune", "models.py:make", "--minutes", "0", code=2) == (
        "--minutes 0 is no time to measure in",
        "give a positive number",
    )
    (here / "text").write_text("no records" * 100)
    error, hint = fails(capsys, "tune", "models.py:make", "--minutes", "1", "--records", "text")
    assert error == f"{here}/text: file is not a database"
    assert hint == "choose another file, or remove this one"
    assert fails(capsys, "records", "--records", "gone") == ("gone: there are no records", "'covan tune' writes some")
    error, hint = fails(capsys, "records", "--import", "gone", "--records", "kept")
    assert (error, hint) == ("gone: No such file or directory", "check the path")
    error, hint = fails(capsys, "records", "--import", "text", "--records", "kept")
    assert error.startswith("line 1 holds no record: ")
    assert hint == "give what 'covan records --export' wrote"
    assert fails(capsys, "records", "--export", "a", "--import", "b", code=2)[1] == "give one of them"
    monkeypatch.setenv(database.VARIABLE, database.OFF)
    assert fails(capsys, "records")[0] == "no records are kept"
    assert fails(capsys, "compile", "models.py:make", "--records", "gone") == (
        f"{here}/gone: unable to open database file",
        "choose another file, or remove this one",
    )
