"""Householder's reflections, with LAPACK's signs, and the exponential of a matrix."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_LARGEST = 64
"""Rows and columns of the largest matrix: each column is a handful of operations of the program."""


def _fits(a: Tensor) -> bool:
    return a.dtype.is_floating_point and all(isinstance(n, int) and n <= _LARGEST for n in a.shape[-2:])


def _vector(a: Tensor, j: int) -> Tensor:
    """The vector of a reflection: ones on the diagonal, what stands below it, [..., rows, 1]."""
    rows = torch.arange(a.shape[-2]).unsqueeze(-1)
    return torch.where(rows == j, 1.0, torch.where(rows > j, a[..., j : j + 1], 0.0)).to(a.dtype)


@rule(aten.geqrf.default)
def geqrf(a: Tensor) -> Any:
    """Reflections 1 - tau v vᵀ, one a column; v below the diagonal, R on and above it."""
    if not _fits(a):
        return NotImplemented
    rows, columns = a.shape[-2:]
    places = torch.arange(rows).unsqueeze(-1)
    right = torch.arange(columns)
    taus = []
    for j in range(min(rows, columns)):
        column = a[..., j : j + 1]
        alpha = a[..., j : j + 1, j : j + 1]
        rest = torch.where(places > j, column, 0.0)
        below = (rest * rest).sum((-2, -1), keepdim=True)
        size = torch.sqrt(alpha * alpha + below)
        beta = torch.where(alpha < 0, size, -size)
        none = below == 0
        tau = torch.where(none, 0.0, (beta - alpha) / torch.where(none, 1.0, beta))
        v = torch.where(places == j, 1.0, rest / torch.where(none, 1.0, alpha - beta))
        reflected = a - tau * v * (v * a).sum(-2, keepdim=True)
        own = torch.where(places == j, torch.where(none, alpha, beta), torch.where(places > j, v, column))
        a = torch.where(right == j, own, torch.where(right > j, reflected, a))
        taus.append(tau.squeeze(-1).squeeze(-1))
    tau = torch.stack(taus, -1) if taus else torch.zeros((*a.shape[:-2], 0), dtype=a.dtype)
    return a if taus else a.clone(), tau


def _applied(a: Tensor, tau: Tensor, other: Tensor, *, forward: bool) -> Tensor:
    """Reflections on the columns of a matrix, the last one first if not ``forward``."""
    count = tau.shape[-1]
    for j in range(count) if forward else reversed(range(count)):
        v = _vector(a, j)
        other = other - tau[..., j : j + 1].unsqueeze(-1) * v * (v * other).sum(-2, keepdim=True)
    return other


@rule(aten.linalg_householder_product.default)
def householder_product(a: Tensor, tau: Tensor) -> Any:
    if not _fits(a):
        return NotImplemented
    start = torch.eye(*a.shape[-2:], dtype=a.dtype).expand(a.shape)
    return _applied(a, tau, start, forward=False).clone()


@rule(aten.ormqr.default)
def ormqr(a: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Any:
    if not _fits(a):
        return NotImplemented
    if not left:
        return ormqr(a, tau, other.mT, transpose=not transpose).mT
    return _applied(a, tau, other, forward=transpose).clone()


@rule(aten.linalg_qr.default)
def qr(a: Tensor, mode: str = "reduced") -> Any:
    if not _fits(a):
        return NotImplemented
    rows, columns = a.shape[-2:]
    kept = rows if mode == "complete" else min(rows, columns)
    factored, tau = geqrf(a)
    upper = torch.triu(factored[..., :kept, :])
    if mode == "r":
        return torch.zeros(0, dtype=a.dtype), upper
    start = torch.eye(rows, kept, dtype=a.dtype).expand(*a.shape[:-2], rows, kept)
    return _applied(factored, tau, start, forward=False).clone(), upper


_SQUARINGS = 24


@rule(aten.linalg_matrix_exp.default)
def matrix_exp(a: Tensor) -> Any:
    """Taylor's series of a fraction of the matrix, squared again as often as that was halved: in float64, for squaring
    doubles errors."""
    if not _fits(a):
        return NotImplemented
    dtype, a = a.dtype, a.to(torch.float64)
    norm = a.abs().sum(-2).amax(-1) if a.numel() else a.sum((-2, -1))
    halvings = torch.ceil(torch.log2(norm.clamp(min=0.25) * 4)).clamp(max=_SQUARINGS)
    norm_scale = torch.exp2(-halvings).unsqueeze(-1).unsqueeze(-1)
    fraction = a * norm_scale
    one = torch.eye(a.shape[-1], dtype=a.dtype)
    value = one.expand(a.shape)
    for k in range(13, 0, -1):
        value = one + fraction @ value / k
    for k in range(_SQUARINGS):
        again = (halvings > k).unsqueeze(-1).unsqueeze(-1)
        value = torch.where(again, value @ value, value)
    # Of a norm that takes more halvings, elements are not finite anyway, or lost.
    small = (norm <= math.ldexp(0.25, _SQUARINGS)).unsqueeze(-1).unsqueeze(-1)
    return torch.where(small, value, math.nan).to(dtype)
