"""Distances between the rows of matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import float_type, rule, wide

aten = torch.ops.aten


def _norm(difference: Tensor, p: float) -> Tensor:
    """p-norm over the last axis; that of halves is computed in float32."""
    size = difference.abs()
    return _wide_norm(wide(size), p).to(float_type(size))


def _wide_norm(size: Tensor, p: float) -> Tensor:
    if p == 0:
        return (size != 0).to(size.dtype).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return torch.sqrt((size * size).sum(-1))
    if p == math.inf:
        return size.amax(-1)
    return torch.pow(torch.pow(size, p).sum(-1), 1 / p)


@rule(aten._cdist_forward.default)
def cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), p)


@rule(aten._pdist_forward.default)
def pdist(x: Tensor, p: float = 2) -> Tensor:
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1).unbind(0)
    return _norm(x.index_select(0, first) - x.index_select(0, second), p)


@rule(aten.dist.default)
def dist(a: Tensor, b: Tensor, p: float = 2) -> Tensor:
    return _norm((a - b).reshape(-1), p)
