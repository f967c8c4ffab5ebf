"""The libcuda that runs nothing (cuda_stub.c), built where there is a C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """Builds the library -> the folder that it is in."""
    assert COMPILER is not None
    source = Path(__file__).with_name("cuda_stub.c")
    command = [COMPILER, "-shared", "-fPIC", "-w", "-o", str(folder / "libcuda.so"), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return folder


def environment(stub: Path, **settings: str) -> dict[str, str]:
    """This process's environment with the stub for libcuda, and what it is told (``FAIL="cuInit:100"``)."""
    told = {f"COVAN_CUDA_{name}": value for name, value in settings.items()}
    return {**os.environ, "LD_LIBRARY_PATH": str(stub), **told}
