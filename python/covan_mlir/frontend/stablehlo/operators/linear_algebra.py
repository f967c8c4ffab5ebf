"""Linear algebra and Fourier transforms."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation.refused import Refused

_LOWER, _NOT, _UNIT, _ALL = 76, 78, 85, 65
"""What LAPACK calls a lower triangle, a matrix as it is (or nothing), a diagonal of ones, and all columns."""


@operation("stablehlo.cholesky")
def cholesky(call: Call) -> Tensor:
    """The triangle whose product with its own transpose a matrix is; only one triangle of it is read."""
    return _cholesky(call.tensor(0), bool(call.attribute("lower", False)))


def _cholesky(matrix: Tensor, lower: bool) -> Tensor:
    triangle = matrix if lower else matrix.mH
    return torch.linalg.cholesky_ex(triangle).L if lower else torch.linalg.cholesky_ex(triangle).L.mH


@operation(*(f"stablehlo.custom_call @lapack_{kind}potrf_ffi" for kind in "sdcz"))
def lapack_cholesky(call: Call) -> tuple[Tensor, ...]:
    """The same, and whether there is one."""
    lower = call.attribute("mhlo.backend_config", {}).get("uplo") == _LOWER
    matrix = call.tensor(0)
    triangle, info = torch.linalg.cholesky_ex(matrix if lower else matrix.mH)
    # What is not of the triangle stays as it was given.
    rest = torch.triu(matrix, 1) if lower else torch.tril(matrix, -1)
    return (triangle if lower else triangle.mH) + rest, info.to(torch.int32)


@operation("stablehlo.triangular_solve")
def triangular_solve(call: Call) -> Tensor:
    """x of a x = b, or of x a = b, a being a triangle."""
    matrix, right = call.tensors()
    return _solved(
        matrix,
        right,
        bool(call.attribute("left_side")),
        bool(call.attribute("lower")),
        bool(call.attribute("unit_diagonal")),
        str(call.attribute("transpose_a", "NO_TRANSPOSE")),
    )


@operation(*(f"stablehlo.custom_call @lapack_{kind}trsm_ffi" for kind in "sdcz"))
def lapack_triangular_solve(call: Call) -> Tensor:
    """The same as LAPACK has it."""
    config = call.attribute("mhlo.backend_config", {})
    turned = {_NOT: "NO_TRANSPOSE", 84: "TRANSPOSE", 67: "ADJOINT"}[config["trans_x"]]
    sides = config["side"] == _LOWER, config["uplo"] == _LOWER, config["diag"] == _UNIT
    return _solved(call.tensor(0), call.tensor(1), *sides, turned)


def _solved(matrix: Tensor, right: Tensor, left: bool, lower: bool, unit: bool, turned: str) -> Tensor:
    upper = not lower
    if turned != "NO_TRANSPOSE":
        matrix = matrix.mT if turned == "TRANSPOSE" else matrix.mH
        upper = not upper
    return torch.linalg.solve_triangular(matrix, right, upper=upper, left=left, unitriangular=unit)


@operation(*(f"stablehlo.custom_call @lapack_{kind}getrf_ffi" for kind in "sdcz"))
def lapack_lu(call: Call) -> tuple[Tensor, ...]:
    """Two triangles in one matrix, the rows that were exchanged (counted from one), and whether it is singular."""
    factors, pivots, info = torch.linalg.lu_factor_ex(call.tensor(0))
    return factors, pivots.to(torch.int32), info.to(torch.int32)


@operation(*(f"stablehlo.custom_call @lapack_{kind}_ffi" for kind in ("ssyevd", "dsyevd", "cheevd", "zheevd")))
def lapack_eigh(call: Call) -> tuple[Tensor, ...]:
    """Eigenvectors of a symmetric matrix, its eigenvalues, ascending, and whether they were found."""
    matrix, config = call.tensor(0), call.attribute("mhlo.backend_config", {})
    values, vectors = torch.linalg.eigh(matrix, UPLO="L" if config.get("uplo") == _LOWER else "U")
    return vectors, values, _no_error(call, 2)


@operation(*(f"stablehlo.custom_call @lapack_{kind}ges{way}_ffi" for kind in "sdcz" for way in ("dd", "vd")))
def lapack_svd(call: Call) -> tuple[Tensor, ...]:
    """The matrix, of which LAPACK leaves nothing; singular values, descending; left and right vectors; an error."""
    matrix, mode = call.tensor(0), call.attribute("mhlo.backend_config", {}).get("mode")
    if mode == _NOT:
        values = torch.linalg.svdvals(matrix)
        left, right = (torch.zeros(call.shape(number), dtype=call.dtype(number)) for number in (2, 3))
    else:
        left, values, right = torch.linalg.svd(matrix, full_matrices=mode == _ALL)
    return matrix, values, left, right, _no_error(call, 4)


@operation(*(f"stablehlo.custom_call @lapack_{kind}geqrf_ffi" for kind in "sdcz"))
def lapack_qr(call: Call) -> tuple[Tensor, ...]:
    """A triangle with the vectors of reflections below it, and their factors."""
    factors, scales = torch.geqrf(call.tensor(0))
    return factors, scales


@operation(*(f"stablehlo.custom_call @lapack_{kind}_ffi" for kind in ("sorgqr", "dorgqr", "cungqr", "zungqr")))
def lapack_reflections(call: Call) -> Tensor:
    """The product of reflections."""
    return torch.linalg.householder_product(call.tensor(0), call.tensor(1))


def _no_error(call: Call, number: int) -> Tensor:
    """What LAPACK says of a computation that went well; one that does not converge gives no NaN here."""
    return torch.zeros(call.shape(number), dtype=call.dtype(number))


@operation("stablehlo.fft")
def fft(call: Call) -> Tensor:
    """Over the last axes; of real numbers, half of it."""
    value, sizes = call.tensor(0), call.numbers("fft_length")
    axes = list(range(-len(sizes), 0))
    kind = call.attribute("fft_type")
    if kind == "FFT":
        return torch.fft.fftn(value, sizes, axes)
    if kind == "IFFT":
        return torch.fft.ifftn(value, sizes, axes)
    if kind == "RFFT":
        return torch.fft.rfftn(value, sizes, axes)
    if kind == "IRFFT":
        return torch.fft.irfftn(value, sizes, axes)
    raise Refused(f"there is no Fourier transform {kind}")


@operation("stablehlo.batch_norm_inference")
def batch_norm(call: Call) -> Tensor:
    """Normalised by means and variances that are given, for each element of an axis."""
    value, scale, offset, mean, variance = call.tensors()
    axis, epsilon = call.attribute("feature_index"), call.attribute("epsilon")
    shape = [1] * value.dim()
    shape[axis] = value.shape[axis]
    scale, offset, mean, variance = (part.reshape(shape) for part in (scale, offset, mean, variance))
    return (value - mean) * torch.rsqrt(variance + epsilon) * scale + offset
