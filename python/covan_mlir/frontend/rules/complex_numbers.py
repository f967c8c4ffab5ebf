"""Arithmetic of complex numbers, by their real and imaginary parts, where torch-mlir has none or has it wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn import functional as F

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten


@rule(aten.add.Tensor, aten.add.Scalar)
def total(x: Any, y: Any, alpha: Any = 1) -> Any:
    """torch-mlir multiplies by ``alpha`` as a whole number."""
    if not torch.result_type(x, y).is_complex or isinstance(alpha, complex):
        return NotImplemented
    a, b = (real_and_imaginary(side) for side in (x, y))
    return torch.complex(a[0] + alpha * b[0], a[1] + alpha * b[1])


@rule(aten.sub.Tensor, aten.sub.Scalar)
def difference(x: Any, y: Any, alpha: Any = 1) -> Any:
    return total(x, y, alpha=-alpha)


def real_and_imaginary(x: Any) -> tuple[Any, Any]:
    """The halves of a tensor, or a number, which may be real."""
    if isinstance(x, Tensor):
        return (x.real, x.imag) if x.dtype.is_complex else (x, torch.zeros_like(x))
    return (x.real, x.imag) if isinstance(x, complex) else (x, 0)


def _parts(x: Any, y: Any) -> tuple[Tensor, Any] | None:
    """Of a complex tensor and something real, in this order; None: they are not that."""
    given = isinstance(x, Tensor) and x.dtype.is_complex
    other = y.dtype.is_complex if isinstance(y, Tensor) else isinstance(y, complex)
    return (x, y) if given and not other else None


@rule(aten.mul.Tensor, aten.mul.Scalar)
def product(x: Any, y: Any) -> Any:
    if isinstance(x, complex) or isinstance(y, complex):  # the importer has no such numbers
        (a, b), (c, d) = real_and_imaginary(x), real_and_imaginary(y)
        return torch.complex(a * c - b * d, a * d + b * c)
    parts = _parts(x, y) or _parts(y, x)
    return torch.complex(parts[0].real * parts[1], parts[0].imag * parts[1]) if parts else NotImplemented


@rule(aten.div.Tensor, aten.div.Scalar)
def quotient(x: Any, y: Any) -> Any:
    parts = _parts(x, y)
    if parts:
        return torch.complex(parts[0].real / parts[1], parts[0].imag / parts[1])
    if not torch.result_type(x, y).is_complex:
        return NotImplemented
    (a, b), (c, d) = real_and_imaginary(x), real_and_imaginary(y)
    # Both of the divisor over the greater one, whose square might be out of range.
    c, d = torch.as_tensor(c), torch.as_tensor(d)
    size = torch.maximum(c.abs(), d.abs())
    c, d = c / size, d / size
    square = (c * c + d * d) * size
    return torch.complex((a * c + b * d) / square, (b * c - a * d) / square)


@rule(aten.reciprocal.default)
def inverse(x: Tensor) -> Any:
    return quotient(torch.ones_like(x.real), x) if x.dtype.is_complex else NotImplemented


@rule(aten.sum.dim_IntList)
def sum_along(x: Tensor, dim: Any, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """torch-mlir has no complex zero to begin with."""
    if not (x if dtype is None else torch.empty((), dtype=dtype)).is_complex():
        return NotImplemented
    x = x if dtype is None else x.to(dtype)
    return torch.complex(torch.sum(x.real, dim, keepdim), torch.sum(x.imag, dim, keepdim))


@rule(aten.sum.default)
def sum_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return sum_along(x, list(range(x.dim())), dtype=dtype) if x.dim() else NotImplemented


@rule(aten.mean.dim)
def mean_along(x: Tensor, dim: Any, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    if not x.dtype.is_complex or dtype not in (None, x.dtype):
        return NotImplemented
    return torch.complex(torch.mean(x.real, dim, keepdim), torch.mean(x.imag, dim, keepdim))


@rule(aten.mean.default)
def mean_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return mean_along(x, list(range(x.dim())), dtype=dtype) if x.dim() else NotImplemented


@rule(aten.mm.default, aten.bmm.default)
def matrix_product(x: Tensor, y: Tensor) -> Any:
    """Four products of real numbers."""
    if not x.dtype.is_complex:
        return NotImplemented
    return torch.complex(x.real @ y.real - x.imag @ y.imag, x.real @ y.imag + x.imag @ y.real)


@rule(aten.constant_pad_nd.default)
def padded(x: Tensor, pad: Any, value: Any = 0) -> Any:
    """Memory cannot be filled with a number of 128 bits."""
    if not x.dtype.is_complex:
        return NotImplemented
    real, imaginary = real_and_imaginary(value)
    return torch.complex(F.pad(x.real, pad, value=real), F.pad(x.imag, pad, value=imaginary))


def _by_halves(op: OpOverload) -> None:
    """Register ``op``, which moves or adds elements, on the real and on the imaginary parts of its tensors."""

    def by_halves(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not x.dtype.is_complex or isinstance(kwargs.get("alpha"), complex):
            return NotImplemented
        operands = (x, *args)
        real = [y.real if isinstance(y, Tensor) and y.dtype.is_complex else y for y in operands]
        imaginary = [y.imag if isinstance(y, Tensor) and y.dtype.is_complex else y for y in operands]
        return torch.complex(op(*real, **kwargs), op(*imaginary, **kwargs))

    rule(op)(by_halves)


for _op in (aten.index_add.default, aten.scatter.src, aten.scatter_add.default):
    _by_halves(_op)


@rule(aten.full.default, aten.scalar_tensor.default)
def full(*args: Any, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """The importer has no complex numbers: the halves are filled. Of ``full`` the size comes first."""
    *size, value = args
    dtype = dtype or (torch.complex64 if isinstance(value, complex) else None)
    if dtype is None or not dtype.is_complex:
        return NotImplemented
    shape = size[0] if size else ()
    real, imaginary = real_and_imaginary(value)
    half = dtype.to_real()
    return torch.complex(torch.full(shape, real, dtype=half), torch.full(shape, imaginary, dtype=half))


@rule(aten.full_like.default)
def full_like(x: Tensor, value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    dtype = dtype or x.dtype
    return torch.full(x.shape, value, dtype=dtype) if dtype.is_complex else NotImplemented


@rule(aten.zeros_like.default, aten.empty_like.default, aten.new_zeros.default)
def zeros_like(x: Tensor, *args: Any, dtype: torch.dtype | None = None, **options: Any) -> Any:
    dtype = dtype or x.dtype
    return torch.full(args[0] if args else x.shape, 0, dtype=dtype) if dtype.is_complex else NotImplemented


@rule(aten.ones_like.default)
def ones_like(x: Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    dtype = dtype or x.dtype
    return torch.full(x.shape, 1, dtype=dtype) if dtype.is_complex else NotImplemented
