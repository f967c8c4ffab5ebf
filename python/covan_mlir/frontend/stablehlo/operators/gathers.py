"""Parts of a tensor at many places, which are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation import unsigned


@dataclass(frozen=True)
class Places:
    """Where parts begin.

    Attributes:
        batch: the shape of the table of places.
        starts: by axis of the tensor that is indexed: its places, of this shape; axes that are not there begin at zero.
        paired: of these, axes that go with an axis of the table.
    """

    batch: tuple[int, ...]
    starts: Mapping[int, Tensor]
    paired: frozenset[int]

    @staticmethod
    def of(table: Tensor, vector: int, axes: Sequence[int], own: Sequence[int], paired: Sequence[int]) -> Places:
        """Of a table of vectors.

        Args:
            vector: the axis of the table along which vectors lie; behind the last one: vectors of one number.
            axes: the axes of the tensor that elements of vectors are for.
            own, paired: axes of the tensor, and those of the table that they go with.
        """
        table = unsigned.signed(table).to(torch.int64)
        table = table.unsqueeze(-1) if vector == table.dim() else table.movedim(vector, -1)
        batch = tuple(table.shape[:-1])
        starts = {axis: table.select(-1, index) for index, axis in enumerate(axes)}
        behind = [axis - (axis > vector) for axis in paired]
        for axis, place in zip(own, behind, strict=True):
            shape = [1] * len(batch)
            shape[place] = batch[place]
            starts[axis] = torch.arange(batch[place]).reshape(shape).expand(batch)
        return Places(batch, starts, frozenset(own))


@operation("stablehlo.gather")
def gather(call: Call) -> Tensor:
    """Parts of one size, moved inside where they would reach out."""
    return _gathered(call, call.numbers("slice_sizes"))


@operation("stablehlo.dynamic_gather")
def dynamic_gather(call: Call) -> Tensor:
    """Of sizes that are an operand."""
    return _gathered(call, call.sizes(2))


def _gathered(call: Call, sizes: Sequence[Any]) -> Tensor:
    numbers, tensor = call.attribute("dimension_numbers"), call.tensor(0)
    places = Places.of(
        call.tensor(1),
        numbers["index_vector_dim"],
        numbers["start_index_map"],
        numbers["operand_batching_dims"],
        numbers["start_indices_batching_dims"],
    )
    dropped = (*numbers["collapsed_slice_dims"], *numbers["operand_batching_dims"])
    kept = [axis for axis in range(tensor.dim()) if axis not in dropped]
    whole = [axis for axis in kept if axis not in places.starts]
    parts = [axis for axis in kept if axis in places.starts]
    tensor = _cut(tensor, whole, sizes)
    indexed = [axis for axis in range(tensor.dim()) if axis not in whole]
    batch = len(places.batch)
    indices = []
    for axis in indexed:
        start = places.starts.get(axis)
        if start is None:  # of size one: nothing but the first
            start = torch.zeros(places.batch, dtype=torch.int64)
        elif axis not in places.paired:
            start = start.clamp(0, tensor.shape[axis] - sizes[axis])
        start = start.reshape([*places.batch, *[1] * len(parts)])
        if axis in parts:
            shape = [1] * len(parts)
            shape[parts.index(axis)] = sizes[axis]
            start = start + torch.arange(sizes[axis]).reshape(shape)
        indices.append(start)
    rows = at_places(tensor.permute([*indexed, *whole]), indices)
    order = {axis: batch + place for place, axis in enumerate((*parts, *whole))}
    offsets, inner, outer = numbers["offset_dims"], iter(kept), iter(range(batch))
    result = [order[next(inner)] if axis in offsets else next(outer) for axis in range(batch + len(kept))]
    return rows.permute(result)


def _cut(tensor: Tensor, axes: Sequence[int], sizes: Sequence[Any]) -> Tensor:
    """Axes without places: their first elements."""
    for axis in axes:
        if sizes[axis] != tensor.shape[axis]:
            tensor = tensor.narrow(axis, 0, sizes[axis])
    return tensor


def at_places(tensor: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """A tensor at places of its first axes."""
    if not indices:
        return tensor
    return unsigned.computed(lambda value: torch.ops.aten.index.Tensor(value, list(indices)), tensor)


@operation("stablehlo.torch_index_select")
def index_select(call: Call) -> Tensor:
    """Along an axis, at the places of a table, for each element of a batch its own."""
    tensor, table = call.tensor(0), unsigned.signed(call.tensor(1)).to(torch.int64)
    axis, batch = call.attribute("dim"), call.attribute("batch_dims")
    indices = []
    for place in range(batch):
        shape = [1] * table.dim()
        shape[place] = table.shape[place]
        indices.append(torch.arange(table.shape[place]).reshape(shape))
    outer = list(range(batch, axis))
    rows = at_places(tensor.permute([*range(batch), axis, *outer, *range(axis + 1, tensor.dim())]), [*indices, table])
    inner = table.dim() - batch
    front = [*range(batch), *range(batch + inner, batch + inner + len(outer)), *range(batch, batch + inner)]
    return rows.permute([*front, *range(len(front), rows.dim())])
