"""Print ``cuda`` if the installed torch needs the packages of supply/locks/torch_cuda.txt, else ``cpu``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import requires


def build(requirements: Iterable[str]) -> str:
    """Of the torch with these requirements: ``cuda`` or ``cpu``."""
    return "cuda" if any(requirement.startswith(("cuda-", "nvidia-")) for requirement in requirements) else "cpu"


if __name__ == "__main__":
    print(build(requires("torch") or []))
