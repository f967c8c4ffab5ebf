"""Factorisations and solutions of linear systems, column by column.

Eager raises an error where a matrix is singular or not positive definite; what is computed here has NaN or infinite
elements then, as PyTorch's own on GPUs may.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_LARGEST = 64
"""Columns of the largest matrix: each is a handful of operations of the program."""


def _size(a: Tensor) -> int:
    """Columns of a square matrix; 0: too many, or not known."""
    size = a.shape[-1]
    return size if isinstance(size, int) and size <= _LARGEST and a.dtype.is_floating_point else 0


@rule(aten.linalg_cholesky.default)
def cholesky(a: Tensor, *, upper: bool = False) -> Any:
    """Right-looking: a column is scaled, and its outer product taken off what is left."""
    if not (size := _size(a)):
        return NotImplemented
    rows = torch.arange(size)
    columns = []
    for j in range(size):
        column = a[..., j] * torch.rsqrt(a[..., j, j]).unsqueeze(-1)
        column = torch.where(rows >= j, column, 0.0)
        columns.append(column)
        a = a - column.unsqueeze(-1) * column.unsqueeze(-2)
    stacked = torch.stack(columns, -1)
    return stacked.mT if upper else stacked


@rule(aten.cholesky.default)
def cholesky_old(a: Tensor, upper: bool = False) -> Any:
    return cholesky(a.mT if upper else a, upper=upper)


def _batch(a: Tensor, b: Tensor) -> torch.Size:
    """The leading dimensions of both, as torch joins them."""
    return (a[..., 0, 0] + b[..., 0, 0]).shape


def _solved(a: Tensor, b: Tensor) -> Tensor:
    """Gauss and Jordan's elimination with partial pivoting of [a | b]; -> what stands in b's place."""
    size = a.shape[-1]
    batch = _batch(a, b)
    whole = torch.cat([a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])], -1)
    rows = torch.arange(size)
    for j in range(size):
        column = whole[..., j]
        best = torch.where(rows >= j, column.abs(), -1.0).argmax(-1, keepdim=True)
        at = (rows == best).unsqueeze(-1)
        pivot = torch.where(at, whole, 0.0).sum(-2, keepdim=True)
        own = whole[..., j : j + 1, :]
        whole = torch.where(at, own, whole)
        pivot = pivot / pivot[..., j : j + 1]
        here = (rows == j).unsqueeze(-1)
        whole = torch.where(here, pivot, whole - whole[..., j : j + 1] * pivot)
    return whole[..., size:]


@rule(aten.linalg_inv.default, aten.inverse.default)
def inverse(a: Tensor) -> Any:
    return _solved(a, torch.eye(a.shape[-1], dtype=a.dtype)) if _size(a) else NotImplemented


@rule(aten.linalg_solve.default)
def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Any:
    if not _size(a):
        return NotImplemented
    if b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]):
        return _solved(a, b.unsqueeze(-1)).squeeze(-1)
    return _solved(a, b) if left else _solved(a.mT, b.mT).mT


@rule(aten.linalg_solve_triangular.default)
def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """Row by row, from the one with a single unknown."""
    if not (size := _size(a)):
        return NotImplemented
    if not left:
        return solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    batch = _batch(a, b)
    rest = b.expand(*batch, *b.shape[-2:])
    unknowns: list[Tensor] = [rest] * size
    for i in reversed(range(size)) if upper else range(size):
        row = rest[..., i : i + 1, :]
        unknowns[i] = row if unitriangular else row / a[..., i : i + 1, i : i + 1]
        rest = rest - a[..., :, i : i + 1] * unknowns[i]
    return torch.cat(unknowns, -2)


@rule(aten.cholesky_solve.default)
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Any:
    """a x = b with a = l lᵀ."""
    if not _size(factor):
        return NotImplemented
    lower = factor.mT if upper else factor
    return solve_triangular(lower.mT, solve_triangular(lower, b, upper=False), upper=True)
