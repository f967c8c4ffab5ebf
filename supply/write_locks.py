"""Write the locks: the versions of constraints.txt, and the hashes that an index has of their files.

One resolution, by uv, holds on all platforms and Pythons that the package supports. It overrides one requirement: the
CUDA build of torch wants a Triton of its own, whose version is not the one that covan writes kernels with. pip itself,
which one of the tools wants, is that of the virtual environment.

torch's CPU build has a version of its own, which not every index has. Its lock is written where pip would install it;
where not, what the lock has of this version is kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pins
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pins import Pin

_CUDA = ("cuda-", "nvidia-")
"""How the names of CUDA's libraries begin."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """One package of the resolution.

    Attributes:
        users: names of the packages that need it.
    """

    pin: Pin
    users: frozenset[str]


def main() -> int:
    """Exit status: 1 if constraints.txt lacks a version."""
    config = tomllib.loads((pins.ROOT / "pyproject.toml").read_text())
    overridden = [entry for entry in pins.lines(pins.CONSTRAINTS) if pins.pinned(entry)[0] == "triton"]
    resolved = {package.pin.name: package for package in _resolve(config["build-system"]["requires"], overridden)}
    versions = {name: version for name, version, _ in map(pins.pinned, pins.lines(pins.CONSTRAINTS))}
    if missing := sorted(resolved.keys() - versions.keys()):
        print("constraints.txt lacks:", *(f"{name}=={resolved[name].pin.version}" for name in missing), sep="\n")
        return 1
    cpu_build = _cpu_build(resolved["torch"].pin)
    extras = config["project"]["optional-dependencies"]
    cuda = {name for name in resolved if name.startswith(_CUDA)}
    run = _closure(resolved, config["project"]["dependencies"], without={*cuda, "triton"})
    develop = _closure(
        resolved, [*config["build-system"]["requires"], *extras["test"], *extras["sign"], *extras["cuda"]]
    )
    bench = _closure(resolved, extras["bench"])
    for path, title, names in (
        (pins.RUNTIME, "What covan needs to run.", run),
        (pins.TORCH_CUDA, "What torch's CUDA build needs besides.", cuda),
        (pins.DEVELOP, "What builds and tests covan, besides what it needs to run.", develop - run - cuda),
        (pins.BENCH, "What covan is measured against.", bench - develop - run - cuda),
        (pins.LOCKING, "What writes these files.", resolved.keys() - bench - develop - run - cuda),
    ):
        pins.write(path, title, [resolved[name].pin for name in names])
    pins.write(pins.TORCH_CPU, "torch's CPU build.", cpu_build)
    return 0


def _resolve(building: Iterable[str], overridden: Iterable[str]) -> list[Resolved]:
    """All packages of the project with its extras and what builds it, from the default index alone."""
    with tempfile.TemporaryDirectory() as folder:
        build, override, lock = (Path(folder) / name for name in ("build.in", "override.txt", "lock.txt"))
        build.write_text("".join(f"{requirement}\n" for requirement in building))
        override.write_text("".join(f"{requirement}\n" for requirement in overridden))
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "--no-config", "pip", "compile", "--quiet", "--universal"),
                *("--generate-hashes", "--all-extras", "--no-header", "--no-emit-package", "pip"),
                *("--output-file", str(lock), "--constraints", str(pins.CONSTRAINTS), "--overrides", str(override)),
                *(str(pins.ROOT / "pyproject.toml"), str(build)),
            ],
            check=True,
        )
        return [
            Resolved(pin, users)
            for pin, users in zip(pins.read(lock), _users(lock.read_text().splitlines()), strict=True)
        ]


def _users(lines: Iterable[str]) -> list[frozenset[str]]:
    """Of each package in what uv wrote, in order, who needs it: the comments behind it."""
    users: list[set[str]] = []
    for line in lines:
        if line[:1].isalnum():
            users.append(set())
        elif line.startswith("    #"):
            users[-1].add(line.strip().removeprefix("#").strip().removeprefix("via").strip())
    return [frozenset(names) for names in users]


def _closure(
    resolved: Mapping[str, Resolved], requirements: Iterable[str], without: frozenset[str] | set[str] = frozenset()
) -> set[str]:
    """The names of required packages and of all that they need."""
    reached: set[str] = set()
    pending: set[str] = {canonicalize_name(Requirement(requirement).name) for requirement in requirements}
    while pending:
        name = pending.pop()
        reached.add(name)
        pending |= {other for other, package in resolved.items() if name in package.users} - reached - without
    return reached


def _cpu_build(torch: Pin) -> list[Pin]:
    """torch's CPU build: that which pip would install here, and those of the lock."""
    requirement = f"torch=={torch.version}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    answer = subprocess.run([*pip, "--report", "-", requirement], check=True, stdout=subprocess.PIPE)
    (package,) = json.loads(answer.stdout)["install"]
    version = f"{torch.version}+cpu"
    known = pins.read(pins.TORCH_CPU) if pins.TORCH_CPU.exists() else []
    hashes = {sum for pin in known if pin.version == version for sum in pin.hashes}
    if package["metadata"]["version"] == version:
        hashes.add(package["download_info"]["archive_info"]["hashes"]["sha256"])
    else:
        print(f"pip would install torch {package['metadata']['version']} here: the lock of {version} is kept")
    return [Pin("torch", version, "", tuple(sorted(hashes)))]


if __name__ == "__main__":
    sys.exit(main())
