"""MLIR's element types and torch's."""

from __future__ import annotations

import torch

from covan_mlir.errors import ExportError

TYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "ui8": torch.uint8,
    "ui16": torch.uint16,
    "ui32": torch.uint32,
    "ui64": torch.uint64,
    "complex<f32>": torch.complex64,
    "complex<f64>": torch.complex128,
}


def torch_type(dtype: str) -> torch.dtype:
    """torch's type.

    Raises:
        ExportError: programs do not compute with elements of this type.
    """
    kind = TYPES.get(dtype)
    if kind is None:
        raise ExportError(f"programs have no tensors of {dtype}")
    return kind
