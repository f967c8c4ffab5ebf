"""The package laid out as it is installed.

The folder table in pyproject.toml is the only place that says which folder is which subpackage. Tools that read
sources (mypy, import-linter) do not follow the redirections of an editable install.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def config() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def lay_out(tree: Path, *, copy: bool = False) -> None:
    """Make ``tree/covan_mlir``: links into the checkout, or copies of its Python files."""
    packages: dict[str, str] = config()["tool"]["scikit-build"]["wheel"]["packages"]
    for name, source in packages.items():
        target = tree / name
        target.mkdir(parents=True, exist_ok=True)
        for entry in (ROOT / source).iterdir():
            if not copy:
                (target / entry.name).symlink_to(entry)
            elif entry.is_dir():
                shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif entry.suffix == ".py":
                shutil.copy(entry, target / entry.name)
