"""Reading a StableHLO module, in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch

from covan_mlir.errors import ExportError
from covan_mlir.frontend.stablehlo.dtypes import TYPES, torch_type
from covan_mlir.frontend.stablehlo.program import Failed, Module, Results, Type
from covan_mlir.frontend.translation.arrays import to_torch
from covan_mlir.support.processes import frames
from covan_mlir.support.processes.child import Child, ending, lacking

READER, INTERPRETER = (f"covan_mlir.frontend.stablehlo.{name}" for name in ("reader", "interpreter"))
"""Modules of processes."""
_ANSWERS: msgspec.json.Decoder[Module | Results | Failed] = msgspec.json.Decoder(type=Module | Results | Failed)


@dataclass(frozen=True)
class Loaded:
    """A module that was read.

    Attributes:
        name: for messages: the path of the file, or the function's name.
        tensors: its constants, in the order of `Module.tensors`.
    """

    name: str
    module: Module
    tensors: Sequence[torch.Tensor]


def read(name: str, data: bytes) -> Loaded:
    """Read a module: text, bytecode, or a portable artifact.

    Raises:
        ExportError: it is damaged, or the process that reads it cannot be started, or ends.
    """
    needed("jaxlib")
    answer, blobs = _answered(name, READER, name, [data])
    if not isinstance(answer, Module):
        why = answer.reason if isinstance(answer, Failed) else "it gives something else"
        raise ExportError(f"{name} is no StableHLO module that can be read: {why}")
    return loaded(name, answer, blobs)


def loaded(name: str, module: Module, blobs: Sequence[bytes]) -> Loaded:
    """A module with its constants as tensors.

    Raises:
        ExportError: programs do not have elements of their types.
    """
    try:
        tensors = [_tensor(blobs[tensor.blob], tensor.type, tensor.splat) for tensor in module.tensors]
    except ExportError as error:
        raise ExportError(f"{name}: {error}") from None
    return Loaded(name, module, tensors)


def interpreted(name: str, data: bytes, arguments: Sequence[Any]) -> list[torch.Tensor | None]:
    """What StableHLO's own interpreter gives.

    Raises:
        ExportError: the interpreter gives nothing: it lacks operations and types.
    """
    names = {dtype: text for text, dtype in TYPES.items()}
    given = [value if isinstance(value, torch.Tensor) else to_torch(np.asarray(value)) for value in arguments]
    types = [Type(names[tensor.dtype], tuple(tensor.shape)) for tensor in given]
    arrays = [tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in given]
    answer, blobs = _answered(name, INTERPRETER, types, [data, *arrays])
    if not isinstance(answer, Results):
        raise ExportError(answer.reason if isinstance(answer, Failed) else "it gives something else")
    return [_tensor(blob, kind, False) for blob, kind in zip(blobs, answer.types, strict=True)]


def _answered(
    name: str, module: str, message: object, blobs: Sequence[bytes]
) -> tuple[Module | Results | Failed, list[bytes]]:
    """What a process of one of our modules answers."""
    try:
        child = Child(module)
    except OSError as error:
        raise ExportError(f"{name}: the process that reads it cannot be started: {lacking(error)}") from error
    try:
        frames.send(child.pipe, message, blobs)
        return frames.receive(child.pipe, _ANSWERS)
    except (EOFError, OSError) as error:
        code = child.process.wait()
        said = child.tail().splitlines()
        raise ExportError(
            f"{name} cannot be read: the reader {ending(code)}{f': {said[-1]}' if said else ''}"
        ) from error
    finally:
        child.stop()


def needed(package: str) -> None:
    """Raises ExportError where a package of JAX's is not there."""
    if importlib.util.find_spec(package) is None:
        raise ExportError("JAX functions and StableHLO modules need the package jax: pip install 'covan-mlir[jax]'")


def _tensor(data: bytes, type_: Type, splat: bool) -> torch.Tensor:
    kind, sizes = torch_type(type_.dtype), [size or 0 for size in type_.shape]
    if not data:
        return torch.empty(sizes, dtype=kind)
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(kind)
    return flat.reshape(()).expand(sizes) if splat else flat.reshape(sizes)
