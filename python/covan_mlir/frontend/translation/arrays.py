"""Arrays of numpy and tensors of torch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from covan_mlir.errors import ExportError


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array with a tensor's elements, over the same memory where it is contiguous and on the CPU."""
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        bits: np.ndarray[Any, Any] = tensor.contiguous().view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def to_torch(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A real tensor with an array's elements, in memory of its own where the array cannot be written to."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).reshape(array.shape)
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16:
        raise ExportError(f"programs have no tensors of {array.dtype}")
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
    return torch.from_numpy(little if little.flags.writeable else little.copy())
