"""Factorisations and solutions of linear systems, column by column.

Eager raises an error where a matrix is singular or not positive definite; what is computed here has NaN or infinite
elements then, as PyTorch's own on GPUs may.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten

_LARGEST = 64
"""Columns of the largest matrix: each is a handful of operations of the program."""


def _fits(a: Tensor) -> bool:
    """Whether matrices are real, and few enough columns are known."""
    size = a.shape[-1]
    return isinstance(size, int) and size <= _LARGEST and a.dtype.is_floating_point


@rule(aten.linalg_cholesky.default)
def cholesky(a: Tensor, *, upper: bool = False) -> Any:
    """Right-looking: a column is scaled, and its outer product taken off what is left."""
    if not _fits(a):
        return NotImplemented
    size = a.shape[-1]
    if a.numel() == 0:
        return a.clone()
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
    shape: torch.Size = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]  # torch's
    return shape


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


@rule(aten.eye.m)
def eye(rows: Any, columns: Any, *, dtype: torch.dtype | None = None, **memory: Any) -> Any:
    """As steps with names of their own: compilers share the positions with others that count."""
    if memory.get("layout") not in (None, torch.strided):
        return NotImplemented
    return (torch.arange(rows).unsqueeze(1) == torch.arange(columns)).to(dtype or torch.get_default_dtype())


@rule(aten.eye.default)
def square_eye(size: Any, **options: Any) -> Any:
    return eye(size, size, **options)


@rule(aten.linalg_inv.default, aten.inverse.default)
def inverse(a: Tensor) -> Any:
    return _solved(a, torch.eye(a.shape[-1], dtype=a.dtype)) if _fits(a) else NotImplemented


@rule(aten.linalg_tensorinv.default)
def tensor_inverse(a: Tensor, ind: int = 2) -> Any:
    rows, columns = a.shape[:ind], a.shape[ind:]
    matrix = a.reshape(math.prod(rows), math.prod(columns))
    return inverse(matrix).reshape(*columns, *rows) if _fits(matrix) else NotImplemented


@rule(aten.linalg_solve.default)
def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Any:
    if not _fits(a):
        return NotImplemented
    if b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]):
        return _solved(a, b.unsqueeze(-1)).squeeze(-1)
    return _solved(a, b) if left else _solved(a.mT, b.mT).mT


@rule(aten.linalg_solve_triangular.default)
def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """Row by row, from the one with a single unknown."""
    if not _fits(a):
        return NotImplemented
    size = a.shape[-1]
    if not left:
        return solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    batch = _batch(a, b)
    rest = b.expand(*batch, *b.shape[-2:])
    unknowns: list[Tensor] = [rest] * size
    for i in reversed(range(size)) if upper else range(size):
        row = rest[..., i : i + 1, :]
        unknowns[i] = row if unitriangular else row / a[..., i : i + 1, i : i + 1]
        rest = rest - a[..., :, i : i + 1] * unknowns[i]
    return torch.cat(unknowns, -2) if size else rest


@rule(aten.cholesky_solve.default)
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Any:
    """a x = b with a = l lᵀ."""
    if not _fits(factor):
        return NotImplemented
    lower = factor.mT if upper else factor
    return solve_triangular(lower.mT, solve_triangular(lower, b, upper=False), upper=True)


@rule(aten.cholesky_inverse.default)
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Any:
    return cholesky_solve(torch.eye(factor.shape[-1], dtype=factor.dtype), factor, upper)


@rule(aten.triangular_solve.default)
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """With the matrix itself, as torch gives it."""
    if not _fits(a):
        return NotImplemented
    batch = _batch(a, b)
    triangle = torch.triu(a) if upper else torch.tril(a)
    used, turned = (triangle.mT, not upper) if transpose else (triangle, upper)
    solution = solve_triangular(used, b, upper=turned, unitriangular=unitriangular)
    return solution, a.expand(*batch, *a.shape[-2:]).clone()


def _first_failure(fails: list[Tensor], batch: torch.Size) -> Tensor:
    """The number of the first step that fails, counted from one; 0: none does."""
    if not fails:
        return torch.zeros(batch, dtype=torch.int32)
    stacked = torch.stack(fails, -1)
    first = stacked.to(torch.int32).argmax(-1) + 1
    return torch.where(stacked.any(-1), first, 0).to(torch.int32)


@rule(aten.linalg_inv_ex.default)
def inverse_ex(a: Tensor, *, check_errors: bool = False) -> Any:
    if check_errors or not _fits(a):
        return NotImplemented
    return inverse(a), lu_factor(a)[2]


@rule(aten.linalg_lu_factor_ex.default)
def lu_factor(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Columns from the left: the largest element below the diagonal comes up, and its multiples are taken off."""
    rows, columns = a.shape[-2:]
    if check_errors or not _fits(a) or not isinstance(rows, int) or rows > _LARGEST or not pivot:
        return NotImplemented
    places = torch.arange(rows)
    pivots, fails = [], []
    for j in range(min(rows, columns)):
        column = a[..., j]
        best = torch.where(places >= j, column.abs(), -1.0).argmax(-1, keepdim=True)
        at, own = (places == best).unsqueeze(-1), (places == j).unsqueeze(-1)
        pivot_row = torch.where(at, a, 0.0).sum(-2, keepdim=True)
        swapped = torch.where(own, pivot_row, torch.where(at, a[..., j : j + 1, :], a))
        head = pivot_row[..., j : j + 1]
        fails.append((head == 0).squeeze(-1).squeeze(-1))
        factor = swapped[..., j : j + 1] / torch.where(head == 0, 1.0, head)
        below = (places > j).unsqueeze(-1)
        right = torch.arange(columns) > j
        eliminated = torch.where(right, swapped - factor * pivot_row, swapped)
        a = torch.where(below, torch.where(torch.arange(columns) == j, factor, eliminated), swapped)
        pivots.append(best.squeeze(-1).to(torch.int32) + 1)
    batch = a.shape[:-2]
    order = torch.stack(pivots, -1) if pivots else torch.zeros((*batch, 0), dtype=torch.int32)
    return a.clone() if not pivots else a, order, _first_failure(fails, batch)


def _permutation(pivots: Tensor, rows: int) -> Tensor:
    """Where each row of a product came from, [..., rows]."""
    order = torch.arange(rows).expand(*pivots.shape[:-1], rows)
    places = torch.arange(rows)
    for j in range(pivots.shape[-1]):
        other = (pivots[..., j : j + 1] - 1).to(torch.int64)
        mine, theirs = order[..., j : j + 1], torch.gather(order, -1, other)
        order = torch.where(places == j, theirs, torch.where(places == other, mine, order))
    return order


@rule(aten.linalg_lu_factor.default)
def lu_factor_unchecked(a: Tensor, *, pivot: bool = True) -> Any:
    factored = lu_factor(a, pivot=pivot)
    return factored if factored is NotImplemented else factored[:2]


def _of_factors(a: Tensor, value: Callable[[Tensor, Tensor], tuple[Tensor, ...]]) -> Any:
    """-> (what a triangular factor's diagonal and the sign of its permutation say, and the factors)."""
    factored = lu_factor(a.mT if a.is_contiguous() else a)  # eager factors by columns; determinants are those of either
    if factored is NotImplemented:
        return NotImplemented
    lu, pivots, _ = factored
    swaps = torch.where(pivots == torch.arange(1, pivots.shape[-1] + 1), 1.0, -1.0).to(a.dtype)
    return *value(torch.diagonal(lu, dim1=-2, dim2=-1), swaps.prod(-1)), lu, pivots


@rule(aten._linalg_det.default)
def determinant(a: Tensor) -> Any:
    return _of_factors(a, lambda diagonal, sign: (diagonal.prod(-1) * sign,))


@rule(aten._linalg_slogdet.default)
def log_determinant(a: Tensor) -> Any:
    return _of_factors(a, lambda diagonal, sign: (diagonal.sign().prod(-1) * sign, diagonal.abs().log().sum(-1)))


@rule(aten.linalg_slogdet.default)
def log_determinant_alone(a: Tensor) -> Any:
    parts = log_determinant(a)
    return parts if parts is NotImplemented else parts[:2]


@rule(aten.lu_unpack.default)
def lu_unpack(lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    rows, columns = lu.shape[-2:]
    if not _fits(lu) or not isinstance(rows, int) or rows > _LARGEST:
        return NotImplemented
    least = min(rows, columns)
    nothing = torch.zeros(0, dtype=lu.dtype)
    permutation = lower = upper = nothing
    if unpack_pivots:
        order = _permutation(pivots, rows)
        permutation = (torch.arange(rows).unsqueeze(-1) == order.unsqueeze(-2)).to(lu.dtype)
    if unpack_data:
        lower = torch.tril(lu[..., :least], -1) + torch.eye(rows, least, dtype=lu.dtype)
        upper = torch.triu(lu[..., :least, :])
    return permutation, lower, upper


@rule(aten.linalg_lu.default)
def lu(a: Tensor, *, pivot: bool = True) -> Any:
    factored = lu_factor(a, pivot=pivot)
    return factored if factored is NotImplemented else lu_unpack(factored[0], factored[1])


@rule(aten.linalg_lu_solve.default)
def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    if not _fits(lu):
        return NotImplemented
    if not left:
        return lu_solve(lu, pivots, b.mT, adjoint=not adjoint).mT
    batch, size = _batch(lu, b), lu.shape[-1]
    order = _permutation(pivots, size).expand(*batch, size)
    b = b.expand(*batch, *b.shape[-2:])
    if adjoint:
        middle = solve_triangular(lu.mT, b, upper=False)
        moved = solve_triangular(lu.mT, middle, upper=True, unitriangular=True)
        places = torch.arange(size)
        back = torch.where(order.unsqueeze(-2) == places.unsqueeze(-1), places, 0).sum(-1)
        return torch.gather(moved, -2, back.unsqueeze(-1).expand(moved.shape))
    moved = torch.gather(b, -2, order.unsqueeze(-1).expand(b.shape))
    return solve_triangular(lu, solve_triangular(lu, moved, upper=False, unitriangular=True), upper=True)


@rule(aten._linalg_solve_ex.default)
def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    factored = NotImplemented if check_errors else lu_factor(a)
    return factored if factored is NotImplemented else (solve(a, b, left=left), *factored)


@rule(aten.linalg_cholesky_ex.default)
def cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """What fails is told; the factor has NaN then, and eager's is arbitrary."""
    if check_errors or not _fits(a):
        return NotImplemented
    factor = cholesky(a, upper=upper)
    diagonal = torch.diagonal(factor, dim1=-2, dim2=-1)
    fails = [~(diagonal[..., j] > 0) for j in range(a.shape[-1])]
    return factor, _first_failure(fails, a.shape[:-2])


@rule(aten.bilinear.default)
def bilinear(first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A product with the weight, ``[k, i, j]``, and one of its rows with the other factor; torch's decomposition has a
    tensor of all positions of both factors and the weight."""
    k, i, j = weight.shape
    rows = wide(first).reshape(-1, i) @ wide(weight).permute(1, 0, 2).reshape(i, k * j)
    y = (rows.reshape(-1, k, j) * wide(second).reshape(-1, 1, j)).sum(-1)
    if bias is not None:
        y = y + wide(bias)
    return y.reshape(*first.shape[:-1], k).to(first.dtype)
