"""``covan tune`` and ``covan records``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import fails, said

from covan_mlir.lowering.kernels import database


def test_from_a_model_to_records_and_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune = said(capsys, "tune", "models.py:make", "--minutes", "0.01", "--records", "kept.sqlite", "--json")
    told = json.loads(tune.removeprefix("hello from the factory\n"))
    assert [row["what"] for row in told["rows"]] == ["linear, softmax"]
    assert " kernels were timed on this machine" in said(capsys, "records", "--records", "kept.sqlite")
    said(capsys, "records", "--records", "kept.sqlite", "--export", "lines")
    count = len((here / "lines").read_text().splitlines())
    read = said(capsys, "records", "--records", "other.sqlite", "--import", "lines")
    assert read == f"other.sqlite: {count} records added\n"
    said(capsys, "compile", "models.py:make", "--records", "other.sqlite", "-o", "m.covan")
    assert "to be the best" in said(capsys, "explain", "m.covan", "--fusion")


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
