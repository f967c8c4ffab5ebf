"""Programs for IREE's own command-line tools: their arguments and weights as files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import iree.runtime as rt
import numpy as np

UNKNOWN = frozenset({"bfloat16"})
"""Types that ``.npy`` files do not know: tensors of them are files of their bytes."""


@dataclass(frozen=True)
class ToolArgument:
    """One argument of the program.

    Attributes:
        value: a number, or an array of the argument's elements; of bfloat16 their bits, as uint16.
        dtype: of an array, as torch spells it.
    """

    value: np.ndarray[Any, Any] | int | float
    dtype: str = ""


def write_argument(folder: Path, name: str, argument: ToolArgument, told: Path | None = None) -> str:
    """The tools' spelling of an argument, for ``--input=``; an array goes through a file.

    Args:
        name: of the file, without its ending.
        told: the folder as the tool is to be told it, if not as ``folder``.
    """
    value = argument.value
    if not isinstance(value, np.ndarray):
        return repr(value)
    place = folder if told is None else told
    if argument.dtype in UNKNOWN:
        (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(value).tobytes())
        return f"{'x'.join([*map(str, value.shape), 'bf16'])}=@{place / f'{name}.bin'}"
    np.save(folder / f"{name}.npy", value, allow_pickle=False)
    return f"@{place / f'{name}.npy'}"


def write_weights(path: Path, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write IREE's parameter archive of the raw bytes of weights, by parameter name."""
    index = rt.ParameterIndex()
    for name, data in weights.items():
        index.add_buffer(name, data)
    index.create_archive_file(str(path))
