"""A compiled model from a ``.covan`` file. Needs numpy, msgspec and the IREE runtime only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from covan_mlir.artifacts import artifact
from covan_mlir.errors import ArtifactError
from covan_mlir.runtime import contract, values
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.runtime.compiled_program import CompiledProgram
from covan_mlir.runtime.isolation.limits import Isolation
from covan_mlir.runtime.isolation.program import Place
from covan_mlir.support.typed_json import short


class _HeldState:
    """Buffers of a loaded program: the executable's own, starting from what was saved."""

    def __init__(self, held: dict[str, Any]) -> None:
        self._values = held

    def read(self, name: str) -> Any:
        return self._values[name]

    def write(self, name: str, value: Any) -> None:
        self._values[name] = values.aligned_copy(np.asarray(value))  # the result's memory is the program's


def read(
    path: str | os.PathLike[str],
    isolation: Isolation | None = None,
    check: Callable[[IO[bytes]], object] = lambda file: None,
) -> CompiledProgram:
    """What an artifact holds, to be called.

    Args:
        isolation: limits of the process of its own in which the program is to run; None: it runs in this one.
        check: is given the open file first, and may refuse it.

    Raises:
        ArtifactError: the file is damaged, foreign, or from a newer version.
    """
    place: Place | None = None

    def opened(file: IO[bytes]) -> None:
        nonlocal place
        check(file)
        if isolation is not None:
            place = Place(os.fspath(path), os.fdopen(os.dup(file.fileno()), "rb"), isolation)

    contents = artifact.read(path, opened)
    with refusing(path):
        for signature in (contents.signature, *(version.signature for version in contents.specialised)):
            contract.check_states(
                signature,
                {name: contract.TensorType(blob.dtype, blob.shape) for name, blob in contents.states.items()},
            )
    return CompiledProgram(
        contents.variants,
        contents.signature,
        contents.device,
        {name: _array(path, name, blob) for name, blob in contents.weights.items()},
        _HeldState({name: _array(path, name, blob).copy() for name, blob in contents.states.items()}),
        contents.versions,
        place,
        contents.specialised,
    )


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """A program that contradicts what stands beside it is the file's fault."""
    try:
        yield
    except contract.ContractError as error:
        raise ArtifactError(f"{path}: refused: {error}\nCompile the model again.") from error


def load(path: str | os.PathLike[str]) -> CompiledModel:
    """The model in an artifact.

    Raises:
        ArtifactError: see `read`; or the program is another than its signature says.
        DeviceError: it has no program for a device of this machine.
    """
    compiled = read(path)
    with refusing(path):
        model = CompiledModel(compiled)
    model.check_device()
    return model


def _array(path: str | os.PathLike[str], name: str, blob: artifact.Blob) -> np.ndarray[Any, Any]:
    if not values.supported(blob.dtype):
        raise ArtifactError(f"{path}: {name} has the unknown dtype {blob.dtype!r}")
    try:
        return np.frombuffer(blob.data, values.numpy_dtype(blob.dtype)).reshape(blob.shape)
    except ValueError as error:  # such as a size of 2^62 beside one of 0
        raise ArtifactError(
            f"{path}: {short(name)} cannot have its shape: {error}\nCompile the model again."
        ) from error
