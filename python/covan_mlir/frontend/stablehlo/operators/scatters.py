"""Tensors with parts at many places, which are computed, replaced or added to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.operators.gathers import Places
from covan_mlir.frontend.stablehlo.operators.reductions import combiner
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused

_REDUCED = {"multiply": "prod", "maximum": "amax", "minimum": "amin"}


@operation("stablehlo.scatter")
def scatter(call: Call) -> tuple[Tensor, ...]:
    """Parts that would reach out are left out; of several at a place, by the function, in any order."""
    if len(call.items) != 3:
        raise Refused("several tensors are updated at once")
    numbers, (tensor, table, updates) = call.attribute("scatter_dimension_numbers"), call.tensors()
    kind = _kind(call)
    paired = numbers["input_batching_dims"]
    places = Places.of(
        table,
        numbers["index_vector_dim"],
        numbers["scattered_dims_to_operand_dims"],
        paired,
        numbers["scatter_indices_batching_dims"],
    )
    dropped = (*numbers["inserted_window_dims"], *paired)
    window = numbers["update_window_dims"]
    kept = [axis for axis in range(tensor.dim()) if axis not in dropped]
    sizes = dict.fromkeys(dropped, 1) | {axis: updates.shape[place] for axis, place in zip(kept, window, strict=True)}
    whole = [axis for axis in kept if axis not in places.starts and sizes[axis] == tensor.shape[axis]]
    parts = [axis for axis in kept if axis not in whole]
    indexed = [axis for axis in range(tensor.dim()) if axis not in whole]
    outer = [axis for axis in range(updates.dim()) if axis not in window]
    position = dict(zip(kept, window, strict=True))
    updates = updates.permute([*outer, *(position[axis] for axis in parts), *(position[axis] for axis in whole)])
    flat, inside = _flat_places(tensor, places, indexed, parts, sizes)
    rows = tensor.permute([*indexed, *whole]).reshape([-1, *(tensor.shape[axis] for axis in whole)])
    new = updates.reshape([-1, *rows.shape[1:]])
    result = unsigned.computed(lambda a, b: _written(kind, a, b, flat, inside), rows, new)
    result = result.reshape([tensor.shape[axis] for axis in (*indexed, *whole)])
    order = [*indexed, *whole]
    return (result.permute([order.index(axis) for axis in range(len(order))]),)


def _kind(call: Call) -> str:
    """What is done with what is there, and what comes: ``set``, or as in `combiner`."""
    region = call.region()
    if not region.operations and region.returned == region.arguments[1:]:
        return "set"
    name = combiner(region)
    truth = call.value(0).dtype is torch.bool
    if truth and name in ("or", "and", "maximum", "minimum", "add", "multiply"):
        return "maximum" if name in ("or", "maximum", "add") else "minimum"
    if name not in ("add", *_REDUCED):
        raise Refused("it combines what is there with what comes in another way than by a sum, a product or an extreme")
    return name


def _flat_places(
    tensor: Tensor, places: Places, indexed: Sequence[int], parts: Sequence[int], sizes: dict[int, int]
) -> tuple[Tensor, Tensor | None]:
    """-> (for each row of updates, which row of the axes that are indexed, taken as one; whether it is there)."""
    shape = [*places.batch, *(sizes[axis] for axis in parts)]
    total = torch.zeros([1] * len(shape), dtype=torch.int64)
    inside: Tensor | None = None
    for axis in indexed:
        total = total * tensor.shape[axis]
        start = places.starts.get(axis)
        if start is not None:
            start = start.reshape([*places.batch, *[1] * len(parts)])
            total = total + start
            if axis not in places.paired:
                fits = (start >= 0) & (start <= tensor.shape[axis] - sizes[axis])
                inside = fits if inside is None else inside & fits
        if axis in parts:
            own = [1] * len(parts)
            own[parts.index(axis)] = sizes[axis]
            total = total + torch.arange(sizes[axis]).reshape(own)
    flat = total.expand(shape).reshape(-1)
    return flat, None if inside is None else inside.expand(shape).reshape(-1)


def _written(kind: str, rows: Tensor, new: Tensor, places: Tensor, inside: Tensor | None) -> Tensor:
    """Rows with others written to them; those that are not there go to a row of their own, which is left out."""
    count, truth = rows.shape[0], rows.dtype is torch.bool
    if inside is not None:
        places = torch.where(inside, places, torch.full_like(places, count))
        rows = torch.cat([rows, torch.zeros([1, *rows.shape[1:]], dtype=rows.dtype)])
    if kind == "set":
        result = torch.index_put(rows, [places], new)
    elif kind == "add":
        result = torch.index_put(rows, [places], new, accumulate=True)
    else:
        wide = [places.shape[0], *rows.shape[1:]]
        index = places.reshape([-1, *[1] * (rows.dim() - 1)]).expand(wide)
        values = (rows.to(torch.int32), new.to(torch.int32)) if truth else (rows, new)
        result = values[0].scatter_reduce(0, index, values[1], _REDUCED[kind])
        result = result != 0 if truth else result
    return result if inside is None else result.narrow(0, 0, count)
