"""Small programs, one operation or idiom each, in groups: linear systems, Fourier transforms, complex numbers inside.

A program is a function and its arguments. A group is compiled as one.
"""

from __future__ import annotations

import torch
from op_inputs import Group, n, r

GROUPS: dict[str, Group] = {}
_STEADY = r(2, 4, 4) + 4 * torch.eye(4)
_SWAPPED = torch.tensor([[0.0, 2.0, 1.0], [1.0, 0.0, 3.0], [4.0, 1.0, 0.0]])
"""Cannot be solved without exchanging rows."""


def _positive(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + torch.eye(x.shape[-1])


GROUPS["linear_systems"] = {
    "cholesky": (lambda x: torch.linalg.cholesky(_positive(x)), (r(2, 4, 4),)),
    "cholesky_upper": (lambda x: torch.linalg.cholesky(_positive(x), upper=True), (r(3, 3),)),
    "cholesky_solve": (lambda x, b: torch.cholesky_solve(b, torch.linalg.cholesky(_positive(x))), (r(4, 4), r(4, 2))),
    "inv": (torch.linalg.inv, (_STEADY,)),
    "inv_pivots": (torch.linalg.inv, (_SWAPPED,)),
    "solve": (torch.linalg.solve, (_STEADY, r(2, 4, 3))),
    "solve_vector": (torch.linalg.solve, (_SWAPPED, r(3))),
    "solve_right": (lambda a, b: torch.linalg.solve(a, b, left=False), (_SWAPPED, r(2, 3))),
    "triangular_upper": (lambda a, b: torch.linalg.solve_triangular(a.triu(), b, upper=True), (_STEADY, r(2, 4, 3))),
    "triangular_lower": (
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False, unitriangular=True),
        (_STEADY, r(2, 4, 3)),
    ),
    "triangular_right": (
        lambda a, b: torch.linalg.solve_triangular(a.triu(), b, upper=True, left=False),
        (_STEADY[0], r(2, 4)),
    ),
}

GROUPS["factorisations"] = {
    "lu": (torch.linalg.lu, (_SWAPPED,)),
    "lu_solve": (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b), (_STEADY, r(2, 4, 3))),
    "qr": (torch.linalg.qr, (r(2, 4, 3),)),
    "inv_ex": (torch.linalg.inv_ex, (_STEADY,)),
    "cholesky_ex": (lambda x: torch.linalg.cholesky_ex(_positive(x)), (r(2, 3, 3),)),
    "svd_of_nothing": (
        lambda x: (*torch.linalg.svd(x), *torch.linalg.svd(x.mT, full_matrices=False)),
        (r(2, 0, 3),),
    ),
    "tensorinv": (lambda x: torch.linalg.tensorinv(x.reshape(2, 2, 4) + torch.eye(4).reshape(2, 2, 4) * 4), (r(4, 4),)),
    "matrix_exp": (torch.matrix_exp, (r(2, 3, 3),)),
    "chebyshev": (torch.special.chebyshev_polynomial_t, (r(3, 4), n(3, 4, low=0, high=8))),
}

GROUPS["fourier"] = {
    "fft_abs": (lambda x: torch.fft.fft(x).abs(), (r(3, 8),)),
    "fft_odd": (lambda x: torch.fft.fft(x, norm="ortho").real, (r(3, 7),)),
    "rfft": (lambda x: torch.view_as_real(torch.fft.rfft(x)), (r(3, 10),)),
    "rfft_angles": (lambda x: torch.fft.rfft(x).angle(), (r(3, 10),)),
    "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=8), (r(3, 8),)),
    "irfft_odd": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=9), (r(3, 9),)),
    "fft2": (lambda x: torch.view_as_real(torch.fft.fft2(x)), (r(4, 6),)),
    "ifft": (lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x))), (r(5, 6, 2),)),
    "fourier_mixing": (lambda x: torch.fft.fftn(x, dim=(1, 2)).real, (r(2, 8, 16),)),
    "stft": (
        lambda x: torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs(),
        (r(1, 64),),
    ),
    "stft, short windows": (
        lambda x, w: torch.view_as_real(
            torch.stft(x, 15, 4, 9, w, center=False, normalized=True, onesided=False, return_complex=True)
        ),
        (r(64), r(9)),
    ),
    "stft, complex": (
        lambda x: torch.view_as_real(
            torch.stft(torch.view_as_complex(x), 16, window=torch.ones(16), return_complex=True, onesided=False)
        ),
        (r(2, 32, 2),),
    ),
    "istft": (
        lambda x: torch.istft(
            torch.view_as_complex(x), 16, 5, 13, torch.hamming_window(13), normalized=True, length=30
        ),
        (r(2, 9, 8, 2),),
    ),
    "istft, complex": (
        lambda x: torch.view_as_real(
            torch.istft(torch.view_as_complex(x), 8, 4, center=False, onesided=False, return_complex=True)
        ),
        (r(8, 6, 2),),
    ),
    "signal_windows": (
        lambda x: (
            x
            * (torch.blackman_window(30) + torch.bartlett_window(30, periodic=False))
            * (torch.kaiser_window(30) + torch.hamming_window(30, periodic=False, alpha=0.6))
            + torch.hamming_window(1)
        ),
        (r(30),),
    ),
}

GROUPS["counted"] = {
    "histc": (lambda x: torch.histc(x, 4), (r(9),)),
    "histc_limits": (lambda x: torch.histc(x, 10, -1, 1), (r(50),)),
    "histc_alone": (lambda x: torch.histc(x * 0 + 3, 4), (r(5),)),
    "scatter_into_zeros": (
        lambda p: torch.zeros_like(p).scatter(-1, p.topk(2).indices, p.topk(2).values.softmax(-1)),
        (r(4, 8),),
    ),
    "scatter_last": (lambda p, i: p.scatter(-1, i, 2.0), (r(4, 8), n(4, 3, low=0, high=8))),
    "scatter_add_last": (lambda p, i, v: p.scatter_add(-1, i, v), (r(4, 8), n(4, 3, low=0, high=8), r(4, 3))),
    "conv_tbc": (lambda x, w, b: torch.conv_tbc(x, w, b, 1), (r(7, 2, 3), r(3, 3, 4), r(4))),
}
