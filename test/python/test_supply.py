"""What the project stands on: locks agree with requirements, wheels carry a bill of it, audits tell the truth."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "supply"))

import audit  # noqa: E402
import pins  # noqa: E402
import torch_build  # noqa: E402

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = CONFIG["project"]["optional-dependencies"]
SET_UP = [*CONFIG["project"]["dependencies"], *CONFIG["build-system"]["requires"], *EXTRAS["test"], *EXTRAS["cuda"]]
"""What `make setup` installs for."""


def test_locks_are_constraints_with_hashes() -> None:
    locked = [pin for lock in pins.DISJOINT for pin in pins.read(lock)]
    versions = {pin.name: pin.version for pin in locked}
    assert len(versions) == len(locked)
    constrained = [pins.pinned(line)[:2] for line in pins.lines(pins.CONSTRAINTS)]
    assert versions == dict(constrained)
    assert len(constrained) == len(versions)
    assert all(pin.hashes and all(re.fullmatch("[0-9a-f]{64}", sum) for sum in pin.hashes) for pin in locked)


def test_the_cpu_build_is_of_the_same_torch() -> None:
    (cpu,) = pins.read(pins.TORCH_CPU)
    (torch,) = [pin for pin in pins.read(pins.RUNTIME) if pin.name == "torch"]
    assert (cpu.name, cpu.version) == ("torch", f"{torch.version}+cpu")
    assert cpu.hashes
    assert not {*cpu.hashes} & {*torch.hashes}


@pytest.mark.parametrize(
    ("requirements", "locks"),
    [
        (CONFIG["project"]["dependencies"], [pins.RUNTIME]),
        (CONFIG["build-system"]["requires"], [pins.RUNTIME, pins.DEVELOP]),
        *((EXTRAS[extra], [pins.RUNTIME, pins.DEVELOP]) for extra in ("cuda", "sign", "test")),
        (EXTRAS["bench"], [pins.RUNTIME, pins.DEVELOP, pins.BENCH]),
        (EXTRAS["lock"], [pins.LOCKING]),
    ],
)
def test_what_is_required_is_locked(requirements: list[str], locks: list[Path]) -> None:
    locked = {pin.name: pin.version for lock in locks for pin in pins.read(lock)}
    for requirement in map(Requirement, requirements):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])


def test_locks_hold_all_that_packages_need() -> None:
    """By what the installed packages say themselves, which no resolver has read."""
    locked = {pin.name for lock in (pins.RUNTIME, pins.DEVELOP) for pin in pins.read(lock)}
    needed: set[tuple[str, str]] = set()
    pending = {(canonicalize_name(Requirement(requirement).name), "") for requirement in SET_UP}
    while pending:
        name, extra = pending.pop()
        needed.add((name, extra))
        for requirement in map(Requirement, requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                other = canonicalize_name(requirement.name)
                pending |= {(other, inner) for inner in ("", *requirement.extras)} - needed
    assert {name for name, _ in needed} <= locked | {"pip"}


@pytest.mark.parametrize("line", ["torch>=2", "torch==2.*", "torch", "torch[opt]==2"])
def test_what_is_no_pin_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"not one version|unpack"):
        pins.pinned(line)


def test_a_lock_is_read_as_it_is_written(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    written = [
        pins.Pin("b", "1.0", 'sys_platform == "win32"', ("0" * 64, "1" * 64)),
        pins.Pin("a", "2", "", ("2" * 64,)),
    ]
    pins.write(lock, "Two packages.", written)
    assert pins.read(lock) == written[::-1]
    lock.write_text(lock.read_text().replace("sha256", "md5"))
    with pytest.raises(ValueError, match="SHA-256"):
        pins.read(lock)


def test_builds_of_torch() -> None:
    assert torch_build.build(["filelock", "sympy>=1.13.3"]) == "cpu"
    assert torch_build.build(["filelock", 'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"']) == "cuda"
    assert torch_build.build(['cuda-toolkit[cublas]==13.0.3.0; platform_system == "Linux"']) == "cuda"


def test_a_wheel_tells_what_it_stands_on(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        pytest.skip("no pip in this environment")
    building = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(building, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/sboms/covan-mlir.cdx.json")]
        bill: dict[str, Any] = json.loads(archive.read(name))
    assert (bill["bomFormat"], bill["metadata"]["timestamp"]) == ("CycloneDX", "2023-11-14T22:13:20+00:00")
    assert bill["metadata"]["component"]["version"] == version("covan-mlir")
    for locks, scope in (([pins.RUNTIME], "required"), ([pins.TORCH_CPU, pins.TORCH_CUDA], "optional")):
        told = {
            component["name"]: (component["version"], {entry["content"] for entry in component["hashes"]})
            for component in bill["components"]
            if component["scope"] == scope
        }
        assert told == {pin.name: (pin.version, set(pin.hashes)) for lock in locks for pin in pins.read(lock)}


def test_an_audit_without_network_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))  # answers of before
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert audit.main() == 0
    assert "nothing was audited, for there is no network" in capfd.readouterr().out


HOLE = {"id": "PYSEC-2026-1", "fix_versions": ["1.1"], "aliases": [], "description": "reads what it should not"}
SAFE = {"name": "b", "version": "2", "vulns": []}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("packages", "status", "says"),
    [
        ([{"name": "a", "version": "1.0", "vulns": [HOLE]}, SAFE], 1, "a 1.0: PYSEC-2026-1 (mended in 1.1)"),
        ([SAFE, UNKNOWN], 0, "not audited: Dependency not found\n1 packages audited, 0 known vulnerabilities"),
        ([UNKNOWN], 0, "nothing was audited: the advisories of none of the 1 packages can be had here"),
    ],
)
def test_audits_that_are_answered(
    packages: list[dict[str, Any]],
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    answer = subprocess.CompletedProcess([], int(status), json.dumps({"dependencies": packages}), "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    assert audit.main() == status
    assert says in capfd.readouterr().out


def test_an_audit_that_fails_otherwise_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = subprocess.CompletedProcess([], 1, "", "requests.exceptions.SSLError: a certificate of nobody")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    assert audit.main() == 1
    assert "a certificate of nobody" in capfd.readouterr().err
