"""Elements by index: gathering, scattering, slices, sorting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def counted(indices: Tensor, length: Any) -> Tensor:
    """Indices of which negative ones count from the end, as 64 bits from the front."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + length, indices)


@operator("Gather")
def gather(call: Call) -> Tensor:
    """Slices of an axis by index."""
    value, axis = call.tensor(0), call.integer("axis")
    axis %= value.dim()
    known = call.value(1).known
    if known is not None and known.dim() == 0:
        return value.select(axis, int(call.sizes(1)[0]))
    indices = call.tensor(1)
    if known is None or any(number < 0 for number in call.sizes(1)):
        indices = counted(indices, value.shape[axis])
    else:
        indices = indices.to(torch.int64)
    if axis == 0 and value.dim() == 2 and value.dtype.is_floating_point:
        return torch.nn.functional.embedding(indices, value)
    return value[(slice(None),) * axis + (indices,)]


@operator("GatherElements", since=11)
def gather_elements(call: Call) -> Tensor:
    """Elements along an axis, by an index each."""
    value, axis = call.tensor(0), call.integer("axis")
    return torch.gather(value, axis, counted(call.tensor(1), value.shape[axis]))


@operator("GatherND", since=11)
def gather_nd(call: Call) -> Tensor:
    """Slices by tuples of indices."""
    value, indices, batch = call.tensor(0), call.tensor(1).to(torch.int64), call.integer("batch_dims")
    depth = indices.shape[-1]
    rank = indices.dim() - 1
    places: list[Tensor] = []
    for axis in range(batch):
        row = torch.arange(value.shape[axis])
        places.append(row.reshape([-1 if a == axis else 1 for a in range(rank)]))
    places += [counted(indices[..., k], value.shape[batch + k]) for k in range(depth)]
    return value[tuple(places)]


@operator("ScatterElements", since=11)
@operator("Scatter", since=9)
def scatter_elements(call: Call) -> Tensor:
    """Elements written along an axis, by an index each."""
    value, updates, axis = call.tensor(0), call.tensor(2), call.integer("axis")
    indices = counted(call.tensor(1), value.shape[axis])
    reduction = call.text("reduction", "none")
    if reduction == "none":
        return torch.scatter(value, axis, indices, updates)
    return torch.scatter_reduce(value, axis, indices, updates, _REDUCTIONS[reduction], include_self=True)


@operator("ScatterND", since=11)
def scatter_nd(call: Call) -> Tensor:
    """Slices written by tuples of indices."""
    value, indices, updates = call.tensor(0), call.tensor(1).to(torch.int64), call.tensor(2)
    depth = indices.shape[-1]
    places = tuple(counted(indices[..., k], value.shape[k]) for k in range(depth))
    reduction = call.text("reduction", "none")
    if reduction in ("none", "add"):
        return torch.index_put(value, places, updates, accumulate=reduction == "add")
    # One index of rows of elements, each of which takes part in the reduction.
    flat = torch.zeros_like(places[0])
    for axis in range(depth):
        flat = flat * value.shape[axis] + places[axis]
    rows = value.reshape(-1, *value.shape[depth:])
    flat = flat.reshape(-1)
    added = updates.reshape(flat.shape[0], *value.shape[depth:])
    at = flat.reshape([-1] + [1] * (added.dim() - 1)).expand(added.shape)
    return torch.scatter_reduce(rows, 0, at, added, _REDUCTIONS[reduction], include_self=True).reshape(value.shape)


@operator("TensorScatter", since=24)
def tensor_scatter(call: Call) -> Tensor:
    """A key-value cache, with what is new written into it from where each sequence of the batch ends."""
    cache, update, axis = call.tensor(0), call.tensor(1), call.integer("axis", -2)
    axis %= cache.dim()
    length, count, batch = cache.shape[axis], update.shape[axis], cache.shape[0]
    start = call.tensor(2).to(torch.int64) if call.has(2) else torch.zeros(batch, dtype=torch.int64)
    at = start.reshape(-1, 1) + torch.arange(count).reshape(1, -1)
    if call.text("mode", "linear") == "circular":
        at = at % length
    shape = [batch if a == 0 else count if a == axis else 1 for a in range(cache.dim())]
    return torch.scatter(cache, axis, at.reshape(shape).expand(update.shape), update)


@operator("Slice")
def slice_(call: Call) -> Tensor:
    """Parts of axes, by start, end and step; attributes before opset 10."""
    value = call.tensor(0)
    if call.opset < 10:
        starts, ends = call.integers("starts") or [], call.integers("ends") or []
        axes, steps = call.integers("axes"), None
    else:
        starts, ends = call.sizes(1), call.sizes(2)
        axes = [int(axis) for axis in call.sizes(3)] if call.has(3) else None
        steps = call.sizes(4) if call.has(4) else None
    for k, axis in enumerate(axes if axes is not None else range(len(starts))):
        value = _sliced(value, axis % value.dim(), starts[k], ends[k], int(steps[k]) if steps else 1)
    return value


def _sliced(value: Tensor, axis: int, start: Any, end: Any, step: int) -> Tensor:
    length = value.shape[axis]
    if step > 0:
        return torch.ops.aten.slice.Tensor(value, axis, start, end, step)
    if step == 0:
        raise Refused("its step is zero")
    # Backwards: the same elements forwards, and turned round.
    first = min(start + length if start < 0 else start, length - 1)
    last = max(end + length if end < 0 else end, -1)
    count = max(-(-(first - last) // -step), 0)
    if count == 0:
        return value.narrow(axis, 0, 0)
    lowest = first + (count - 1) * step
    return torch.ops.aten.slice.Tensor(value, axis, lowest, first + 1, -step).flip(axis)


@operator("Compress", since=9)
def compress(call: Call) -> Tensor:
    """Slices for which a condition holds."""
    value = call.tensor(0)
    condition = call.value(1)
    if condition.is_known:
        at = torch.tensor([place for place, chosen in enumerate(call.sizes(1)) if chosen], dtype=torch.int64)
    else:
        at = condition.tensor.nonzero().squeeze(1)
    if not call.given("axis"):
        return value.reshape(-1).index_select(0, at)
    return value.index_select(call.integer("axis"), at)


@operator("NonZero", since=9)
def non_zero(call: Call) -> Tensor:
    """Places of elements that are not zero, a row for each axis; one for a tensor without axes."""
    value = call.tensor(0)
    return (value if value.dim() else value.reshape(1)).nonzero().t()


@operator("Unique", since=11)
def unique(call: Call) -> tuple[Tensor, ...]:
    """-> (elements, or slices along an axis, each once; where the first of each is; of each element of the operand, or
    slice, which it is; how many there are of each)."""
    value = call.tensor(0)
    axis = call.integer("axis") if call.given("axis") else None
    slices = value.reshape(-1) if axis is None else value
    along = 0 if axis is None else axis
    count = slices.shape[along]
    kept, inverse, counts = torch.unique(slices, dim=axis, return_inverse=True, return_counts=True)
    # The first of each, and by that how they would come unsorted, in tensors of known sizes.
    places = torch.arange(count)
    numbers = torch.full((count,), count, dtype=torch.int64).scatter_reduce(0, inverse, places, "amin")
    if not call.integer("sorted", 1):
        first = (numbers.index_select(0, inverse) == places).nonzero().squeeze(1)
        rank = torch.argsort(torch.argsort(numbers, stable=True), stable=True).index_select(0, inverse)
        many = torch.zeros_like(places).scatter_add(0, inverse, torch.ones_like(places))
        many = many.index_select(0, inverse.index_select(0, first))
        return slices.index_select(along, first), first, rank, many
    return kept, numbers.index_select(0, (numbers < count).nonzero().squeeze(1)), inverse, counts


@operator("OneHot", since=9)
def one_hot(call: Call) -> Tensor:
    """A number at the place of an index, another elsewhere."""
    depth = int(call.number(1, 0))
    indices, values = call.tensor(0), call.tensor(2)
    axis = call.integer("axis", -1)
    axis = axis + indices.dim() + 1 if axis < 0 else axis
    indices = counted(indices, depth).unsqueeze(axis)
    at = torch.arange(depth).reshape([-1 if a == axis else 1 for a in range(indices.dim())])
    return unsigned.computed(lambda v: torch.where(at == indices, v[1], v[0]), values)


@operator("TopK")
def top_k(call: Call) -> tuple[Tensor, Tensor]:
    """The largest or smallest elements, in order, and their places."""
    value, axis = call.tensor(0), call.integer("axis", -1)
    count = call.number(1, 1) if call.has(1) else call.integer("k")
    largest = bool(call.integer("largest", 1))
    # Stable: of equal elements the first comes first.
    order = unsigned.signed(value)
    if value.dtype is torch.uint64:
        order = order ^ -(2**63)
    _, places = torch.sort(order, dim=axis, descending=largest, stable=True)
    places = places.narrow(axis, 0, count)
    return unsigned.computed(lambda v: torch.gather(v, axis, places), value), places


@operator("ReverseSequence", since=10)
def reverse_sequence(call: Call) -> Tensor:
    """The first elements of each sequence of a batch, backwards."""
    value, lengths = call.tensor(0), call.tensor(1)
    time, batch = call.integer("time_axis", 0), call.integer("batch_axis", 1)
    steps = torch.arange(value.shape[time])
    shape = [value.shape[a] if a in (time, batch) else 1 for a in range(value.dim())]
    steps = steps.reshape([-1 if a == time else 1 for a in range(value.dim())])
    lengths = lengths.reshape([-1 if a == batch else 1 for a in range(value.dim())])
    at = torch.where(steps < lengths, lengths - 1 - steps, steps).expand(shape)
    return torch.gather(value, time, at.expand(value.shape))
