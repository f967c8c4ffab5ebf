"""Fourier transforms, as products of real and imaginary parts with cosines and sines: n steps for each of n numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten, prims = torch.ops.aten, torch.ops.prims

_LARGEST = 2048
"""Points of the longest transform: its matrices are constants of the program."""
_MOST_PIECES = 32
"""Of a short-time transform, that lie over each other."""
_NONE, _ROOT, _WHOLE = range(3)  # what torch calls by these numbers: how results are scaled


def _long(x: Tensor, dims: list[int]) -> bool:
    """Whether an axis is too long, or its length not known."""
    return any(not isinstance(x.shape[dim], int) or x.shape[dim] > _LARGEST for dim in dims)


def _waves(points: int, frequencies: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi j k / points, [points, frequencies], each one of as many numbers as there are points."""
    turns = torch.arange(points).unsqueeze(1) * torch.arange(frequencies) % points
    cosines, sines = zip(*(_on_circle(k, points) for k in range(points)), strict=True)
    return torch.as_tensor(cosines, dtype=dtype)[turns], torch.as_tensor(sines, dtype=dtype)[turns]


def _on_circle(k: int, points: int) -> tuple[float, float]:
    """cos and sin of 2 pi k / points: of an angle below a quarter turn, so that quarter turns are exact."""
    quarters, rest = divmod(4 * k, points)
    cos, sin = math.cos(math.pi / 2 * rest / points), math.sin(math.pi / 2 * rest / points)
    return ((cos, sin), (-sin, cos), (-cos, -sin), (sin, -cos))[quarters]


def _along(x: Tensor, dim: int, matrix: Tensor) -> Tensor:
    return (x.movedim(dim, -1) @ matrix).movedim(-1, dim)


def _scale(sizes: list[int], normalization: int) -> float:
    count = math.prod(sizes)
    return {_NONE: 1.0, _ROOT: 1 / math.sqrt(count), _WHOLE: 1 / count}[normalization]


def _transformed(real: Tensor, imaginary: Tensor, dims: list[int], forward: bool) -> tuple[Tensor, Tensor]:
    for dim in dims:
        cos, sin = _waves(real.shape[dim], real.shape[dim], real.dtype)
        sin = sin if forward else -sin
        real, imaginary = (
            _along(real, dim, cos) + _along(imaginary, dim, sin),
            _along(imaginary, dim, cos) - _along(real, dim, sin),
        )
    return real, imaginary


@rule(aten._fft_c2c.default)
def complex_to_complex(x: Tensor, dim: list[int], normalization: int, forward: bool) -> Any:
    if _long(x, dim):
        return NotImplemented
    real, imaginary = _transformed(x.real, x.imag, dim, forward)
    scale = _scale([x.shape[d] for d in dim], normalization)
    return torch.complex(real * scale, imaginary * scale)


@rule(aten._fft_r2c.default)
def real_to_complex(x: Tensor, dim: list[int], normalization: int, onesided: bool) -> Any:
    """The last axis first: of real numbers, half of the frequencies say all."""
    if _long(x, dim):
        return NotImplemented
    last, points = dim[-1], x.shape[dim[-1]]
    cos, sin = _waves(points, points // 2 + 1 if onesided else points, x.dtype)
    # No zero is negated: the angle of a negative number would be -pi.
    real, imaginary = _transformed(_along(x, last, cos), _along(x, last, 0.0 - sin), dim[:-1], True)
    scale = _scale([x.shape[d] for d in dim], normalization)
    return torch.complex(real * scale, imaginary * scale)


@rule(aten._fft_c2r.default)
def complex_to_real(x: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Any:
    """Frequencies that are left out are the conjugates of others: those count twice."""
    if _long(x, dim) or not isinstance(last_dim_size, int) or last_dim_size > _LARGEST:
        return NotImplemented
    real, imaginary = _transformed(x.real, x.imag, dim[:-1], False)
    last, kept = dim[-1], last_dim_size // 2 + 1
    real, imaginary = real.narrow(last, 0, kept), imaginary.narrow(last, 0, kept)
    cos, sin = _waves(last_dim_size, kept, real.dtype)
    frequencies = torch.arange(kept)
    alone = (frequencies == 0) | (frequencies * 2 == last_dim_size)
    weights = torch.where(alone, 1.0, 2.0).to(real.dtype).unsqueeze(1)
    whole = _along(real, last, cos.T * weights) - _along(imaginary, last, sin.T * weights)
    return whole * _scale([*(x.shape[d] for d in dim[:-1]), last_dim_size], normalization)


@rule(prims.fft_c2c.default)
def unscaled_complex_to_complex(x: Tensor, *, dim: list[int], forward: bool) -> Any:
    return complex_to_complex(x, dim, _NONE, forward)


@rule(prims.fft_r2c.default)
def unscaled_real_to_complex(x: Tensor, *, dim: list[int], onesided: bool) -> Any:
    return real_to_complex(x, dim, _NONE, onesided)


@rule(prims.fft_c2r.default)
def unscaled_complex_to_real(x: Tensor, *, dim: list[int], last_dim_size: int) -> Any:
    return complex_to_real(x, dim, _NONE, last_dim_size)


@rule(aten.stft.default)
def short_time(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """All pieces at once: torch-mlir goes over them in a loop."""
    length = n_fft if win_length is None else win_length
    if align_to_window or n_fft > _LARGEST:
        return NotImplemented
    pieces = (x if x.dim() == 2 else x.unsqueeze(0)).unfold(-1, n_fft, hop_length or n_fft // 4)
    if window is None and length < n_fft:
        window = torch.ones(length, dtype=x.dtype)
    if window is not None:
        left = (n_fft - length) // 2
        pieces = pieces * torch.nn.functional.pad(window, (left, n_fft - length - left))
    scaled = _ROOT if normalized else _NONE
    if pieces.dtype.is_complex:
        given = aten._fft_c2c.default(pieces, [pieces.dim() - 1], scaled, True)
        given = given[..., : n_fft // 2 + 1] if onesided else given
    else:
        given = aten._fft_r2c.default(pieces, [pieces.dim() - 1], scaled, onesided is not False)
    given = given.transpose(1, 2) if x.dim() == 2 else given.transpose(1, 2).squeeze(0)
    return given if return_complex else torch.view_as_real(given)


@rule(aten.istft.default)
def inverse_short_time(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """Pieces are put over each other (Griffin and Lim 1984, equation 6). Where there is no window, results are not
    finite; eager raises an error."""
    hop, width = hop_length or n_fft // 4, n_fft if win_length is None else win_length
    frequencies = x.shape[-2]
    if n_fft > _LARGEST or n_fft > _MOST_PIECES * hop:
        return NotImplemented
    left = (n_fft - width) // 2
    given = torch.ones(width, dtype=x.dtype.to_real()) if window is None else window
    shown = torch.nn.functional.pad(given, (left, n_fft - width - left))
    pieces = (x if x.dim() == 3 else x.unsqueeze(0)).transpose(1, 2)
    scaled = _ROOT if normalized else _WHOLE
    if return_complex:
        waves = aten._fft_c2c.default(pieces, [2], scaled, False)
    else:
        half = pieces if frequencies == n_fft // 2 + 1 else pieces[..., : n_fft // 2 + 1]
        waves = aten._fft_c2r.default(half, [2], scaled, n_fft)
    count, whole = x.shape[-1], n_fft + hop * (x.shape[-1] - 1)
    sums = _overlapping(waves * shown, hop)
    weights = _overlapping((shown * shown).expand(1, count, n_fft), hop)
    start = n_fft // 2 if center else 0
    stop = start + length if length is not None else whole - (n_fft // 2 if center else 0)
    inside = min(stop, whole) if isinstance(stop, int) and isinstance(whole, int) else stop
    results = sums[:, start:inside] / weights[:, start:inside]
    if length is not None:
        results = torch.nn.functional.pad(results, (0, stop - inside))
    return results if x.dim() == 3 else results.squeeze(0)


def _overlapping(pieces: Tensor, hop: int) -> Tensor:
    """The sums of pieces, [N, count, width], each of which begins a hop behind the one before: rows of a hop's length,
    [N, hop * (count + width / hop - 1)] at least."""
    rows = -(-pieces.shape[2] // hop)
    padded = torch.nn.functional.pad(pieces, (0, rows * hop - pieces.shape[2]))
    by_row = padded.reshape(*padded.shape[:2], rows, hop)
    shifted = [torch.nn.functional.pad(by_row[:, :, n], (0, 0, n, rows - 1 - n)) for n in range(rows)]
    return torch.stack(shifted).sum(0).flatten(1) if len(shifted) > 1 else shifted[0].flatten(1)


@rule(aten._conj.default, aten.conj_physical.default, prims.conj_physical.default)
def conjugate(x: Tensor) -> Tensor:
    return torch.complex(x.real, -x.imag) if x.dtype.is_complex else x.clone()


@rule(aten.abs.default)
def absolute(x: Tensor) -> Any:
    return torch.hypot(x.real, x.imag) if x.dtype.is_complex else NotImplemented


@rule(prims.convert_element_type.default)
def converted(x: Tensor, dtype: torch.dtype) -> Any:
    if dtype not in (torch.complex64, torch.complex128):
        return NotImplemented
    real = dtype.to_real()
    if x.dtype.is_complex:
        return NotImplemented if x.dtype is dtype else torch.complex(x.real.to(real), x.imag.to(real))
    return torch.complex(x.to(real), torch.zeros_like(x, dtype=real))


@rule(aten.polar.default)
def polar(size: Tensor, angle: Tensor) -> Tensor:
    return torch.complex(size * torch.cos(angle), size * torch.sin(angle))


@rule(aten.fft_ihfftn.default)
def inverse_hermitian(
    x: Tensor, s: list[int] | None = None, dim: list[int] | None = None, norm: str | None = None
) -> Any:
    other = {"forward": "backward", "ortho": "ortho"}.get(norm or "", "forward")
    return conjugate(torch.fft.rfftn(x, s, dim, other))


@rule(aten.fft_ihfft2.default)
def inverse_hermitian_of_two(
    x: Tensor, s: list[int] | None = None, dim: tuple[int, ...] = (-2, -1), norm: str | None = None
) -> Any:
    return inverse_hermitian(x, s, list(dim), norm)
