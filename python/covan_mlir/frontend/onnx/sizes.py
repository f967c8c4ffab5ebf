"""Operators on integers that are open sizes: what exporters compute shapes with."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.translation.value import Value, open_sizes

_Array = np.ndarray[Any, Any]
_INTEGERS = (torch.int64, torch.int32)


def evaluated(call: Call) -> Value | None:
    """What a node gives for operands of which some elements are open sizes; None: that is left to tensors."""
    given = [item for item in call.items if item is not None]
    if not given or not all(isinstance(item, Value) and item.is_known for item in given):
        return None
    values = [item for item in given if isinstance(item, Value)]
    if all(value.known is not None for value in values) or any(value.dtype not in _INTEGERS for value in values):
        return None
    function = _FUNCTIONS.get(call.node.op_type) if not call.node.domain else None
    if function is None:
        return None
    result = function(call, *(value.objects() for value in values))
    if result is None:
        return None
    dtype = values[0].dtype
    if call.node.op_type == "Cast":
        dtype = call.dtype("to")
        if dtype not in _INTEGERS:
            return None
    return open_sizes(np.asarray(result, object), dtype)


def _elementwise(function: Callable[[Any, Any], Any]) -> Callable[..., _Array]:
    apply = np.frompyfunc(function, 2, 1)
    return lambda call, *arrays: functools.reduce(lambda a, b: np.asarray(apply(a, b), object), arrays)


def _quotient(first: Any, second: Any) -> Any:
    """Sizes are not negative: to round down is to round to zero."""
    return first // second


def _gather(call: Call, data: _Array, indices: _Array) -> _Array | None:
    if not all(isinstance(index, int) for index in indices.flat):
        return None
    return np.asarray(np.take(data, indices.astype(np.int64), axis=call.integer("axis")), object)


def _slice(call: Call, data: _Array, *rest: _Array) -> _Array | None:
    numbers = [list(array.flat) for array in rest]
    if call.opset < 10:
        numbers = [call.integers("starts") or [], call.integers("ends") or []]
        if (axes := call.integers("axes")) is not None:
            numbers.append(axes)
    if not all(isinstance(number, int) for row in numbers for number in row):
        return None
    starts, ends = numbers[:2]
    places = numbers[2] if len(numbers) > 2 else list(range(len(starts)))
    steps = numbers[3] if len(numbers) > 3 else [1] * len(starts)
    at = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, places, steps, strict=True):
        at[axis] = slice(start, end if step > 0 or end >= -data.shape[axis] else None, step)
    return data[tuple(at)]


def _axes(call: Call, rest: tuple[_Array, ...]) -> list[int] | None:
    return [int(axis) for axis in rest[0].flat] if rest else call.integers("axes")


def _unsqueeze(call: Call, data: _Array, *rest: _Array) -> _Array:
    return np.expand_dims(data, tuple(_axes(call, rest) or ()))


def _squeeze(call: Call, data: _Array, *rest: _Array) -> _Array:
    axes = _axes(call, rest)
    return np.squeeze(data, None if axes is None else tuple(axes))


def _reduced(function: Callable[[Any, Any], Any]) -> Callable[..., _Array | None]:
    def reduce(call: Call, data: _Array, *rest: _Array) -> _Array | None:
        axes = _axes(call, rest)
        if data.ndim != 1 or (axes and axes not in ([0], [-1])):
            return None
        total = functools.reduce(function, data.flat)
        array = np.empty((1,) if call.integer("keepdims", 1) else (), object)
        array[...] = total
        return array

    return reduce


def _reshape(call: Call, data: _Array, sizes: _Array) -> _Array | None:
    numbers = list(sizes.flat)
    return data.reshape([int(n) for n in numbers]) if all(isinstance(n, int) and n for n in numbers) else None


def _larger(first: Any, second: Any) -> Any:
    function: Any = torch.sym_max
    return first if first is second else function(first, second)


def _smaller(first: Any, second: Any) -> Any:
    function: Any = torch.sym_min
    return first if first is second else function(first, second)


_FUNCTIONS: dict[str, Callable[..., _Array | None]] = {
    "Add": _elementwise(operator.add),
    "Sub": _elementwise(operator.sub),
    "Mul": _elementwise(operator.mul),
    "Div": _elementwise(_quotient),
    "Mod": _elementwise(operator.mod),
    "Max": _elementwise(_larger),
    "Min": _elementwise(_smaller),
    "Concat": lambda call, *arrays: np.concatenate(arrays, call.integer("axis")),
    "Gather": _gather,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Cast": lambda call, data: data,
    "Identity": lambda call, data: data,
    "Neg": lambda call, data: -data,
    "Reshape": _reshape,
    "ReduceProd": _reduced(operator.mul),
    "ReduceSum": _reduced(operator.add),
}
