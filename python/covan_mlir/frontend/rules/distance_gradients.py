"""What differentiates distances between the rows of matrices."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten


def _slope(difference: Tensor, distance: Tensor, p: float) -> Tensor:
    """By how much the p-norm grows with each of the differences; 0 where it has no slope."""
    size, sign = difference.abs(), difference.sign()
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return sign
    if p == math.inf:
        return torch.where(size == distance, sign, 0.0)
    apart = distance != 0
    divisor = torch.where(apart, distance, 1.0)
    if p == 2:
        return torch.where(apart, difference / divisor, 0.0)
    share = torch.pow(torch.where(size == 0, 1.0, size) / divisor, p - 1)
    return torch.where(apart & (size != 0), sign * share, 0.0)


@rule(aten._cdist_backward.default)
def cdist_gradient(gradient: Tensor, a: Tensor, b: Tensor, p: float, distance: Tensor) -> Tensor:
    """Of the first matrix: ``[..., rows, others]`` and ``[..., rows, width]`` -> ``[..., rows, width]``."""
    a_, b_ = wide(a), wide(b)
    slope = _slope(a_.unsqueeze(-2) - b_.unsqueeze(-3), wide(distance).unsqueeze(-1), p)
    return (wide(gradient).unsqueeze(-1) * slope).sum(-2).to(a.dtype)


@rule(aten._pdist_backward.default)
def pdist_gradient(gradient: Tensor, x: Tensor, p: float, distance: Tensor) -> Any:
    """Each pair of rows is looked up from both of them."""
    rows = x.shape[0]
    if not isinstance(rows, int):
        return NotImplemented
    if rows < 2:
        return torch.zeros_like(x)
    i, j = torch.arange(rows).unsqueeze(1), torch.arange(rows).unsqueeze(0)
    low, high = torch.minimum(i, j), torch.maximum(i, j)
    pair = torch.where(i == j, 0, low * (2 * rows - low - 1) // 2 + high - low - 1).reshape(-1)
    square = [rows, rows]
    given = torch.where(i == j, 0.0, wide(gradient).index_select(0, pair).reshape(square))
    apart = wide(distance).index_select(0, pair).reshape(square)
    y = wide(x)
    slope = _slope(y.unsqueeze(1) - y.unsqueeze(0), apart.unsqueeze(-1), p)
    return (given.unsqueeze(-1) * slope).sum(1).to(x.dtype)
