"""What a process that runs a program is given and gives back: a list of values in a JSON file, tensors beside it.

Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from covan_mlir.support import typed_json
from covan_mlir.support.typed_json import Constant, JsonObject, Natural

PROGRAM, INPUTS, OUTPUTS = "program.covan", "inputs.json", "outputs.json"


class PlainValue(JsonObject, frozen=True, tag_field="kind", tag="value"):
    """A value that is no tensor; of results always None."""

    value: Constant


class TensorFile(JsonObject, frozen=True, tag_field="kind", tag="tensor"):
    """A tensor: the name of the file with its bytes, its dtype as torch spells it, its shape."""

    file: str
    dtype: str
    shape: tuple[Natural, ...]


Passed = PlainValue | TensorFile


class _List(JsonObject, frozen=True):
    values: tuple[Passed, ...]


def write(path: Path, values: Iterable[Passed]) -> None:
    """Write a list of values."""
    path.write_bytes(msgspec.json.encode(_List(tuple(values))))


def read(path: Path) -> tuple[Passed, ...]:
    """The list of values in a file.

    Raises:
        SchemaError: it holds no such list.
    """
    return typed_json.decode(path.read_bytes(), _List, path.name).values


def save(path: Path, data: np.ndarray[tuple[int], np.dtype[np.uint8]], dtype: str, shape: Iterable[int]) -> TensorFile:
    """Write a tensor's bytes."""
    data.tofile(path)
    return TensorFile(path.name, dtype, tuple(shape))
