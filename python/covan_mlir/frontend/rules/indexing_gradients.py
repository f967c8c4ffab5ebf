"""What differentiates reads by index and by mask."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide
from covan_mlir.frontend.rules.taps import gathered

aten = torch.ops.aten

_MEAN, _MAX = 1, 2
"""Of ``embedding_bag``'s modes; 0 is the sum."""


@rule(aten.masked_scatter_backward.default)
def masked_scatter_gradient(gradient: Tensor, mask: Tensor, sizes: list[Any]) -> Any:
    """Of what was written: its n-th element looks up the n-th place of the mask; those that were not used have none."""
    if not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    count = math.prod(sizes)
    if not count or not gradient.numel():
        return torch.zeros(sizes, dtype=gradient.dtype)
    before = mask.expand(gradient.shape).reshape(-1).to(torch.int64).cumsum(0)
    number = torch.arange(count)
    place = torch.searchsorted(before, number, right=True).clamp(max=gradient.numel() - 1)
    given = gradient.reshape(-1).index_select(0, place)
    return torch.where(number < before[-1], given, 0.0).to(gradient.dtype).reshape(sizes)


def _bag_of(indices: Tensor, offsets: Tensor) -> Tensor:
    """The bag of each index. The forward graph keeps it for some cases only, as eager does."""
    position = torch.arange(indices.shape[0])
    return (offsets.to(torch.int64).unsqueeze(0) <= position.unsqueeze(1)).sum(1) - 1


@rule(aten._embedding_bag_backward.default)
def embedding_bag_gradient(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """Of the table: what each index read gets its bag's gradient; sparse gradients are not made."""
    if sparse:
        return NotImplemented
    given, indices = wide(gradient), indices.to(torch.int64)
    width = gradient.shape[1]
    table = torch.zeros((num_weights, width), dtype=given.dtype)
    if mode == _MAX:
        nonempty = (bag_size > 0).unsqueeze(1)
        rows = torch.where(nonempty, maximum_indices, 0).to(torch.int64)
        return table.scatter_add(0, rows, torch.where(nonempty, given, 0.0)).to(gradient.dtype)
    bag = _bag_of(indices, offsets)
    if mode == _MEAN:
        given = given / bag_size.clamp(min=1).to(given.dtype).unsqueeze(1)
    each = given.index_select(0, bag)
    if per_sample_weights is not None:
        each = each * wide(per_sample_weights).unsqueeze(1)
    if scale_grad_by_freq:
        times = torch.zeros(num_weights, dtype=torch.int64).index_add(0, indices, torch.ones_like(indices))
        each = each / times.index_select(0, indices).to(each.dtype).unsqueeze(1)
    if padding_idx >= 0:
        each = torch.where((indices == padding_idx).unsqueeze(1), 0.0, each)
    return table.index_add(0, indices, each).to(gradient.dtype)


@rule(aten._embedding_bag_per_sample_weights_backward.default)
def embedding_bag_weights_gradient(
    gradient: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """Of the factor of each row that was read: the product of the row and its bag's gradient."""
    rows = wide(weight).index_select(0, indices.to(torch.int64))
    product = (rows * wide(gradient).index_select(0, _bag_of(indices, offsets))).sum(1)
    if padding_idx >= 0:
        product = torch.where(indices == padding_idx, 0.0, product)
    return product.to(weight.dtype)


@rule(aten.unfold_backward.default)
def unfold_gradient(gradient: Tensor, input_sizes: list[Any], dim: int, size: int, step: int) -> Any:
    """Each element takes of the windows that it stands in."""
    if not input_sizes:
        return gradient.sum()
    dim = dim % len(input_sizes)
    count, length = gradient.shape[dim], input_sizes[dim]
    if not isinstance(count, int) or not isinstance(length, int):
        return NotImplemented
    steps = wide(gradient).movedim(dim, -2).flatten(-2)
    taps: list[dict[int, float]] = [{} for _ in range(length)]
    for place in range(count * size):
        taps[place // size * step + place % size][place] = 1.0
    return gathered(steps, steps.dim() - 1, taps).movedim(-1, dim).to(gradient.dtype)
