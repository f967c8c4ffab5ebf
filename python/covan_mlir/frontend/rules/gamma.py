"""The incomplete gamma functions, regularised: a series up to a, a continued fraction beyond, in loops of the program.

W. Press et al., Numerical Recipes, 3rd ed., section 6.2; in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from covan_mlir.frontend.rules.loops import elementwise, looped
from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_MOST = 2000.0
"""Terms, as in eager."""
_EPSILON = 2.0**-53


def _series(a: Tensor, x: Tensor) -> Tensor:
    """The sum over n of x^n / ((a + 1) ... (a + n)), n from 0."""

    def unfinished(n: Tensor, term: Tensor, total: Tensor, a: Tensor, x: Tensor) -> Tensor:
        return ((n < _MOST) & (term > _EPSILON * total)).any()

    def onwards(n: Tensor, term: Tensor, total: Tensor, a: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        term = term * x / (a + n + 1)
        return n + 1, term, total + term

    start = (torch.zeros(1, dtype=torch.float64), torch.ones_like(x), torch.ones_like(x))
    return looped(unfinished, onwards, start, (a, x))[2]


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...))), by Lentz's method."""

    def unfinished(n: Tensor, c: Tensor, d: Tensor, value: Tensor, change: Tensor, a: Tensor, x: Tensor) -> Tensor:
        return ((n < _MOST) & ((change - 1).abs() > 2 * _EPSILON)).any()

    def onwards(
        n: Tensor, c: Tensor, d: Tensor, value: Tensor, change: Tensor, a: Tensor, x: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        above, own = -n * (n - a), x + 2 * n + 1 - a
        d, c = own + above * d, own + above / c
        d = 1 / torch.where(d.abs() < _TINY, _TINY, d)
        c = torch.where(c.abs() < _TINY, _TINY, c)
        change = c * d
        return n + 1, c, d, value * change, change

    first = x + 1 - a
    d = 1 / torch.where(first.abs() < _TINY, _TINY, first)
    start = (torch.ones(1, dtype=torch.float64), torch.full_like(x, 1 / _TINY), d, d.clone(), torch.zeros_like(x))
    return looped(unfinished, onwards, start, (a, x))[3]


_TINY = 1e-290


def _both(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper function of [places] in float64."""
    plain = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    order, at = torch.where(plain, a, 1.0), torch.where(plain, x, 1.0)
    near = at <= torch.maximum(order, torch.ones_like(order))
    scale = torch.exp(order * torch.log(at) - at - torch.lgamma(order))
    # Where the other one is taken, arguments at which this one ends at once.
    low = scale / order * _series(torch.where(near, order, 1.0), torch.where(near, at, 0.0))
    high = scale * _fraction(torch.where(near, 1.0, order), torch.where(near, 1.0, at))
    lower, upper = torch.where(near, low, 1 - high), torch.where(near, 1 - low, high)
    all_, none = torch.ones_like(lower), torch.zeros_like(lower)
    beyond = (x == math.inf) | (a == 0)
    for special, below in ((x == 0, none), (a == math.inf, none), (beyond, all_)):
        lower, upper = torch.where(special, below, lower), torch.where(special, 1 - below, upper)
    undefined = (a < 0) | (x < 0) | torch.isnan(a) | torch.isnan(x)
    undefined = undefined | ((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))
    return torch.where(undefined, math.nan, lower), torch.where(undefined, math.nan, upper)


def _type(a: Tensor, x: Tensor) -> torch.dtype:
    dtype = torch.result_type(a, x)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


@rule(aten.igamma.default, aten.special_gammainc.default)
def igamma(a: Tensor, x: Tensor) -> Tensor:
    return elementwise(lambda order, at: _both(order, at)[0], a, x, _type(a, x))


@rule(aten.igammac.default, aten.special_gammaincc.default)
def igammac(a: Tensor, x: Tensor) -> Tensor:
    return elementwise(lambda order, at: _both(order, at)[1], a, x, _type(a, x))
