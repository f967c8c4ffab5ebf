"""Run mypy over the package as it is installed (`layout`) and over the scripts that use it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from layout import ROOT, lay_out


def main() -> int:
    """Exit status of mypy."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        lay_out(tree)
        mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
        scripts = [
            str(path) for folder in ("bench", "examples", "supply") for path in sorted((ROOT / folder).glob("*.py"))
        ]
        return max(
            subprocess.run([*mypy, *what], cwd=tree, env=os.environ | {"MYPYPATH": path}, check=False).returncode
            for what, path in (
                (["-p", "covan_mlir"], ""),
                # What scripts take from the tests is not checked with them.
                (
                    ["--follow-imports", "silent", *scripts],
                    ":".join(map(str, (tree, ROOT / "test" / "python", ROOT / "examples" / "models"))),
                ),
            )
        )


if __name__ == "__main__":
    sys.exit(main())
