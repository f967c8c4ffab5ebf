"""Run mypy over the package as it is installed: the folders of the checkout laid out as the build does it.

The folder table in pyproject.toml is the only place that says which folder is which subpackage.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Exit status of mypy."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages: dict[str, str] = config["tool"]["scikit-build"]["wheel"]["packages"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name, source in packages.items():
            target = tree / name
            target.mkdir(parents=True, exist_ok=True)
            for entry in (ROOT / source).iterdir():
                (target / entry.name).symlink_to(entry)
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "-p", "covan_mlir"],
            cwd=tree,
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
