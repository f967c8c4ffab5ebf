"""ONNX's element types and torch's."""

from __future__ import annotations

import onnx
import torch

from covan_mlir.errors import ExportError

_TYPES = {
    "FLOAT": torch.float32,
    "UINT8": torch.uint8,
    "INT8": torch.int8,
    "UINT16": torch.uint16,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "BOOL": torch.bool,
    "FLOAT16": torch.float16,
    "DOUBLE": torch.float64,
    "UINT32": torch.uint32,
    "UINT64": torch.uint64,
    "COMPLEX64": torch.complex64,
    "COMPLEX128": torch.complex128,
    "BFLOAT16": torch.bfloat16,
}
TYPES = {getattr(onnx.TensorProto, name): dtype for name, dtype in _TYPES.items()}
NUMBERS = {dtype: number for number, dtype in TYPES.items()}


def type_name(number: int) -> str:
    """``FLOAT8E4M3FN``; of a number that this onnx does not know, the number."""
    return next((name for name, value in onnx.TensorProto.DataType.items() if value == number), str(number))


def torch_type(number: int) -> torch.dtype:
    """torch's type.

    Raises:
        ExportError: programs do not compute with elements of this type.
    """
    dtype = TYPES.get(number)
    if dtype is None:
        raise ExportError(f"programs have no tensors of {type_name(number)}")
    return dtype
