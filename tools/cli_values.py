"""Outputs on the command line: a summary of each, and ``.npy`` files. Needs numpy only."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from covan_mlir.support import whole_file
from covan_mlir.tools.cli_common import CliError

_FEW = 8


def summary(value: Any) -> str:
    """Type and shape, then the elements if they are few, else their range: ``float32[8, 10]  min -2 mean 0 max 3``."""
    if not isinstance(value, np.ndarray):
        return f"{type(value).__name__}  {value}"
    head = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    if not value.size:
        return f"{head}  (empty)"
    flat = value.reshape(-1)
    if value.dtype.kind not in "biu":
        flat = flat.astype(np.float64)  # the mean of many float16 overflows; bfloat16 has no functions of its own
    if value.size <= _FEW:
        return f"{head}  {' '.join(_number(x) for x in flat)}"
    if value.dtype.kind == "b":
        return f"{head}  {np.count_nonzero(flat)} true, {flat.size - np.count_nonzero(flat)} false"
    finite = flat[np.isfinite(flat)]
    parts = []
    if finite.size:
        parts = [f"min {_number(finite.min())}", f"mean {_number(finite.mean())}", f"max {_number(finite.max())}"]
    for name, count in (("nan", np.isnan(flat).sum()), ("infinite", np.isinf(flat).sum())):
        if count:
            parts.append(f"{count} {name}")
    return f"{head}  {'  '.join(parts)}"


def _number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float | np.floating) else str(value)


def check_output(path: str) -> None:
    """Raises `CliError` if nothing can be saved there."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder):
        reason = "it is a directory" if os.path.isdir(path) else f"there is no folder {folder}"
        raise CliError(f"{path}: cannot be written: {reason}", "choose another path for --output")


def save(path: str, value: Any) -> None:
    """Save an output as ``.npy``, under this very name.

    Raises:
        CliError: it cannot be written.
    """
    try:
        with whole_file.writing(path) as file:
            np.save(file, np.asarray(value), allow_pickle=False)
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror or error}", "choose another path") from error
