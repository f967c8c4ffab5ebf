"""Digests of source files: what was computed by some code is kept under a name that says which."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path


def of_file(path: Path) -> str:
    """SHA-256 of a file's content; empty if it is gone, with which nothing runs."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def of_packages(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each Python file of some packages and its digest, as they are now: tens of milliseconds for hundreds of files."""
    files: dict[str, Path] = {}
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        for folder in map(Path, spec.submodule_search_locations or ()):
            if not (folder / "__init__.py").exists():
                continue  # the repository, where an editable install finds folders of packages beside others
            for path in folder.rglob("*.py"):
                files[f"{name.replace('.', '/')}/{path.relative_to(folder).as_posix()}"] = path
    return [(name, of_file(path)) for name, path in sorted(files.items())]
