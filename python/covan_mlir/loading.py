"""`load`: an executable from a ``.covan`` file. Needs numpy and the IREE runtime only."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from covan_mlir.artifacts import artifact
from covan_mlir.errors import ArtifactError
from covan_mlir.executable import Executable
from covan_mlir.runtime import values


class _HeldState:
    """Buffers of a loaded program: the executable's own, starting from what was saved."""

    def __init__(self, held: dict[str, Any]) -> None:
        self._values = held

    def read(self, name: str) -> Any:
        return self._values[name]

    def write(self, name: str, value: Any) -> None:
        self._values[name] = values.aligned_copy(np.asarray(value))  # the result's memory is the program's


def load(path: str | os.PathLike[str]) -> Executable:
    """Load an artifact that `Executable.save` wrote.

    Raises:
        ArtifactError: the file is damaged, foreign, or from a newer version; nothing was changed.
        DeviceError: it has no program for a device of this machine; says for which targets it has.
    """
    it = artifact.read(path)
    states = {name: _array(path, name, blob).copy() for name, blob in it.states.items()}
    exe = Executable(
        it.variants,
        it.signature,
        device=it.device,
        weights={name: _array(path, name, blob) for name, blob in it.weights.items()},
        states=_HeldState(states),
        versions=it.versions,
    )
    exe.check_device()
    return exe


def _array(path: str | os.PathLike[str], name: str, blob: artifact.Blob) -> np.ndarray[Any, Any]:
    if not values.supported(blob.dtype):
        raise ArtifactError(f"{path}: {name} has the unknown dtype {blob.dtype!r}")
    return np.frombuffer(blob.data, values.numpy_dtype(blob.dtype)).reshape(blob.shape)
