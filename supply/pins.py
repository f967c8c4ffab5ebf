"""The lock files in ``supply/locks``: which file holds what, and how one is read and written.

A line of a lock is a requirement of exactly one version with the SHA-256 of every file of that version, as
``pip install --require-hashes`` reads it. Each package stands in the first lock that has a use for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "supply" / "locks"
CONSTRAINTS = ROOT / "constraints.txt"

RUNTIME = LOCKS / "runtime.txt"
"""What the package needs to run."""
TORCH_CPU = LOCKS / "torch_cpu.txt"
"""torch's CPU build, which takes the place of torch in `RUNTIME` where an index has it."""
TORCH_CUDA = LOCKS / "torch_cuda.txt"
"""What the build of torch in `RUNTIME` needs besides, on Linux."""
DEVELOP = LOCKS / "develop.txt"
"""What builds and tests the package."""
BENCH = LOCKS / "bench.txt"
"""What it is measured against."""
LOCKING = LOCKS / "locking.txt"
"""What writes these files."""
DISJOINT = (RUNTIME, TORCH_CUDA, DEVELOP, BENCH, LOCKING)


@dataclass(frozen=True, slots=True)
class Pin:
    """One version of a package.

    Attributes:
        name: as the Python packaging authority normalises names.
        marker: where it is needed, as an environment marker; empty for everywhere.
        hashes: SHA-256 of its files, in hexadecimal, sorted.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    def __str__(self) -> str:
        marker = f" ; {self.marker}" if self.marker else ""
        return " \\\n    ".join(
            [f"{self.name}=={self.version}{marker}", *(f"--hash=sha256:{sum}" for sum in self.hashes)]
        )


def pinned(requirement: str) -> tuple[str, str, str]:
    """The name, version and marker of a requirement of one version; `ValueError` for any other."""
    parsed = Requirement(requirement)
    (specifier,) = parsed.specifier
    if specifier.operator != "==" or specifier.version.endswith(".*") or parsed.extras:
        raise ValueError(f"{requirement!r} is not one version of a package")
    return canonicalize_name(parsed.name), specifier.version, str(parsed.marker or "")


def read(path: Path) -> list[Pin]:
    """The pins of a lock; `ValueError` for a line that is no pin."""
    pins: list[Pin] = []
    for entry in lines(path):
        requirement, *options = entry.split(" --hash=")
        if not all(option.startswith("sha256:") for option in options):
            raise ValueError(f"{path.name}: {requirement!r} has hashes other than SHA-256")
        pins.append(Pin(*pinned(requirement), tuple(option.strip().removeprefix("sha256:") for option in options)))
    return pins


def lines(path: Path) -> list[str]:
    """The requirements in a file, each with its options on one line, without comments."""
    entries = path.read_text().replace("\\\n", " ").splitlines()
    return [" ".join(entry.split()) for entry in entries if entry.strip() and not entry.strip().startswith("#")]


def write(path: Path, title: str, pins: Iterable[Pin]) -> None:
    """Write a lock."""
    head = f"# {title} Written by `make lock`; do not edit.\n"
    path.write_text(head + "".join(f"{pin}\n" for pin in sorted(pins, key=lambda pin: pin.name)))
