"""Run mypy over the package as it is installed (the folders of the checkout laid out as the build does it) and over the
scripts that use it.

The folder table in pyproject.toml is the only place that says which folder is which subpackage.
"""

from __future__ import annotations

import os
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
        mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
        scripts = [str(path) for folder in ("bench", "examples") for path in sorted((ROOT / folder).glob("*.py"))]
        found = [
            subprocess.run([*mypy, *what], cwd=tree, env=os.environ | {"MYPYPATH": path}, check=False).returncode
            for what, path in (
                (["-p", "covan_mlir"], ""),
                # What scripts take from the tests is not checked with them.
                (
                    ["--follow-imports", "silent", *scripts],
                    ":".join(map(str, (tree, ROOT / "test" / "python", ROOT / "examples" / "models"))),
                ),
            )
        ]
        return max(found)


if __name__ == "__main__":
    sys.exit(main())
