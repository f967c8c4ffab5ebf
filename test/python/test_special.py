"""Special functions of our own, in float64, against PyTorch's in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from covan_mlir.frontend.rules import bessel, gamma, polynomials

special = torch.special
AXIS = torch.cat([torch.linspace(-30, 30, 2001), torch.tensor([0.0, -0.0, 1e-9, 1e3])]).to(torch.float64)
ENDS = torch.tensor([-torch.inf, torch.inf, torch.nan], dtype=torch.float64)
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "j0": (bessel.j0, special.bessel_j0),
    "j1": (bessel.j1, special.bessel_j1),
    "y0": (bessel.y0, special.bessel_y0),
    "y1": (bessel.y1, special.bessel_y1),
    "i0": (bessel.i0, special.i0),
    "i0e": (bessel.i0e, special.i0e),
    "i1": (bessel.i1, special.i1),
    "i1e": (bessel.i1e, special.i1e),
    "k0": (bessel.k0, special.modified_bessel_k0),
    "k0e": (bessel.k0e, special.scaled_modified_bessel_k0),
    "k1": (bessel.k1, special.modified_bessel_k1),
    "k1e": (bessel.k1e, special.scaled_modified_bessel_k1),
    "spherical j0": (bessel.spherical_j0, special.spherical_bessel_j0),
    "airy": (bessel.airy, special.airy_ai),
    "log_ndtr": (bessel.log_ndtr, special.log_ndtr),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_the_axis(name: str) -> None:
    ours, eager = FUNCTIONS[name]
    for x in (AXIS, ENDS):
        torch.testing.assert_close(ours(x), eager(x), rtol=1e-11, atol=1e-13, equal_nan=True)


def test_quantiles() -> None:
    p = torch.cat([torch.linspace(-0.1, 1.1, 1001), 10.0 ** torch.linspace(-30, -1, 50)]).to(torch.float64)
    torch.testing.assert_close(bessel.ndtri(p), special.ndtri(p), rtol=1e-13, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize("s", [0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 30.0])
def test_zeta(s: float) -> None:
    """At negative places, too, which only whole orders have."""
    q = AXIS.where(AXIS != 0, 0.0)
    exponent = torch.full_like(q, s)
    torch.testing.assert_close(
        bessel.zeta(exponent, q), special.zeta(exponent, q), rtol=1e-9, atol=1e-9, equal_nan=True
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_polygamma(n: int) -> None:
    x = AXIS[(AXIS > 0) | (AXIS.round() != AXIS)]
    torch.testing.assert_close(bessel.polygamma(n, x), torch.polygamma(n, x), rtol=1e-7, atol=1e-8)


POLYNOMIALS: dict[str, tuple[polynomials.Step, Callable[..., Tensor]]] = {
    "physicists' Hermite": (polynomials._physicists, special.hermite_polynomial_h),
    "probabilists' Hermite": (polynomials._probabilists, special.hermite_polynomial_he),
    "Laguerre": (polynomials._laguerre, special.laguerre_polynomial_l),
    "Legendre": (polynomials._legendre, special.legendre_polynomial_p),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str) -> None:
    step, eager = POLYNOMIALS[name]
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    for degree in (-2.0, 0.0, 1.0, 2.0, 7.0, 20.0):
        n = torch.full_like(x, degree)
        torch.testing.assert_close(polynomials.recurrence(step, x, n), eager(x, n), rtol=1e-9, atol=1e-9)


def test_incomplete_gamma() -> None:
    order = torch.tensor([0.0, 1e-6, 0.01, 0.5, 1, 2, 10, 50, 150, 1000, -1, torch.inf], dtype=torch.float64)
    at = torch.tensor([0.0, 1e-9, 0.1, 0.99, 1, 1.1, 5, 11, 55, 200, 990, 1010, -1, torch.inf], dtype=torch.float64)
    a, x = (side.reshape(-1).clone() for side in torch.meshgrid(order, at, indexing="ij"))
    for ours, eager in ((gamma.igamma, torch.igamma), (gamma.igammac, torch.igammac)):
        torch.testing.assert_close(ours(a, x), eager(a, x), rtol=1e-9, atol=1e-13, equal_nan=True)
