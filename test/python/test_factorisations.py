"""Factorisations of our own against LAPACK's, in float64: pivots, signs and what they say about failures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from covan_mlir.frontend.rules import chebyshev, jacobi, linear_algebra, orthogonal

SHAPES = [(3, 3), (2, 4, 4), (5, 3), (3, 5), (0, 0), (2, 0, 0), (1, 1)]
SQUARE = [shape for shape in SHAPES if shape[-1] == shape[-2]]


def _matrix(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def _same(ours: Any, eager: Any) -> None:
    torch.testing.assert_close(tuple(ours), tuple(eager), rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_lu(shape: tuple[int, ...]) -> None:
    a = _matrix(*shape)
    _same(linear_algebra.lu_factor(a), torch.linalg.lu_factor_ex(a))
    _same(linear_algebra.lu(a), torch.linalg.lu(a))


@pytest.mark.parametrize("shape", SQUARE)
def test_determinants(shape: tuple[int, ...]) -> None:
    a = _matrix(*shape)
    for matrix in (a, a.mT, torch.zeros_like(a)):
        _same(linear_algebra.determinant(matrix), torch.ops.aten._linalg_det(matrix))
        _same(linear_algebra.log_determinant(matrix), torch.ops.aten._linalg_slogdet(matrix))


@pytest.mark.parametrize("shape", SHAPES)
def test_qr(shape: tuple[int, ...]) -> None:
    a = _matrix(*shape)
    for mode in ("reduced", "complete", "r"):
        _same(orthogonal.qr(a, mode), torch.linalg.qr(a, mode))
    reflections, tau = torch.geqrf(a)
    _same(orthogonal.geqrf(a), (reflections, tau))
    if shape[-2] >= shape[-1]:
        product = torch.linalg.householder_product(reflections, tau)
        _same([orthogonal.householder_product(reflections, tau)], [product])


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("adjoint", [False, True])
def test_solutions_from_factors(shape: tuple[int, ...], adjoint: bool) -> None:
    lu, pivots = torch.linalg.lu_factor(_matrix(*shape))
    right = _matrix(*shape[:-1], 2)
    for left, b in ((True, right), (False, right.mT.contiguous())):
        ours = linear_algebra.lu_solve(lu, pivots, b, left=left, adjoint=adjoint)
        _same([ours], [torch.linalg.lu_solve(lu, pivots, b, left=left, adjoint=adjoint)])


@pytest.mark.parametrize("shape", SQUARE)
def test_positive_definite(shape: tuple[int, ...]) -> None:
    a = _matrix(*shape)
    positive = a @ a.mT + torch.eye(shape[-1], dtype=a.dtype)
    _same(linear_algebra.cholesky_ex(positive), torch.linalg.cholesky_ex(positive))
    _same(linear_algebra.inverse_ex(positive), torch.linalg.inv_ex(positive))
    factor = torch.linalg.cholesky(positive)
    _same([linear_algebra.cholesky_inverse(factor)], [torch.cholesky_inverse(factor)])


def test_failures_are_told() -> None:
    singular = torch.diag(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    assert linear_algebra.lu_factor(singular)[2] == torch.linalg.lu_factor_ex(singular).info == 2
    assert linear_algebra.cholesky_ex(-singular)[1] == torch.linalg.cholesky_ex(-singular).info == 1


FULL = [(5, 5), (2, 5, 3), (3, 4), (1, 1), (6, 1), (50, 50)]


@pytest.mark.parametrize("shape", FULL)
@pytest.mark.parametrize("whole", [False, True])
def test_singular_values(shape: tuple[int, ...], whole: bool) -> None:
    """Vectors are unique but for their signs: what they are made for is tested."""
    a = _matrix(*shape)
    u, values, vh = jacobi.svd(a, whole)
    eager = torch.linalg.svd(a, full_matrices=whole)
    assert (u.shape, vh.shape) == (eager.U.shape, eager.Vh.shape)
    least = min(shape[-2:])
    _same([values], [eager.S])
    _same([u[..., :least] * values.unsqueeze(-2) @ vh[..., :least, :]], [a])
    _same([u.mT @ u], [torch.eye(u.shape[-1], dtype=a.dtype).expand(*shape[:-2], -1, -1)])
    _same([jacobi.pinv(a)], [torch.linalg.pinv(a)])


def test_matrices_of_low_rank() -> None:
    a = _matrix(6, 2) @ _matrix(2, 6)
    _same([jacobi.pinv(a)], [torch.linalg.pinv(a)])
    u, values, vh = jacobi.svd(a, True)
    _same([u * values @ vh, u.mT @ u], [a, torch.eye(6, dtype=a.dtype)])
    zero = torch.zeros(3, 3, dtype=a.dtype)
    _same([jacobi.svd(zero)[1], jacobi.eigh(zero)[0], jacobi.pinv(zero)], [zero[0], zero[0], zero])


@pytest.mark.parametrize("triangle", ["L", "U"])
def test_symmetric_eigenvalues(triangle: str) -> None:
    a = _matrix(2, 7, 7)
    values, vectors = jacobi.eigh(a, triangle)
    eager = torch.linalg.eigh(a, UPLO=triangle)
    _same([values, vectors.abs()], [eager.eigenvalues, eager.eigenvectors.abs()])


@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_exponential(scale: float) -> None:
    a = _matrix(2, 4, 4) * scale
    eager = torch.matrix_exp(a)
    torch.testing.assert_close(orthogonal.matrix_exp(a) / eager.abs().max(), eager / eager.abs().max())


@pytest.mark.parametrize("kind", "tuvw")
@pytest.mark.parametrize("shifted", [False, True])
def test_chebyshev(kind: str, shifted: bool) -> None:
    x = torch.cat([torch.linspace(-3, 3, 301), torch.tensor([1.0, -1.0, 1 + 1e-6])]).to(torch.float64)
    eager = getattr(torch.special, f"{'shifted_' if shifted else ''}chebyshev_polynomial_{kind}")
    for degree in (-2.0, -0.5, 0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 12.0, 2.7):
        n = torch.full_like(x, degree)
        ours = chebyshev._polynomial(kind, 2 * x - 1 if shifted else x, n)
        torch.testing.assert_close(ours, eager(x, n), rtol=1e-9, atol=1e-9)
