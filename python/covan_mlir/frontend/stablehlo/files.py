"""A file with a StableHLO module, called with its arguments in order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.stablehlo import export, reading
from covan_mlir.frontend.stablehlo.dtypes import torch_type
from covan_mlir.frontend.stablehlo.program import Type
from covan_mlir.frontend.translation.arrays import to_torch

LARGEST = 1 << 30
"""Bytes of an example that is made up, at most: a file may say any size."""


def capture(path: Path, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any) -> Capture:
    """Read a file, translate it, and export it.

    Args:
        args: example arguments; none at all to have zeros made. Sizes that the file leaves open stay open.

    Raises:
        ExportError: the file cannot be read, or operations of it have no translation.
        InputError: arguments do not fit the file.
    """
    data = contents(path)
    if kwargs:
        raise InputError(f"the inputs of {path} have no names: give them in order")
    if dynamic_shapes is not None:
        raise InputError(f"{path} says itself which sizes are open")
    loaded = reading.read(str(path), data)
    types = loaded.module.functions[loaded.module.main].body.types
    if args and len(args) != len(types):
        raise InputError(f"{path} takes {len(types)} inputs, and {len(args)} are given")
    examples = (
        tuple(_given(value, kind, index) for index, (value, kind) in enumerate(zip(args, types, strict=True)))
        if (args)
        else tuple(_zeros(kind, index) for index, kind in enumerate(types))
    )
    dims = tuple(
        {axis: torch.export.Dim.AUTO for axis, size in enumerate(kind.shape) if size is None} or None for kind in types
    )
    interface = export.Interface(
        examples,
        {},
        lambda given, named: list(given),
        lambda results: results[0] if len(results) == 1 else tuple(results),
        {"args": dims} if any(dims) else None,
    )
    return export.capture(loaded, interface, lambda given: reading.interpreted(str(path), data, given))


def contents(path: Path) -> bytes:
    """What a file holds.

    Raises:
        ExportError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror or error}") from error


def _zeros(kind: Type, index: int) -> torch.Tensor:
    shape = [3 + index + axis if size is None else size for axis, size in enumerate(kind.shape)]
    dtype = torch_type(kind.dtype)
    if math.prod(shape) * dtype.itemsize > LARGEST:
        raise InputError(f"input {index}, {kind}, has more than {LARGEST >> 20} MiB: give example arguments")
    return torch.zeros(shape, dtype=dtype)


def _given(value: Any, kind: Type, index: int) -> torch.Tensor:
    tensor = value.detach() if isinstance(value, torch.Tensor) else to_torch(np.asarray(value))
    fits = len(tensor.shape) == len(kind.shape) and all(
        size in (None, own) for size, own in zip(kind.shape, tensor.shape, strict=True)
    )
    if not fits or tensor.dtype is not torch_type(kind.dtype):
        shown = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        raise InputError(f"input {index} is {kind}, and {shown} is given")
    return tensor
