"""Singular values and symmetric eigenvalues by one-sided Jacobi rotations, a loop of the program.

Pairs of columns are turned until all are orthogonal (M. Hestenes, 1958), in float64; half of the columns at a time meet
the other half, in the order of a tournament in which everyone meets everyone (R. Brent and F. Luk, 1985).
Vectors have the signs, and those of equal values the basis, that come of it: LAPACK's are others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.loops import looped
from covan_mlir.frontend.rules.orthogonal import qr
from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_LARGEST = 64
"""Columns that are turned, at most."""
_SWEEPS = 12
"""Meetings of all with all. Convergence is quadratic: 6 to 10 give all digits."""


def _fits(a: Tensor) -> bool:
    sizes_known = all(isinstance(size, int) for size in a.shape)
    return sizes_known and a.dtype.is_floating_point and a.numel() > 0 and min(a.shape[-2:]) <= _LARGEST


def _met(top: Tensor, bottom: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Columns in pairs, each pair turned until it is orthogonal in the first ``rows``."""
    above, below = top[..., :rows, :], bottom[..., :rows, :]
    product = (above * below).sum(-2, keepdim=True)
    gap = (below * below).sum(-2, keepdim=True) - (above * above).sum(-2, keepdim=True)
    orthogonal = product == 0
    ratio = gap / torch.where(orthogonal, 1.0, 2 * product)
    tangent = torch.where(ratio < 0, -1.0, 1.0) / (ratio.abs() + torch.sqrt(1 + ratio * ratio))
    tangent = torch.where(orthogonal, 0.0, tangent)
    cosine = torch.rsqrt(1 + tangent * tangent)
    sine = cosine * tangent
    return cosine * top - sine * bottom, sine * top + cosine * bottom


def _rotated(a: Tensor) -> tuple[Tensor, Tensor]:
    """a v with orthogonal columns, and the orthogonal v, of [..., rows, columns] in float64."""
    rows, columns = a.shape[-2:]
    one = torch.eye(columns, dtype=a.dtype).expand(*a.shape[:-2], columns, columns)
    both = torch.cat([a, one], -2)
    if columns % 2:
        both = torch.cat([both, torch.zeros((*both.shape[:-1], 1), dtype=a.dtype)], -1)  # turns with nobody
    half = both.shape[-1] // 2

    def unfinished(step: Tensor, both: Tensor) -> Tensor:
        return step < _SWEEPS * (2 * half - 1)

    def meeting(step: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
        top, bottom = _met(both[..., :half], both[..., half:], rows)
        if half > 1:  # the first one stays, the others move on by one place
            pieces = [top[..., :1], bottom[..., :1], top[..., 1:-1], bottom[..., 1:], top[..., -1:]]
        else:
            pieces = [top, bottom]
        return step + 1, torch.cat(pieces, -1)

    _, both = looped(unfinished, meeting, (torch.zeros((), dtype=torch.int64), both))
    return both[..., :rows, :columns], both[..., rows:, :columns]


def _in_order(keys: Tensor, *matrices: Tensor, descending: bool) -> tuple[Tensor, ...]:
    """Sorted numbers, and the columns of matrices that belong to them."""
    values, places = torch.sort(keys, -1, descending)
    columns = (torch.gather(m, -1, places.unsqueeze(-2).expand(m.shape)) for m in matrices)
    return values, *columns


def _scaled(a: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices in float64 whose largest element is one, and what it was."""
    wide = a.to(torch.float64)
    size = wide.abs().amax((-2, -1), keepdim=True)
    return wide / torch.where(size == 0, 1.0, size), size


def _singular(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """a v, singular values, and v, of no fewer rows than columns; the largest value comes first."""
    scaled, size = _scaled(a)
    turned, v = _rotated(scaled)
    values = torch.sqrt((turned * turned).sum(-2))
    values, turned, v = _in_order(values, turned, v, descending=True)
    return turned * size, values * size.squeeze(-1), v


def _of_nothing(a: Tensor, full_matrices: bool, compute_uv: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Of matrices without rows or columns: there are no singular values, any basis is as good."""
    rows, columns = a.shape[-2:]
    batch = a.shape[:-2]
    values, none = a.new_zeros((*batch, 0)), a.new_zeros(0)
    if not compute_uv:
        return none, values, none
    if not full_matrices:
        return a.new_zeros((*batch, rows, 0)), values, a.new_zeros((*batch, 0, columns))
    u, vh = (torch.eye(size, dtype=a.dtype).expand(*batch, size, size).clone() for size in (rows, columns))
    return u, values, vh


@rule(aten._linalg_svd.default)
def svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    rows, columns = a.shape[-2:]
    if rows == 0 or columns == 0:
        return _of_nothing(a, full_matrices, compute_uv)
    if not _fits(a):
        return NotImplemented
    if rows < columns:
        u, values, vh = svd(a.mT, full_matrices, compute_uv)
        return vh.mT.clone(), values, u.mT.clone()
    turned, values, v = _singular(a)
    values = values.to(a.dtype)
    if not compute_uv:
        return torch.zeros(0, dtype=a.dtype), values, torch.zeros(0, dtype=a.dtype)
    # The columns are orthogonal: those of q are theirs but for the sign, and a basis of the rest where they are zero.
    factored = qr(turned, "complete" if full_matrices else "reduced")
    if factored is NotImplemented:
        return NotImplemented
    u, r = factored
    signs = torch.where(torch.diagonal(r, dim1=-2, dim2=-1) < 0, -1.0, 1.0).unsqueeze(-2)
    u = torch.cat([u[..., :columns] * signs, u[..., columns:]], -1)
    return u.to(a.dtype), values, v.mT.to(a.dtype).clone()


@rule(aten._linalg_eigh.default)
def eigh(a: Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:  # torch's name
    """Of the matrix that one triangle stands for, with a multiple of the identity added so that no value is negative:
    its singular vectors are its eigenvectors."""
    if not _fits(a):
        return NotImplemented
    triangle = torch.tril(a) if UPLO.upper() == "L" else torch.triu(a)
    strict = torch.tril(a, -1) if UPLO.upper() == "L" else torch.triu(a, 1)
    scaled, size = _scaled(triangle + strict.mT)
    norm = torch.sqrt((scaled * scaled).sum((-2, -1), keepdim=True))
    _, v = _rotated(scaled + norm * torch.eye(a.shape[-1], dtype=scaled.dtype))
    values = (v * (scaled @ v)).sum(-2) * size.squeeze(-1)
    values, v = _in_order(values, v, descending=False)
    return values.to(a.dtype), v.to(a.dtype) if compute_v else torch.zeros(0, dtype=a.dtype)


@rule(aten.linalg_pinv.atol_rtol_tensor)
def pinv(a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Any:
    """Without the singular values that count as zero. That a matrix is symmetric makes no difference here."""
    if not _fits(a):
        return NotImplemented
    rows, columns = a.shape[-2:]
    if hermitian:
        a = torch.tril(a) + torch.tril(a, -1).mT  # the triangle that is read
    if rows < columns:
        return pinv(a.mT, atol=atol, rtol=rtol).mT.clone()
    turned, values, v = _singular(a)
    least = torch.zeros((), dtype=values.dtype) if atol is None else atol.to(values.dtype)
    share = torch.full((), torch.finfo(a.dtype).eps * rows, dtype=values.dtype)
    if rtol is not None:
        share = rtol.to(values.dtype)
    elif atol is not None:
        share = torch.where(least > 0, 0.0, share)
    zero = torch.maximum(least.unsqueeze(-1), share.unsqueeze(-1) * values[..., :1])
    inverse = torch.where(values > zero, 1 / torch.where(values > zero, values, 1.0), 0.0).unsqueeze(-2)
    return ((v * inverse * inverse) @ turned.mT).to(a.dtype)
