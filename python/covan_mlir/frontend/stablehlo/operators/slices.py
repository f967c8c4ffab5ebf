"""Parts of tensors, at places that are known or computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation import unsigned


@operation("stablehlo.slice")
def slice_(call: Call) -> Tensor:
    """From a place to another, by steps."""
    names = ("start_indices", "limit_indices", "strides")
    return _sliced(call.tensor(0), *(call.numbers(name) for name in names))


@operation("stablehlo.real_dynamic_slice")
def real_dynamic_slice(call: Call) -> Tensor:
    """The same, by operands."""
    return _sliced(call.tensor(0), *(call.sizes(index) for index in (1, 2, 3)))


def _sliced(tensor: Tensor, starts: Sequence[Any], limits: Sequence[Any], steps: Sequence[Any]) -> Tensor:
    for axis, (start, limit, step) in enumerate(zip(starts, limits, steps, strict=True)):
        if (start, limit, step) != (0, tensor.shape[axis], 1):
            tensor = torch.ops.aten.slice.Tensor(tensor, axis, start, limit, step)
    return tensor


@operation("stablehlo.dynamic_slice")
def dynamic_slice(call: Call) -> Tensor:
    """A part of a size that is known, at places that may be computed; moved inside where it would reach out."""
    tensor, sizes = call.tensor(0), call.numbers("slice_sizes")
    for axis, size in enumerate(sizes):
        if size != tensor.shape[axis]:
            at = _place(call, 1 + axis, tensor.shape[axis] - size)
            if isinstance(at, Tensor):
                tensor = tensor.index_select(axis, at + torch.arange(size))
            else:
                tensor = tensor.narrow(axis, at, size)
    return tensor


@operation("stablehlo.dynamic_update_slice")
def dynamic_update_slice(call: Call) -> Tensor:
    """A tensor with a part of it replaced, at places as of `dynamic_slice`."""
    tensor, part = call.tensor(0), call.tensor(1)
    if tensor.dtype in unsigned.WIDER:
        return unsigned.computed(lambda whole, new: _replaced(call, whole, new), tensor, part)
    return _replaced(call, tensor, part)


def _replaced(call: Call, whole: Tensor, part: Tensor) -> Tensor:
    axes = [axis for axis in range(whole.dim()) if whole.shape[axis] != part.shape[axis]]
    if not axes:
        return part
    at = {axis: _place(call, 2 + axis, whole.shape[axis] - part.shape[axis]) for axis in axes}
    if sum(isinstance(place, Tensor) for place in at.values()) > 1:
        rows = [at.get(axis, 0) + torch.arange(part.shape[axis]) for axis in range(axes[-1] + 1)]
        return whole.index_put(torch.meshgrid(rows, indexing="ij"), part)
    return _along(whole, part, at)


def _along(whole: Tensor, part: Tensor, at: Mapping[int, Any]) -> Tensor:
    """The same one axis after the other."""
    (axis, place), *rest = at.items()
    size = part.shape[axis]
    if isinstance(place, Tensor):
        places = place + torch.arange(size)
        if rest:
            part = _along(whole.index_select(axis, places), part, dict(rest))
        return whole.index_copy(axis, places, part)
    if rest:
        part = _along(whole.narrow(axis, place, size), part, dict(rest))
    return torch.slice_scatter(whole, part, axis, place, place + size)


def _place(call: Call, index: int, most: Any) -> Any:
    """A number, or a tensor of one element: where a part begins, not below zero and not above ``most``."""
    value = call.value(index)
    if value.is_known:
        (number,) = value.objects().flat
        return torch.sym_max(0, torch.sym_min(number, most))
    return unsigned.signed(value.tensor).to(torch.int64).clamp(0, most).reshape(1)
