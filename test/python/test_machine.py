"""One model of this machine: read, measured once, kept, overridable; and never in the way."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path

import msgspec
import pytest
import torch

import covan_mlir
from covan_mlir.errors import TargetError
from covan_mlir.lowering import targets
from covan_mlir.machine import host, measured, reading
from covan_mlir.machine.description import PRESETS, Ceilings, Machine
from covan_mlir.machine.measured import Speeds
from covan_mlir.tools import cli

READ = replace(PRESETS["avx2"], cores=4, flops=1e9, flops_alone=1e9, speeds="read")
SPEEDS = Speeds(flops=2e9, bandwidth=3e9, cache_bandwidth=4e9, elements=5e9, flops_alone=6e9, bandwidth_alone=7e9)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose machine was never measured; -> the folder that keeps it."""
    monkeypatch.delenv(host.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(host, "_known", {})
    monkeypatch.setattr(host, "_background", None)
    monkeypatch.setattr(host, "read", lambda workers: READ)
    return tmp_path / "covan"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Speeds | None]:
    """What is measured next."""
    given: list[Speeds | None] = []
    monkeypatch.setattr(measured, "measure", lambda machine: given.pop(0))
    return given


# ---- read ------------------------------------------------------------------------------------------------------------


def test_reading_this_machine() -> None:
    machine = reading.read(reading.cores())
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.architecture == platform.machine()
    assert machine.speeds in ("read", "preset")
    assert machine.name == reading.nearest().name
    assert msgspec.json.decode(msgspec.json.encode(machine), type=Machine) == machine


def test_the_peak_follows_from_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 lanes of AVX-512, two operations each, at 2 GHz; the highest frequency counts where the kernel tells it."""
    monkeypatch.setattr(reading, "processor", lambda: {"flags": "fma avx2 avx512f", "cpu MHz": "2000.0"})
    monkeypatch.setattr(reading, "_CPU", tmp_path)
    reading.read.cache_clear()
    try:
        machine = reading.read(3)
        assert (machine.cores, machine.flops, machine.speeds) == (3, pytest.approx(64e9), "read")
        assert machine.l2 == PRESETS["avx512"].l2
        (tmp_path / "cpufreq").mkdir()
        (tmp_path / "cpufreq/cpuinfo_max_freq").write_text("3000000\n")
        (tmp_path / "cache/index2").mkdir(parents=True)
        (tmp_path / "cache/index2/size").write_text("2048K\n")
        reading.read.cache_clear()
        machine = reading.read(3)
        assert (machine.flops, machine.l2) == (pytest.approx(96e9), 2 << 20)
    finally:
        reading.read.cache_clear()


# ---- measured --------------------------------------------------------------------------------------------------------


def test_measuring_this_machine() -> None:
    """Magnitudes of any computer that covan runs on."""
    speeds = measured.measure(reading.read(reading.cores()))
    assert speeds is not None
    assert all(1e6 < rate < 1e15 for rate in asdict(speeds).values())


def test_measured_speeds_are_consistent() -> None:
    """One core has the memory's bandwidth to itself, or a share; no core is slower than its clock lets it be."""
    machine = SPEEDS.of(READ)
    assert (machine.flops, machine.flops_alone, machine.elements) == (2e9, 6e9, 5e9)
    assert (machine.bandwidth, machine.bandwidth_alone, machine.cache_bandwidth) == (3e9, 7e9, 4e9)
    assert machine.speeds == "measured"
    starved = replace(SPEEDS, bandwidth=1e9, cache_bandwidth=1e9, bandwidth_alone=8e9)
    assert (starved.of(READ).bandwidth, starved.of(READ).cache_bandwidth) == (2e9, 2e9)
    assert replace(SPEEDS, flops=1e8, flops_alone=1e8).of(READ).flops == READ.flops
    assert replace(SPEEDS, flops=1e8, flops_alone=1e8).of(replace(READ, speeds="preset")).flops == 1e8
    assert replace(SPEEDS, flops_alone=1.0).of(READ).flops_alone == 2e9
    assert replace(SPEEDS, elements=1.2345e9).of(READ).elements == 1.2e9


def test_measured_once_and_kept(fresh: Path, answers: list[Speeds | None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.host(measure=False) == READ
    answers.append(SPEEDS)
    machine = host.host()
    assert machine == SPEEDS.of(READ)
    assert host.host() == machine == host.host(measure=False)
    monkeypatch.setattr(host, "_known", {})  # as another process
    assert host.host() == machine == host.host(measure=False)
    (file,) = fresh.iterdir()
    assert json.loads(file.read_text())["speeds"] == asdict(SPEEDS)


def test_the_higher_counts(fresh: Path, answers: list[Speeds | None]) -> None:
    answers += [SPEEDS, replace(SPEEDS, flops=9e9, bandwidth=1.0), None]
    host.host()
    assert host.remeasured() == replace(SPEEDS, flops=9e9).of(READ)
    assert host.remeasured() == host.host() == replace(SPEEDS, flops=9e9).of(READ)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace('"flops"', '"flips"'),
        lambda text: text.replace("2000000000.0", "-1.0"),
        lambda text: text.replace('"cores": 4', '"cores": 5'),
        lambda text: "",
    ],
)
def test_damaged_files_are_measured_anew(
    fresh: Path, answers: list[Speeds | None], damage: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers += [SPEEDS, replace(SPEEDS, elements=1e9)]
    host.host()
    (file,) = fresh.iterdir()
    assert damage(file.read_text()) != file.read_text()
    file.write_text(damage(file.read_text()))
    monkeypatch.setattr(host, "_known", {})
    assert host.host().elements == 1e9
    assert not answers


def test_other_hardware_is_another_machine(
    fresh: Path, answers: list[Speeds | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers += [SPEEDS] * 3
    host.host()
    for other in (replace(READ, cores=2), replace(READ, llc=1 << 20)):
        monkeypatch.setattr(host, "read", lambda workers, other=other: other)
        assert host.host(measure=False) == other
        host.host()
    assert not answers
    assert len(list(fresh.iterdir())) == 3


def test_without_a_folder_a_process_measures_once(
    fresh: Path, answers: list[Speeds | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.write_text("a file where the folder should be")
    answers.append(SPEEDS)
    assert host.host() == host.host() == SPEEDS.of(READ)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert host.host() == SPEEDS.of(READ)


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def python(path: Path, body: str) -> str:
    """A program that takes the place of Python."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("exit 3", "exit status 3"),
        ("kill -ILL $$", "SIGILL"),
        ("echo Nonsense", "malformed"),
        ("echo '{\"flops\": 0}'", "> 0"),
        ("exec sleep 600", "timed out"),
    ],
)
def test_what_cannot_be_measured_is_estimated(
    body: str, why: str, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", python(tmp_path / "python", body))
    monkeypatch.setattr(measured, "_LIMIT", 0.5 if "sleep" in body else 60.0)
    with caplog.at_level(logging.WARNING):
        assert host.host() == READ == host.host()
    (record,) = caplog.records  # not tried again
    assert why in record.getMessage()
    assert "cannot be measured" in record.getMessage()
    assert not fresh.exists()


def test_numpys_own_kernels_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where they do not run, those that the environment asks for."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    say = json.dumps(asdict(SPEEDS))
    other = json.dumps(asdict(replace(SPEEDS, flops=1.0)))
    for own, flops in ((f"echo '{say}'", SPEEDS.flops), ("kill -ILL $$", 1.0)):
        body = f"if [ -n \"$OPENBLAS_CORETYPE\" ]; then echo '{other}'; else {own}; fi"
        monkeypatch.setattr(sys, "executable", python(tmp_path / "python", body))
        speeds = measured.measure(READ)
        assert speeds is not None
        assert speeds.flops == flops


# ---- when ------------------------------------------------------------------------------------------------------------


def test_a_compilation_measures_beside_the_export(
    fresh: Path, answers: list[Speeds | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.append(SPEEDS)
    host.prepare()
    host.prepare()
    assert host.host() == SPEEDS.of(READ)
    host.prepare()
    assert not answers
    assert host._background is not None
    host._background.join()


def test_the_machine_reaches_the_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The caller's machine, as it is when it compiles: a dispatch that takes a day makes every kernel pay."""
    x = torch.randn(2, 8)

    def decisions(**changes: float) -> list[str]:
        path = tmp_path / "machine.json"
        path.write_text(json.dumps(asdict(replace(PRESETS["avx2"], **changes))))
        monkeypatch.setenv(host.VARIABLE, str(path))
        exe = covan_mlir.compile_module(lambda x: torch.softmax(x, -1), (x,))
        return [record.reason for record in exe.lineage.fusions]

    assert decisions(dispatch=86400.0) == [""]
    assert "does not pay" in decisions(dispatch=0.0)[0]


def test_only_this_machine_is_measured(fresh: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(machine: Machine) -> Speeds:
        raise AssertionError("measured")

    monkeypatch.setattr(measured, "measure", refuse)
    assert [targets.parse(name).is_host for name in ("cpu", "cpu:znver4", "cpu:x86_64-linux-gnu")] == [
        True,
        False,
        False,
    ]
    x = torch.randn(4, 8)
    exe = covan_mlir.compile_module(lambda x: torch.softmax(x, -1), (x,), target="cpu:x86_64-linux-gnu")
    exe.save(tmp_path / "it.covan")
    covan_mlir.load(tmp_path / "it.covan")
    options = covan_mlir.CompileOptions(fuse_reductions=False)
    covan_mlir.compile_module(lambda x: x + 1, (x,), options=options)


def test_importing_and_loading_measure_nothing(tmp_path: Path) -> None:
    """Without torch and without a compiler, too."""
    x = torch.randn(64, 64)
    covan_mlir.compile_module(lambda x: torch.softmax(x, -1), (x,)).save(tmp_path / "it.covan")
    code = (
        "import sys, subprocess\n"
        "sys.modules['torch'] = sys.modules['iree.compiler'] = sys.modules['torch_mlir'] = None\n"
        "def refuse(*args, **kwargs): raise AssertionError('measured')\n"
        "import covan_mlir, covan_mlir.machine.measured as measured\n"
        "measured.measure = refuse\n"
        "covan_mlir.load(sys.argv[1])\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != host.VARIABLE}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    command = [sys.executable, "-c", code, str(tmp_path / "it.covan")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "covan").exists()


# ---- overridden ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(host.VARIABLE, name)
    assert host.host() == host.remeasured() == replace(PRESETS[name], speeds="given")


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What the command prints is what a file holds; what has a usual value may be left out."""
    path = tmp_path / "machine.json"
    assert cli.main(["machine", "--json"]) == 0
    printed = capsys.readouterr().out
    row = json.loads(printed)
    path.write_text(json.dumps(row | {"cores": 64, "flops": 3e11}))
    monkeypatch.setenv(host.VARIABLE, str(path))
    assert host.host() == replace(msgspec.json.decode(printed, type=Machine), cores=64, flops=3e11)
    del row["dispatch"], row["architecture"]
    path.write_text(json.dumps(row))
    assert host.host().dispatch == 1e-6


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cores": 0}, r"Expected `int` >= 1 - at `\$.cores`"),
        ({"flops": "fast"}, r"Expected `float`, got `str` - at `\$.flops`"),
        ({"bandwidth": -1.0}, "> 0"),
        ({"bandwidth": math.inf}, "."),
        ({"speed": 3, "flips": 1}, "a machine has no flips, speed"),
    ],
)
def test_files_that_describe_no_machine(
    change: dict[str, object], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(asdict(PRESETS["neon"]) | change))
    monkeypatch.setenv(host.VARIABLE, str(path))
    with pytest.raises(TargetError, match=f"COVAN_MACHINE={path}: .*{why}"):
        host.host()
    with pytest.raises(TargetError, match="COVAN_MACHINE"):
        covan_mlir.compile_module(lambda x: x + 1, (torch.ones(2),))


def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(host.VARIABLE, "z80")
    assert cli.main(["machine"]) == 1
    assert "COVAN_MACHINE=z80: neither a preset (avx512, avx2, neon) nor a file that can be read" in (
        capsys.readouterr().err
    )


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_ceilings() -> None:
    machine = SPEEDS.of(READ)
    assert machine.ceilings() == Ceilings(8e9, 12e9, 4)
    assert machine.ceilings(2) == Ceilings(4e9, 6e9, 2)
    assert machine.ceilings(1) == Ceilings(6e9, 7e9, 1)
    assert machine.ceilings().seconds(8e9, 36e9) == 3.0


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["machine"]) == 0
    lines = capsys.readouterr().out.splitlines()
    machine = host.host()
    assert lines[0] == f"{machine.name}, {machine.cores} cores; speeds are given"
    assert any(f"{machine.ceilings().flops / 1e9:.0f} GFLOP/s" in line for line in lines)
    assert {it.name for it in fields(Machine)} == set(json.loads(_json(capsys)))


def _json(capsys: pytest.CaptureFixture[str]) -> str:
    cli.main(["machine", "--json"])
    return capsys.readouterr().out
