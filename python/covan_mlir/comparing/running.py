"""Programs in processes of their own, and what they returned."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covan_mlir.comparing import exchange
from covan_mlir.comparing.exchange import Passed, PlainValue, TensorFile
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.support.processes import leash
from covan_mlir.support.processes.child import ending
from covan_mlir.support.typed_json import constant

_WORDS = 400  # characters of what a failed process said


class RunError(Exception):
    """A program gave no results: it crashed, failed or took too long."""


@dataclass(frozen=True)
class ReturnedTensor:
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


def run(
    compiled: CompiledModel, leaves: Sequence[Any], folder: Path, timeout: float | None
) -> list[ReturnedTensor | None]:
    """Run a program for flat arguments.

    Args:
        folder: a new one, for the program, its arguments and its results.

    Returns:
        its results, flat; None for those that are no tensors.

    Raises:
        RunError: says how it ended.
    """
    folder.mkdir()
    compiled.save(folder / exchange.PROGRAM)
    passed = [_passed(folder / f"input{index}.bin", leaf) for index, leaf in enumerate(leaves)]
    exchange.write(folder / exchange.INPUTS, passed)
    command = [sys.executable, "-m", "covan_mlir.comparing.child", str(folder)]
    try:
        done = leash.run(command, timeout)
    except subprocess.TimeoutExpired:
        raise RunError(f"the program ran for longer than {timeout:g} s and was stopped") from None
    if done.returncode < 0:
        raise RunError(f"the program {ending(done.returncode)}")
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RunError(f"the program failed: {said[-1][:_WORDS] if said else f'exit code {done.returncode}'}")
    (folder / exchange.PROGRAM).unlink()
    return [
        ReturnedTensor(folder / given.file, given.dtype, given.shape) if isinstance(given, TensorFile) else None
        for given in exchange.read(folder / exchange.OUTPUTS)
    ]


def _passed(path: Path, leaf: Any) -> Passed:
    if isinstance(leaf, torch.Tensor):
        flat = leaf.detach().contiguous().reshape(-1)
        dtype, data = str(leaf.dtype).removeprefix("torch."), flat.view(torch.uint8).numpy()
    elif isinstance(leaf, np.ndarray | np.generic):
        dtype, data = leaf.dtype.name, np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
    else:
        return PlainValue(constant(leaf))
    return exchange.save(path, data, dtype, leaf.shape)
