"""What onnx's own evaluator gives: the judge of a translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from covan_mlir.frontend.onnx.dtypes import NUMBERS
from covan_mlir.frontend.onnx.reading import Loaded
from covan_mlir.frontend.translation.arrays import to_numpy, to_torch


def results(loaded: Loaded, given: Sequence[Any]) -> list[torch.Tensor | None]:
    """The results of a model for arguments in the order of its inputs; None for those that are no tensors.

    Raises:
        Exception: whatever the evaluator raises, for it lacks operators, or has them for some types only.
    """
    model = onnx.ModelProto()
    model.CopyFrom(loaded.model)
    model.graph.initializer.extend(_stored(tensor, name) for name, tensor in loaded.weights.items())
    inputs = {value.name: _array(item) for value, item in zip(loaded.inputs, given, strict=True)}
    values: Any = ReferenceEvaluator(model).run(None, inputs)
    return [_tensor(value) for value in values]


def _stored(tensor: torch.Tensor, name: str) -> onnx.TensorProto:
    if tensor.dtype is torch.bfloat16:
        raw = tensor.contiguous().view(torch.int16).numpy().tobytes()
        return onnx.TensorProto(name=name, dims=tensor.shape, data_type=NUMBERS[tensor.dtype], raw_data=raw)
    return numpy_helper.from_array(tensor.numpy(), name)


def _array(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_array(item) for item in value]
    if isinstance(value, torch.Tensor):
        return to_numpy(value)
    return value


def _tensor(value: Any) -> torch.Tensor | None:
    return to_torch(np.array(value)) if isinstance(value, np.ndarray | np.generic) else None
