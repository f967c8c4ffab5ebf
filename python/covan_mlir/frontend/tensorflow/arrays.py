"""Tensors in files, between processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from covan_mlir.frontend.tensorflow.messages import Array

assert ml_dtypes  # importing declares bfloat16


def write_array(path: Path, value: np.ndarray[Any, Any]) -> Array:
    """Put a tensor into a file."""
    path.write_bytes(np.ascontiguousarray(value).tobytes())
    return Array(value.dtype.name, value.shape)


def read_array(path: Path, array: Array) -> np.ndarray[Any, Any]:
    """A tensor from a file.

    Raises:
        ValueError: it has not as many bytes as it is said to have.
    """
    return np.frombuffer(path.read_bytes(), np.dtype(array.dtype)).reshape(array.shape).copy()
