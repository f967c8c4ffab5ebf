"""Programs in processes of their own, and what they returned."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covan_mlir.runtime.compiled import CompiledModel

_WORDS = 400  # characters of what a failed process said


class RunError(Exception):
    """A program gave no results: it crashed, failed or took too long."""


@dataclass(frozen=True)
class Result:
    """A tensor that a program returned, in a file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]

    def read(self) -> torch.Tensor:
        """The tensor over the file's memory, which is read as it is needed."""
        dtype = getattr(torch, self.dtype)
        if 0 in self.shape:
            return torch.empty(self.shape, dtype=dtype)
        data = np.memmap(self.path, np.uint8, "c")  # copy on write: torch knows no tensors that are read-only
        return torch.from_numpy(data).view(dtype).reshape(self.shape)


def run(compiled: CompiledModel, leaves: Sequence[Any], folder: Path, timeout: float | None) -> list[Result | None]:
    """Run a program for flat arguments.

    Args:
        folder: a new one, for the program, its arguments and its results.

    Returns:
        its results, flat; None for those that are no tensors.

    Raises:
        RunError: says how it ended.
    """
    folder.mkdir()
    compiled.save(folder / "program.covan")
    rows = [_written(folder / f"input{index}.bin", leaf) for index, leaf in enumerate(leaves)]
    (folder / "inputs.json").write_text(json.dumps(rows))
    command = [sys.executable, "-m", "covan_mlir.comparing.child", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise RunError(f"the program ran for longer than {timeout:g} s and was stopped") from None
    if done.returncode < 0:
        raise RunError(f"the program crashed with {signal.Signals(-done.returncode).name}")
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RunError(f"the program failed: {said[-1][:_WORDS] if said else f'exit code {done.returncode}'}")
    (folder / "program.covan").unlink()
    return [
        Result(folder / row["file"], row["dtype"], tuple(row["shape"])) if "file" in row else None
        for row in json.loads((folder / "outputs.json").read_text())
    ]


def _written(path: Path, leaf: Any) -> dict[str, Any]:
    if isinstance(leaf, torch.Tensor):
        flat = leaf.detach().contiguous().reshape(-1)
        dtype, data = str(leaf.dtype).removeprefix("torch."), flat.view(torch.uint8).numpy()
    elif isinstance(leaf, np.ndarray | np.generic):
        dtype, data = leaf.dtype.name, np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
    else:
        return {"value": leaf}
    data.tofile(path)
    return {"file": path.name, "dtype": dtype, "shape": list(leaf.shape)}
