"""Complex arguments and results are pairs of real numbers in the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from limits import part
from op_inputs import r
from oracle import assert_same
from torch import Tensor

import covan_mlir

aten = torch.ops.aten
Z = torch.complex(r(3, 4), r(3, 4))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "argument": (lambda z: (z.real * 2, z.abs()), (Z,)),
    "result": (lambda x: (torch.complex(x, x * 2), torch.polar(x, x)), (r(3, 4),)),
    "both": (lambda z: (z * z, z + z.mT.mT * 2, z - 1, z.conj()), (Z,)),
    "given back": (lambda z, x: (z, z * x), (Z, r(4))),
    "conjugate view": (lambda z: torch.fft.ifft(z), (Z.conj(),)),
    "transforms": (lambda x: (torch.fft.rfft(x), torch.fft.ihfft(x), torch.fft.ihfft2(x)), (r(4, 6),)),
    "double": (lambda x: torch.fft.rfft(x), (r(4, 6, dtype=torch.float64),)),
    "of reals": (lambda x: x.to(torch.complex64) * 1j, (r(5),)),
    "there and back, of both sides": (
        lambda x, w: torch.istft(
            torch.stft(x[0], 8, 4, window=w, onesided=False, return_complex=True), 8, 4, window=w, onesided=False
        ),
        (r(2, 24), torch.hann_window(8)),
    ),
    "there and back": (
        lambda z, w: torch.istft(
            torch.stft(z[0], 8, 4, window=w, return_complex=True), 8, 4, window=w, onesided=False, return_complex=True
        ),
        (torch.complex(r(2, 24), r(2, 24)), torch.hann_window(8)),
    ),
    "functions": (
        lambda z: (z.exp(), z.log(), z.sqrt(), z.sin(), z.tan(), -z, z.sgn()),
        (Z,),
    ),
    "powers": (lambda z, y: (z**-3, z**y, 2.0**z), (Z, torch.complex(r(4), r(4)))),
    "chosen and compared": (
        lambda z, m, i: (torch.where(m, z, z * 2), z.masked_fill(m, 0), z == z.conj(), torch.isnan(z), z[:, i]),
        (Z, r(3, 4) > 0, torch.tensor([0, 2, 2])),
    ),
    "products of rows, variances": (lambda z: (z.prod(0), z.cumsum(1), z.var(1)), (Z,)),
    "sums": (lambda z: (z.sum(), z.mean(1), z.sum((0, 1), dtype=torch.complex128)), (Z,)),
    "quotients": (lambda z: (z / (z.conj() + 3), 1 / z, z / z.mean()), (Z,)),
    "products": (lambda z, y: (z @ y, torch.einsum("ij,bjk->bik", z, y[None])), (Z, torch.complex(r(4, 5), r(4, 5)))),
    "by numbers, as derivatives have it": (
        lambda z: (
            aten.mul.Scalar(z, 2.5 + 1j),
            aten.add.Scalar(z, 2),
            aten.sub.Scalar(z, 1, 3),
            aten.div.Scalar(z, 3),
        ),
        (Z,),
    ),
    "a number in the program": (lambda z: z + torch.tensor(3 + 1j), (Z,)),
    "a half beside an argument": (lambda x: torch.fft.fftn(x, dim=(1, 2)).real + x, (r(2, 32, 32),)),
    "halves of what was put together": (
        lambda x, y: ((z := torch.complex(x, y[0])).imag + y, z.real.exp(), z * z, torch.view_as_real(z)[..., 1] * 2),
        (r(5), r(3, 5)),
    ),
    "pieces of signals": (
        lambda x, w: (torch.stft(x, 16, 8, window=w, return_complex=True).abs(), torch.stack([x, -x], 1)[:, 1] * 2),
        (r(2, 64), r(16)),
    ),
    "constants": (lambda z: (torch.zeros_like(z), torch.full_like(z, 1 + 2j), torch.ones_like(z) * 2), (Z,)),
    "filled": (lambda z: (z + torch.full((4,), 1 + 2j), z.new_zeros(2, 3), z * torch.ones_like(z)), (Z,)),
    "a kernel of state spaces": (
        lambda c, t, n: 2 * (c * torch.exp(t * n)).sum(0).real,
        (torch.complex(r(6, 1), r(6, 1)), torch.complex(r(6, 1), r(6, 1)) * 0.1, torch.arange(16)),
    ),
    "of doubles": (lambda x: x.to(torch.complex128), (r(5),)),
}


def test_quotients_of_large_numbers() -> None:
    """The square of neither part of the divisor is a float."""
    x, y = torch.full((2,), 1e30 + 2e30j), torch.full((2,), 2e30 + 1e30j)
    exe = covan_mlir.compile_module(lambda x, y: x / y, (x, y))
    torch.testing.assert_close(exe(x, y), torch.full((2,), 0.8 + 0.6j))


@pytest.mark.parametrize("name", part(PROGRAMS, kept=list(PROGRAMS)[::3]))
def test_agrees_with_eager_and_verifies(name: str) -> None:
    function, args = PROGRAMS[name]
    exe = covan_mlir.compile_module(function, args)
    assert_same(exe(*args), function(*args), depth=8)
    verdict = exe.verify()
    assert verdict, str(verdict)


def test_waves_are_constants_of_the_program() -> None:
    """Nothing is computed at load time, and quarter turns are exact."""
    exe = covan_mlir.compile_module(lambda x: torch.fft.rfft(x), (torch.ones(2, 4, dtype=torch.float64),))
    assert {site.phase for site in exe.lineage.sites} == {"call"}
    turning = torch.tensor([[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
    assert torch.equal(exe(turning), torch.tensor([[0, 2, 0], [0, -2j, 0]], dtype=torch.complex128))


def test_arrays_and_files(tmp_path: Path) -> None:
    exe = covan_mlir.compile_module(lambda z: torch.fft.fft(z), (Z,))
    exe.save(tmp_path / "transform.covan")
    for program in (exe, covan_mlir.load(tmp_path / "transform.covan")):
        result = program(Z.numpy())
        assert result.dtype == np.complex64
        np.testing.assert_allclose(result, np.fft.fft(Z.numpy()), rtol=1e-5, atol=1e-5)


def test_the_signature_names_the_complex_type() -> None:
    exe = covan_mlir.compile_module(lambda z: z.conj(), (Z,))
    (given,), (taken,) = exe.signature.outputs, exe.signature.inputs
    assert (given.dtype, given.shape, taken.dtype, taken.shape) == ("complex64", (3, 4), "complex64", (3, 4))
    with pytest.raises(covan_mlir.InputError, match="argument z is float32; expected complex64"):
        exe(Z.real)
