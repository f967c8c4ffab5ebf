"""Operations on integers that are open sizes: what shapes are computed with."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.translation.value import Value, open_sizes

_Array = np.ndarray[Any, Any]
_INTEGERS = (torch.int64, torch.int32)


def evaluated(call: Call) -> Value | None:
    """What an operation gives for operands of which some elements are open sizes; None: that is left to tensors."""
    values = [item for item in call.items if isinstance(item, Value)]
    if not values or len(values) < len(call.items) or not all(value.is_known for value in values):
        return None
    if all(value.known is not None for value in values) or any(value.dtype not in _INTEGERS for value in values):
        return None
    if call.operation.name == "stablehlo.compare":
        return _compared(call, values)
    function = _FUNCTIONS.get(call.operation.name)
    if function is None or len(call.operation.types) != 1 or call.dtype() not in _INTEGERS:
        return None
    result = function(call, *(value.objects() for value in values))
    return None if result is None else open_sizes(np.asarray(result, object), call.dtype())


def _compared(call: Call, values: list[Value]) -> Value:
    """What is asked of sizes is answered for those that are given, and holds for calls from then on."""
    compare = getattr(operator, call.attribute("comparison_direction").lower())
    answers = np.frompyfunc(lambda a, b: bool(compare(a, b)), 2, 1)(*(value.objects() for value in values))
    return open_sizes(np.asarray(answers, object), torch.bool)


def _elementwise(function: Callable[..., Any], count: int) -> Callable[..., _Array]:
    apply = np.frompyfunc(function, count, 1)
    return lambda call, *arrays: np.asarray(apply(*arrays), object)


def _broadcast(call: Call, operand: _Array) -> _Array:
    shape = call.shape()
    own = [1] * len(shape)
    for axis, place in enumerate(call.numbers("broadcast_dimensions")):
        own[place] = operand.shape[axis]
    return np.broadcast_to(operand.reshape(own), shape)


def _slice(call: Call, operand: _Array) -> _Array:
    bounds = zip(*(call.numbers(f"{name}") for name in ("start_indices", "limit_indices", "strides")), strict=True)
    return np.asarray(operand[tuple(slice(*bound) for bound in bounds)], object)


def _clamped(low: Any, size: Any, high: Any) -> Any:
    smaller: Any = _LEAST(size, high)
    return _MOST(low, smaller)


_MOST: Callable[[Any, Any], Any] = torch.sym_max
_LEAST: Callable[[Any, Any], Any] = torch.sym_min
_FUNCTIONS: dict[str, Callable[..., _Array | None]] = {
    "stablehlo.add": _elementwise(operator.add, 2),
    "stablehlo.subtract": _elementwise(operator.sub, 2),
    "stablehlo.multiply": _elementwise(operator.mul, 2),
    "stablehlo.divide": _elementwise(operator.floordiv, 2),  # sizes are not negative
    "stablehlo.remainder": _elementwise(operator.mod, 2),
    "stablehlo.maximum": _elementwise(torch.sym_max, 2),
    "stablehlo.minimum": _elementwise(torch.sym_min, 2),
    "stablehlo.clamp": _elementwise(_clamped, 3),
    "stablehlo.convert": lambda call, operand: operand,
    "stablehlo.reshape": lambda call, operand: operand.reshape(call.shape()),
    "stablehlo.concatenate": lambda call, *arrays: np.concatenate(arrays, call.attribute("dimension", 0)),
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.slice": _slice,
}
