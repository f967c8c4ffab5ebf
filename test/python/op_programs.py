"""Small programs, one operation or idiom each, in groups that are compiled as one program.

A program is a function and its arguments. Names follow the operation; the variant stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Program = tuple[Callable[..., Any], tuple[Any, ...]]
Group = dict[str, Program]

_rng = torch.Generator().manual_seed(0)


def r(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, generator=_rng).to(dtype)


def u(*shape: int) -> Tensor:
    """Uniformly distributed in (0.05, 0.95)."""
    return torch.rand(shape, generator=_rng) * 0.9 + 0.05


def n(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64) -> Tensor:
    """Whole numbers in [low, high)."""
    return torch.randint(low, high, shape, generator=_rng).to(dtype)


def b(*shape: int) -> Tensor:
    """Booleans."""
    return torch.rand(shape, generator=_rng) > 0.5


def module(made: nn.Module) -> nn.Module:
    """A module with weights that do not depend on the order of the tests."""
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=_rng) * 0.3)
    return made.eval()


def ints(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Dividends and divisors of both signs, multiples and zero dividends among them."""
    a = torch.tensor([7, -7, 7, -7, 6, -6, 0, 1, -1])
    return a.to(dtype), torch.tensor([3, 3, -3, -3, 3, -3, 5, -2, 2]).to(dtype)


SPECIAL = torch.tensor([0.0, -0.0, 1.5, -2.5, float("inf"), -float("inf"), float("nan"), 1e-30, 3e38])
HALVES = torch.tensor([-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.4999999, 8388609.0, -1e10])
GROUPS: dict[str, Group] = {}

GROUPS["activations"] = {
    "relu": (F.relu, (r(3, 5),)),
    "relu6": (lambda x: F.relu6(x * 4), (r(3, 5),)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), (r(3, 5),)),
    "prelu": (F.prelu, (r(2, 3, 4), r(3))),
    "elu": (lambda x: F.elu(x, 1.3), (r(3, 5),)),
    "selu": (F.selu, (r(3, 5),)),
    "celu": (lambda x: F.celu(x, 0.7), (r(3, 5),)),
    "gelu": (F.gelu, (r(3, 5),)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (r(3, 5),)),
    "silu": (F.silu, (r(3, 5),)),
    "mish": (F.mish, (r(3, 5),)),
    "hardswish": (lambda x: F.hardswish(x * 3), (r(3, 5),)),
    "hardsigmoid": (lambda x: F.hardsigmoid(x * 3), (r(3, 5),)),
    "hardtanh": (lambda x: F.hardtanh(x, -0.4, 0.3), (r(3, 5),)),
    "softplus": (lambda x: F.softplus(x * 9, 2.0, 5.0), (r(3, 5),)),
    "softsign": (F.softsign, (r(3, 5),)),
    "softshrink": (F.softshrink, (r(3, 5),)),
    "hardshrink": (F.hardshrink, (r(3, 5),)),
    "tanhshrink": (F.tanhshrink, (r(3, 5),)),
    "threshold": (lambda x: F.threshold(x, 0.2, -3.0), (r(3, 5),)),
    "logsigmoid": (F.logsigmoid, (r(3, 5),)),
    "glu": (lambda x: F.glu(x, 1), (r(3, 6),)),
    "rrelu_eval": (F.rrelu, (r(3, 5),)),
    "softmax": (lambda x: F.softmax(x, -1), (r(3, 5),)),
    "softmax_0d": (lambda x: F.softmax(x, 0), (r(),)),
    "softmin": (lambda x: F.softmin(x, 0), (r(3, 5),)),
    "log_softmax": (lambda x: F.log_softmax(x, 1), (r(3, 5),)),
    "softmax_dtype": (lambda x: F.softmax(x, 0, dtype=torch.float64), (r(3, 5),)),
}

GROUPS["unary"] = {
    "exp": (torch.exp, (r(3, 4),)),
    "exp2": (torch.exp2, (r(3, 4),)),
    "expm1": (torch.expm1, (r(3, 4),)),
    "log": (torch.log, (u(3, 4),)),
    "log2": (torch.log2, (u(3, 4),)),
    "log10": (torch.log10, (u(3, 4),)),
    "log1p": (torch.log1p, (u(3, 4),)),
    "sqrt": (torch.sqrt, (u(3, 4),)),
    "rsqrt": (torch.rsqrt, (u(3, 4),)),
    "reciprocal": (torch.reciprocal, (u(3, 4),)),
    "square": (torch.square, (r(3, 4),)),
    "abs": (torch.abs, (r(3, 4),)),
    "neg": (torch.neg, (r(3, 4),)),
    "sign": (torch.sign, (HALVES,)),
    "signbit": (torch.signbit, (SPECIAL,)),
    "erf": (torch.erf, (r(3, 4),)),
    "erfc": (torch.erfc, (r(3, 4),)),
    "erfinv": (torch.erfinv, (u(3, 4),)),
    "ceil": (torch.ceil, (HALVES,)),
    "floor": (torch.floor, (HALVES,)),
    "round": (torch.round, (HALVES,)),
    "round_decimals": (lambda x: torch.round(x, decimals=2), (r(3, 4),)),
    "trunc": (torch.trunc, (HALVES,)),
    "frac": (torch.frac, (r(3, 4) * 5,)),
    "sigmoid": (torch.sigmoid, (r(3, 4),)),
    "logit": (torch.logit, (u(3, 4),)),
    "logit_eps": (lambda x: torch.logit(x, 0.1), (u(3, 4),)),
    "sinc": (torch.sinc, (r(3, 4),)),
    "deg2rad": (torch.deg2rad, (r(3, 4) * 90,)),
    "digamma": (torch.digamma, (u(3, 4) + 1,)),
    "lgamma": (torch.lgamma, (u(3, 4) + 1,)),
}

GROUPS["trigonometry"] = {
    "sin": (torch.sin, (r(3, 4),)),
    "cos": (torch.cos, (r(3, 4),)),
    "tan": (torch.tan, (r(3, 4),)),
    "asin": (torch.asin, (u(3, 4),)),
    "acos": (torch.acos, (u(3, 4),)),
    "atan": (torch.atan, (r(3, 4),)),
    "atan2": (torch.atan2, (r(3, 4), r(3, 4))),
    "atan2_quadrants": (
        torch.atan2,
        (torch.tensor([0.0, 0.0, 1.0, -1.0, -1.0, 1.0, 0.0]), torch.tensor([1.0, -1.0, 0.0, 0.0, -1.0, -1.0, 0.0])),
    ),
    "sinh": (torch.sinh, (r(3, 4),)),
    "cosh": (torch.cosh, (r(3, 4),)),
    "tanh": (torch.tanh, (r(3, 4),)),
    "asinh": (torch.asinh, (r(3, 4),)),
    "acosh": (torch.acosh, (u(3, 4) + 1,)),
    "atanh": (torch.atanh, (u(3, 4),)),
    "hypot": (torch.hypot, (r(3, 4), r(3, 4))),
    "logaddexp": (torch.logaddexp, (r(3, 4), r(4))),
    "logaddexp2": (torch.logaddexp2, (r(3, 4), r(4))),
    "xlogy": (torch.xlogy, (torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 3.0]))),
    "polygamma": (lambda x: torch.polygamma(1, x), (u(3) + 1,)),
    "i0": (torch.i0, (r(3, 4),)),
    "sqrt_of_int": (torch.sqrt, (n(4, low=0),)),
    "exp_of_bool": (torch.exp, (b(4),)),
    "sigmoid_of_int": (torch.sigmoid, (n(4),)),
}

GROUPS["arithmetic"] = {
    "add_alpha": (lambda a, c: torch.add(a, c, alpha=2.5), (r(3, 4), r(4))),
    "add_alpha_int": (lambda a, c: torch.add(a, c, alpha=3), (n(3, 4), n(4))),
    "sub_alpha": (lambda a, c: torch.sub(a, c, alpha=2), (r(3, 4), r(3, 1))),
    "rsub": (lambda a: torch.rsub(a, 3.0, alpha=2), (r(3, 4),)),
    "mul_broadcast": (torch.mul, (r(3, 1, 4), r(2, 1))),
    "div": (torch.div, (r(3, 4), u(3, 4))),
    "div_int": (torch.div, (n(3, 4), n(3, 4, low=1))),
    "div_floor": (lambda a, c: torch.div(a, c, rounding_mode="floor"), (r(3, 4) * 5, r(3, 4))),
    "div_trunc": (lambda a, c: torch.div(a, c, rounding_mode="trunc"), (r(3, 4) * 5, r(3, 4))),
    "pow": (torch.pow, (u(3, 4), r(3, 4))),
    "pow_scalar": (lambda a: (a**2, a**3, a**0.5, a**-1.5, a**0), (u(3, 4),)),
    "pow_base": (lambda a: 2.5**a, (r(3, 4),)),
    "pow_int_float": (lambda a: a**0.5, (n(4, low=0),)),
    "pow_negative_base": (lambda a: (a**2.0, a**3.0), (r(3, 4),)),
    "lerp": (torch.lerp, (r(3, 4), r(3, 4), u(3, 4))),
    "lerp_scalar": (lambda a, c: torch.lerp(a, c, 0.3), (r(3, 4), r(3, 4))),
    "addcmul": (lambda a, c, d: torch.addcmul(a, c, d, value=0.5), (r(3, 4), r(4), r(3, 1))),
    "addcdiv": (lambda a, c, d: torch.addcdiv(a, c, d, value=2), (r(3, 4), r(4), u(3, 1))),
    "maximum": (torch.maximum, (SPECIAL, SPECIAL.flip(0))),
    "minimum": (torch.minimum, (SPECIAL, SPECIAL.flip(0))),
    "fmax": (torch.fmax, (SPECIAL, SPECIAL.flip(0))),
    "fmin_broadcast": (torch.fmin, (r(2, 3), r(3))),
    "copysign": (torch.copysign, (r(3, 4), r(3, 4))),
    "heaviside": (torch.heaviside, (HALVES.round(), torch.tensor(0.5))),
    "nextafter_free": (lambda a: a + torch.finfo(a.dtype).eps, (r(3),)),
    "ldexp": (torch.ldexp, (r(3), n(3))),
    "dist": (lambda a, c: torch.dist(a, c, 2), (r(3, 4), r(3, 4))),
    "float_power": (lambda a: torch.float_power(a, 2), (r(3),)),
    "true_divide_0d": (lambda a, c: a / c, (r(), n())),
    "gcd": (torch.gcd, (n(8), n(8))),
}

GROUPS["division"] = {
    "remainder_int": (torch.remainder, ints(torch.int64)),
    "remainder_i32": (torch.remainder, ints(torch.int32)),
    "remainder_i8": (torch.remainder, ints(torch.int8)),
    "remainder_float": (torch.remainder, ints(torch.float32)),
    "remainder_scalar": (lambda a: (a % 3, a % -3), ints(torch.int64)[:1]),
    "remainder_float_scalar": (lambda a: (a % 2.5, a % -2.5), ints(torch.float32)[:1]),
    "remainder_reversed": (lambda a: 7 % a, ints(torch.int64)[1:]),
    "fmod_int": (torch.fmod, ints(torch.int64)),
    "fmod_float": (torch.fmod, ints(torch.float32)),
    "fmod_scalar": (lambda a: torch.fmod(a, -3), ints(torch.int64)[:1]),
    "floor_divide_int": (torch.floor_divide, ints(torch.int64)),
    "floor_divide_float": (torch.floor_divide, ints(torch.float32)),
    "floor_divide_scalar": (lambda a: (a // 3, a // -3), ints(torch.int64)[:1]),
    "floor_divide_i16": (lambda a, c: a // c, ints(torch.int16)),
    "div_floor_int": (lambda a, c: torch.div(a, c, rounding_mode="floor"), ints(torch.int64)),
    "div_trunc_int": (lambda a, c: torch.div(a, c, rounding_mode="trunc"), ints(torch.int64)),
    "div_trunc_i32": (lambda a, c: torch.div(a, c, rounding_mode="trunc"), ints(torch.int32)),
    "div_by_zero": (lambda a: (a / 0, 0 / a, -a // 0.0), (torch.tensor([1.0, -1.0, 0.0]),)),
}

GROUPS["integers"] = {
    "pow_int": (lambda a: (a**2, a**3, a**0, a**1), (n(8),)),
    "pow_int_tensor": (torch.pow, (n(8), n(8, low=0, high=5))),
    "pow_int_base": (lambda a: 3**a, (n(6, low=0, high=8),)),
    "pow_i32": (lambda a: a**3, (n(8, dtype=torch.int32),)),
    "bitwise_and": (torch.bitwise_and, (n(8), n(8))),
    "bitwise_or": (torch.bitwise_or, (n(8), n(8))),
    "bitwise_xor": (torch.bitwise_xor, (n(8), n(8))),
    "bitwise_not": (torch.bitwise_not, (n(8),)),
    "bitwise_scalar": (lambda a: (a & 6, a | 9, a ^ 5), (n(8),)),
    "shift": (lambda a, c: (a << c, a >> c), (n(8), n(8, low=0, high=5))),
    "shift_scalar": (lambda a: (a << 3, a >> 1), (n(8, dtype=torch.int32),)),
    "bitwise_bool": (lambda a, c: (a & c, a | c, a ^ c, ~a), (b(8), b(8))),
    "logical": (lambda a, c: (torch.logical_and(a, c), torch.logical_or(a, c), torch.logical_not(a)), (r(4), n(4))),
    "logical_xor": (torch.logical_xor, (n(8, low=0, high=2), b(8))),
    "abs_int": (torch.abs, (n(8),)),
    "neg_int": (torch.neg, (n(8, dtype=torch.int16),)),
    "sign_int": (torch.sign, (n(8),)),
    "square_int": (torch.square, (n(8),)),
    "relu_int": (F.relu, (n(8),)),
    "clamp_int": (lambda a: a.clamp(-2, 3), (n(8),)),
    "clamp_int_float": (lambda a: a.clamp(-2.5, 3.5), (n(8),)),
    "clamp_min_int": (lambda a: (a.clamp(min=2), a.clamp(max=0)), (n(8, dtype=torch.int32),)),
    "round_int": (lambda a: (torch.floor(a), torch.ceil(a), torch.round(a), torch.trunc(a)), (n(8),)),
    "sum_i8": (lambda a: a.sum(), (n(200, dtype=torch.int8),)),
    "mean_of_int": (lambda a: a.float().mean(0), (n(3, 4),)),
    "prod_int": (lambda a: a.prod(1), (n(3, 4),)),
    "matmul_int": (torch.matmul, (n(3, 4), n(4, 2))),
    "u8_wraps": (lambda a: (a + 200, a - 100, a * 3), (n(8, low=0, high=255, dtype=torch.uint8),)),
    "u8_compare": (lambda a: (a > 100, a.max(), a.float()), (n(8, low=0, high=255, dtype=torch.uint8),)),
    "i64_large": (lambda a: (a * 3 + 1, a // 7, a % 1000), (torch.tensor([2**40 + 5, -(2**41) - 3]),)),
}

GROUPS["comparisons"] = {
    "eq_ne": (lambda a, c: (a == c, a != c), (n(8, low=0, high=3), n(8, low=0, high=3))),
    "lt_le_gt_ge": (lambda a, c: (a < c, a <= c, a > c, a >= c), (SPECIAL, SPECIAL.flip(0))),
    "compare_scalar": (lambda a: (a > 0, a == 1.5, a != a, a <= 2), (SPECIAL,)),
    "compare_int_with_float": (lambda a: (a > 1.5, a == 2.0), (n(8),)),
    "compare_mixed": (lambda a, c: (a < c, a == c), (n(3, 4), r(4))),
    "compare_bool": (lambda a, c: (a < c, a >= c, a == c), (b(8), b(8))),
    "isnan_isinf": (lambda a: (a.isnan(), a.isinf(), a.isfinite()), (SPECIAL,)),
    "isposinf": (lambda a: (torch.isposinf(a), torch.isneginf(a)), (SPECIAL,)),
    "isnan_int": (lambda a: (a.isnan(), a.isinf(), a.isfinite()), (n(4),)),
    "isclose": (lambda a: torch.isclose(a, a + 1e-6), (r(8),)),
    "isclose_special": (lambda a: torch.isclose(a, a.flip(0), equal_nan=True), (SPECIAL,)),
    "allclose_like": (lambda a, c: (a - c).abs().max() < 1e-3, (r(4), r(4))),
    "nan_to_num": (lambda a: (a.nan_to_num(), a.nan_to_num(1.0, 2.0, 3.0)), (SPECIAL,)),
    "where": (torch.where, (b(3, 4), r(3, 4), r(4))),
    "where_scalar": (lambda a: torch.where(a > 0, a, 0.0), (r(3, 4),)),
    "where_two_scalars": (lambda a: torch.where(a > 0, 1, -1), (r(3, 4),)),
    "where_mixed": (lambda c, a, d: torch.where(c, a, d), (b(3, 4), n(3, 4), r(3, 4))),
    "clamp": (lambda a: (a.clamp(-0.5, 0.5), a.clamp(min=0), a.clamp_max(0.1)), (SPECIAL,)),
    "clamp_tensor": (lambda a, lo, hi: a.clamp(lo, hi), (r(3, 4), r(4) - 1, r(4) + 1)),
    "clamp_tensor_int": (lambda a, lo: a.clamp(min=lo), (n(3, 4), n(4))),
    "clip_one_side": (lambda a, hi: torch.clip(a, max=hi), (r(3, 4), r(3, 1))),
    "isin": (lambda a: torch.isin(a, torch.tensor([1, 2, 3])), (n(8),)),
    "bucketize": (torch.bucketize, (r(8), torch.tensor([-1.0, 0.0, 1.0]))),
    "searchsorted": (torch.searchsorted, (r(9).sort()[0], r(4))),
    "equal_all": (lambda a, c: torch.all(a == c), (n(4), n(4))),
}

GROUPS["reductions"] = {
    "sum": (lambda x: (x.sum(), x.sum(0), x.sum((0, 2), keepdim=True), x.sum(-1)), (r(2, 3, 4),)),
    "sum_bool": (lambda x: (x.sum(), x.sum(0)), (b(3, 4),)),
    "sum_dtype": (lambda x: x.sum(dtype=torch.float64), (r(3, 4),)),
    "mean": (lambda x: (x.mean(), x.mean(1), x.mean((0, 1), keepdim=True)), (r(2, 3, 4),)),
    "mean_dtype": (lambda x: x.mean(dtype=torch.float32), (n(3, 4),)),
    "prod": (lambda x: (x.prod(), x.prod(1), x.prod(0, keepdim=True)), (r(3, 4),)),
    "max_min": (lambda x: (x.max(), x.min(), x.max(1), x.min(0, keepdim=True)), (r(3, 4),)),
    "max_nan": (lambda x: (x.max(), x.min(), x.amax(0), x.argmax()), (SPECIAL,)),
    "amax_amin": (lambda x: (x.amax((0, 1)), x.amin(-1, keepdim=True), x.amax()), (r(2, 3, 4),)),
    "aminmax": (lambda x: torch.aminmax(x, dim=0), (r(3, 4),)),
    "argmax_argmin": (lambda x: (x.argmax(), x.argmax(1), x.argmin(0, keepdim=True)), (r(3, 4),)),
    "argmax_ties": (lambda x: (x.argmax(1), x.argmin(1), x.max(1)[1]), (n(3, 9, low=0, high=2),)),
    "any_all": (lambda x: (x.any(), x.all(), x.any(0), x.all(1, keepdim=True)), (b(3, 4),)),
    "any_float": (lambda x: (torch.any(x), torch.all(x, 0)), (r(3, 4),)),
    "var": (lambda x: (x.var(), x.var(1), x.var(0, correction=0), x.var((0, 1), correction=2)), (r(3, 4, 2),)),
    "std": (lambda x: (x.std(), x.std(1, unbiased=False), x.std(0, keepdim=True)), (r(3, 4),)),
    "var_mean": (lambda x: torch.var_mean(x, 1), (r(3, 4),)),
    "std_mean": (lambda x: torch.std_mean(x, (0, 1), correction=0), (r(3, 4),)),
    "logsumexp": (lambda x: (x.logsumexp(1), x.logsumexp((0, 1)), (x * 100).logsumexp(0, keepdim=True)), (r(3, 4),)),
    "norm": (lambda x: (x.norm(), x.norm(1, 1), x.norm(3.0, 0), x.norm(float("inf"), 0)), (r(3, 4),)),
    "vector_norm": (lambda x: (torch.linalg.vector_norm(x, 0), torch.linalg.vector_norm(x, -1.5, 1)), (r(3, 4),)),
    "matrix_norm": (lambda x: (torch.linalg.matrix_norm(x), torch.linalg.matrix_norm(x, 1)), (r(3, 4),)),
    "count_nonzero": (lambda x: (torch.count_nonzero(x), torch.count_nonzero(x, 0)), (n(3, 4, low=0, high=2),)),
    "nansum": (lambda x: (torch.nansum(x[4:]), torch.nanmean(x[6:])), (SPECIAL,)),
    "median": (lambda x: (x.median(), x.median(1)), (r(3, 5),)),
    "mode": (lambda x: x.mode(1)[0], (n(3, 5, low=0, high=3),)),
    "quantile": (lambda x: torch.quantile(x, 0.3, dim=1), (r(3, 5),)),
    "reduce_0d": (lambda x: (x.sum(), x.max(), x.mean(), x.argmax(), x.all(), x.softmax(0)), (r(),)),
    "reduce_0d_dim": (lambda x: (x.sum(0), x.max(0), x.min(-1), x.cumsum(0), x.amax(0)), (r(),)),
    "trace": (torch.trace, (r(3, 4),)),
}

GROUPS["scans_sorts"] = {
    "cumsum": (lambda x: (x.cumsum(0), x.cumsum(-1)), (r(3, 5),)),
    "cumsum_int": (lambda x: (x.cumsum(1), x.cumsum(0, dtype=torch.float32)), (n(3, 5),)),
    "cumsum_bool": (lambda x: x.cumsum(0), (b(6),)),
    "cumprod": (lambda x: (x.cumprod(0), x.cumprod(1)), (r(3, 5),)),
    "cummax": (lambda x: (x.cummax(1), x.cummin(0)), (r(3, 5),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (r(3, 5),)),
    "diff": (lambda x: (torch.diff(x), torch.diff(x, n=2, dim=0)), (r(4, 5),)),
    "sort": (lambda x: (x.sort(), x.sort(0, descending=True)), (r(3, 5),)),
    "sort_stable": (lambda x: x.sort(1, stable=True), (n(3, 9, low=0, high=3),)),
    "sort_int": (lambda x: x.sort(descending=True)[0], (n(3, 5),)),
    "argsort": (lambda x: (x.argsort(), x.argsort(0, descending=True)), (r(3, 5),)),
    "msort": (torch.msort, (r(4, 3),)),
    "topk": (lambda x: (x.topk(2), x.topk(2, 0, largest=False)), (r(3, 5),)),
    "topk_int": (lambda x: x.topk(3)[0], (n(3, 7),)),
    "kthvalue": (lambda x: x.kthvalue(2, 1), (r(3, 5),)),
    "trapezoid": (lambda y: torch.trapezoid(y, dx=0.5), (r(3, 5),)),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), (r(3, 5),)),
    "histc_free": (lambda x: F.one_hot(x, 5).sum(0), (n(9, low=0, high=5),)),
    "bincount": (lambda x: torch.bincount(x, minlength=6)[:6], (torch.tensor([0, 1, 1, 5]),)),
}

GROUPS["products"] = {
    "matmul_11": (torch.matmul, (r(5), r(5))),
    "matmul_12": (torch.matmul, (r(5), r(5, 3))),
    "matmul_21": (torch.matmul, (r(3, 5), r(5))),
    "matmul_22": (torch.matmul, (r(3, 5), r(5, 2))),
    "matmul_13": (torch.matmul, (r(5), r(2, 5, 3))),
    "matmul_31": (torch.matmul, (r(2, 3, 5), r(5))),
    "matmul_32": (torch.matmul, (r(2, 3, 5), r(5, 4))),
    "matmul_23": (torch.matmul, (r(3, 5), r(2, 5, 4))),
    "matmul_43": (torch.matmul, (r(2, 1, 3, 5), r(4, 5, 2))),
    "matmul_44": (torch.matmul, (r(2, 3, 3, 5), r(2, 3, 5, 2))),
    "mm": (torch.mm, (r(3, 5), r(5, 2))),
    "bmm": (torch.bmm, (r(2, 3, 5), r(2, 5, 2))),
    "mv": (torch.mv, (r(3, 5), r(5))),
    "dot": (torch.dot, (r(5), r(5))),
    "vdot": (torch.vdot, (r(5), r(5))),
    "outer": (torch.outer, (r(3), r(4))),
    "inner": (torch.inner, (r(2, 3), r(4, 3))),
    "addmm": (lambda c, a, d: torch.addmm(c, a, d, beta=0.5, alpha=2.0), (r(4), r(3, 5), r(5, 4))),
    "addmv": (torch.addmv, (r(3), r(3, 5), r(5))),
    "addr": (torch.addr, (r(3, 4), r(3), r(4))),
    "baddbmm": (lambda c, a, d: torch.baddbmm(c, a, d, beta=2, alpha=0.5), (r(1, 3, 2), r(2, 3, 5), r(2, 5, 2))),
    "addbmm": (torch.addbmm, (r(3, 2), r(2, 3, 5), r(2, 5, 2))),
    "linear": (F.linear, (r(2, 3, 5), r(4, 5), r(4))),
    "linear_1d": (F.linear, (r(5), r(4, 5))),
    "bilinear": (F.bilinear, (r(3, 4), r(3, 5), r(2, 4, 5), r(2))),
    "tensordot": (lambda a, c: torch.tensordot(a, c, dims=([1, 2], [0, 1])), (r(2, 3, 4), r(3, 4, 5))),
    "kron": (torch.kron, (r(2, 3), r(3, 2))),
    "cross": (lambda a, c: torch.cross(a, c, dim=1), (r(4, 3), r(4, 3))),
    "chain_matmul": (lambda a, c, d: torch.linalg.multi_dot([a, c, d]), (r(2, 3), r(3, 4), r(4, 2))),
    "matrix_power": (lambda a: torch.linalg.matrix_power(a, 3), (r(3, 3),)),
    "einsum": (
        lambda a, c: (torch.einsum("bij,bjk->bik", a, c), torch.einsum("bij,bjk->ik", a, c)),
        (r(2, 3, 4), r(2, 4, 5)),
    ),
    "einsum_diagonal": (lambda a: (torch.einsum("ii->i", a), torch.einsum("ij->j", a)), (r(4, 4),)),
    "cdist": (torch.cdist, (r(2, 3, 4), r(2, 5, 4))),
    "cdist_p1": (lambda a, c: torch.cdist(a, c, p=1.0), (r(3, 4), r(5, 4))),
    "cosine_similarity": (F.cosine_similarity, (r(3, 4), r(3, 4))),
    "pairwise_distance": (F.pairwise_distance, (r(3, 4), r(3, 4))),
    "sdpa": (F.scaled_dot_product_attention, (r(1, 2, 5, 8), r(1, 2, 7, 8), r(1, 2, 7, 8))),
    "sdpa_causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (r(1, 2, 6, 8),)),
    "sdpa_mask": (lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (r(1, 2, 6, 8), r(6, 6))),
}

GROUPS["convolutions"] = {
    "conv1d": (lambda x, w: F.conv1d(x, w, stride=2, padding=1), (r(2, 3, 9), r(4, 3, 3))),
    "conv1d_same": (lambda x, w: F.conv1d(x, w, padding="same", dilation=2), (r(2, 3, 9), r(4, 3, 3))),
    "conv2d": (F.conv2d, (r(2, 3, 8, 9), r(4, 3, 3, 3), r(4))),
    "conv2d_stride_padding": (
        lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 2)),
        (r(1, 3, 8, 9), r(4, 3, 3, 3)),
    ),
    "conv2d_dilated": (lambda x, w: F.conv2d(x, w, padding=2, dilation=2), (r(1, 3, 8, 9), r(4, 3, 3, 3))),
    "conv2d_grouped": (lambda x, w, c: F.conv2d(x, w, c, groups=2), (r(1, 4, 8, 9), r(6, 2, 3, 3), r(6))),
    "conv2d_depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=4), (r(1, 4, 8, 9), r(4, 1, 3, 3))),
    "conv2d_depthwise_x2": (lambda x, w: F.conv2d(x, w, groups=4, stride=2), (r(1, 4, 8, 9), r(8, 1, 3, 3))),
    "conv2d_unbatched": (F.conv2d, (r(3, 8, 9), r(4, 3, 3, 3))),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), (r(1, 2, 4, 5, 6), r(3, 2, 3, 3, 3))),
    "conv_transpose1d": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, output_padding=1),
        (r(2, 3, 5), r(3, 4, 3)),
    ),
    "conv_transpose2d": (
        lambda x, w, c: F.conv_transpose2d(x, w, c, stride=2, padding=1),
        (r(2, 3, 5, 4), r(3, 4, 3, 3), r(4)),
    ),
    "conv_transpose2d_grouped": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2),
        (r(1, 4, 5, 4), r(4, 3, 3, 3)),
    ),
    "conv_transpose2d_dilated": (lambda x, w: F.conv_transpose2d(x, w, dilation=2), (r(1, 3, 5, 4), r(3, 2, 3, 3))),
    "conv_transpose3d": (lambda x, w: F.conv_transpose3d(x, w, stride=2), (r(1, 2, 3, 3, 3), r(2, 2, 2, 2, 2))),
    "conv_padding_mode": (module(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")), (r(1, 2, 5, 6),)),
    "unfold_im2col": (lambda x: F.unfold(x, 3, padding=1, stride=2), (r(1, 2, 6, 7),)),
    "fold_col2im": (lambda x: F.fold(x, (4, 5), 2), (r(1, 12, 12),)),
}

GROUPS["pooling"] = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2), (r(2, 3, 9),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (r(2, 3, 9, 8),)),
    "max_pool2d_ceil": (lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), (r(2, 3, 9, 7),)),
    "max_pool2d_dilated": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), (r(1, 3, 9, 8),)),
    "max_pool2d_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), (r(1, 3, 8, 8),)),
    "max_pool2d_unbatched": (lambda x: F.max_pool2d(x, 2), (r(3, 8, 8),)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (r(1, 2, 4, 6, 4),)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (r(2, 3, 9),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (r(2, 3, 9, 8),)),
    "avg_pool2d_excluding_pad": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (r(1, 3, 9, 8),)),
    "avg_pool2d_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (r(1, 3, 8, 8),)),
    "avg_pool2d_divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (r(1, 3, 8, 8),)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (r(1, 2, 4, 6, 4),)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 4), (r(2, 3, 9),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (r(1, 2, 8, 7),)),
    "adaptive_avg_pool2d_1": (lambda x: F.adaptive_avg_pool2d(x, 1), (r(1, 2, 8, 7),)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), (r(1, 2, 4, 6, 5),)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 3), (r(2, 3, 9),)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (r(1, 2, 8, 9),)),
    "adaptive_max_pool2d_uneven": (lambda x: F.adaptive_max_pool2d(x, (3, 5)), (r(1, 2, 8, 7),)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2.0, 2), (r(1, 2, 6, 6),)),
    "max_unpool2d": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), kernel_size=2),
        (r(1, 2, 4, 6),),
    ),
}

GROUPS["padding_resizing"] = {
    "pad_constant": (lambda x: F.pad(x, (1, 2, 0, 3), value=1.5), (r(2, 3, 4),)),
    "pad_negative": (lambda x: F.pad(x, (-1, 2)), (r(3, 4),)),
    "pad_int": (lambda x: F.pad(x, (1, 1), value=7), (n(3, 4),)),
    "pad_bool": (lambda x: F.pad(x, (1, 1), value=True), (b(3, 4),)),
    "pad_reflect1d": (lambda x: F.pad(x, (2, 1), mode="reflect"), (r(2, 3, 5),)),
    "pad_reflect2d": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), (r(1, 2, 5, 4),)),
    "pad_reflect3d": (lambda x: F.pad(x, (1, 1, 1, 0, 0, 1), mode="reflect"), (r(1, 2, 3, 4, 4),)),
    "pad_replicate1d": (lambda x: F.pad(x, (2, 1), mode="replicate"), (r(2, 3, 5),)),
    "pad_replicate2d": (lambda x: F.pad(x, (2, 1, 1, 2), mode="replicate"), (r(1, 2, 5, 4),)),
    "pad_replicate3d": (lambda x: F.pad(x, (1, 1, 1, 0, 0, 1), mode="replicate"), (r(1, 2, 3, 4, 4),)),
    "pad_circular": (lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"), (r(1, 2, 5, 4),)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0), (r(1, 2, 3, 4),)),
    "nearest_size": (lambda x: F.interpolate(x, size=(5, 7)), (r(1, 2, 3, 4),)),
    "nearest_exact": (lambda x: F.interpolate(x, size=(5, 7), mode="nearest-exact"), (r(1, 2, 3, 4),)),
    "nearest1d": (lambda x: F.interpolate(x, size=7), (r(1, 2, 4),)),
    "nearest3d": (lambda x: F.interpolate(x, scale_factor=2.0), (r(1, 2, 2, 3, 2),)),
    "linear1d": (lambda x: F.interpolate(x, size=7, mode="linear"), (r(1, 2, 4),)),
    "bilinear": (lambda x: F.interpolate(x, size=(5, 7), mode="bilinear"), (r(1, 2, 3, 4),)),
    "bilinear_corners": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True),
        (r(1, 2, 3, 4),),
    ),
    "bilinear_down": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), (r(1, 2, 6, 8),)),
    "bilinear_antialias": (
        lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
        (r(1, 2, 6, 8),),
    ),
    "bicubic": (lambda x: F.interpolate(x, size=(5, 7), mode="bicubic"), (r(1, 2, 3, 4),)),
    "trilinear": (lambda x: F.interpolate(x, size=(3, 5, 4), mode="trilinear"), (r(1, 2, 2, 3, 2),)),
    "area": (lambda x: F.interpolate(x, size=(2, 3), mode="area"), (r(1, 2, 6, 7),)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (r(1, 8, 3, 4),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (r(1, 2, 4, 6),)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (r(1, 4, 2, 3),)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), (r(1, 2, 4, 5), r(1, 3, 3, 2))),
    "grid_sample_border": (
        lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
        (r(1, 2, 4, 5), r(1, 3, 3, 2)),
    ),
    "grid_sample_nearest": (
        lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False),
        (r(1, 2, 4, 5), r(1, 3, 3, 2)),
    ),
    "affine_grid": (lambda t: F.affine_grid(t, [1, 1, 3, 4], align_corners=False), (r(1, 2, 3),)),
}

GROUPS["indexing"] = {
    "gather": (lambda x, i: x.gather(1, i), (r(3, 5), n(3, 4, low=0, high=5))),
    "take_along_dim": (lambda x: torch.take_along_dim(x, x.argsort(1), 1), (r(3, 5),)),
    "take": (lambda x, i: torch.take(x, i), (r(3, 5), n(4, low=-15, high=15))),
    "index_select": (lambda x, i: x.index_select(1, i), (r(3, 5), n(4, low=0, high=5))),
    "index_tensor": (lambda x, i: x[i], (r(5, 3), n(4, low=-5, high=5))),
    "index_two_tensors": (lambda x, i, j: x[i, j], (r(5, 4), n(4, low=0, high=5), n(4, low=-4, high=4))),
    "index_broadcast": (lambda x, i, j: x[i[:, None], j], (r(5, 4), n(3, low=0, high=5), n(2, low=0, high=4))),
    "index_with_none": (lambda x, i: x[:, i], (r(2, 5, 3), n(4, low=0, high=5))),
    "index_apart": (lambda x, i, j: x[i, :, j], (r(5, 2, 4), n(3, low=0, high=5), n(3, low=0, high=4))),
    "index_mixed": (lambda x, i: x[None, 1:, i, ..., -1], (r(4, 5, 3), n(4, low=0, high=5))),
    "slices": (lambda x: (x[1:3], x[:, ::2], x[-2:, 1], x[..., None], x[:, :-1]), (r(4, 5),)),
    "slice_out_of_range": (lambda x: (x[2:100], x[-100:2], x[5:2]), (r(4, 5),)),
    "index_put": (lambda x, i, v: x.index_put((i,), v), (r(5, 3), torch.tensor([0, 3, -1]), r(3, 3))),
    "index_put_accumulate": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        (r(5), torch.tensor([0, 3, 3, -1, 0]), r(5)),
    ),
    "index_put_two": (
        lambda x, i, j, v: x.index_put((i, j), v),
        (r(5, 4), torch.tensor([0, 3, 4]), torch.tensor([1, -1, 2]), r(3)),
    ),
    "index_put_second_axis": (lambda x, i, v: x.index_put((None, i), v), (r(2, 5), torch.tensor([0, 3]), r(2, 2))),
    "index_put_scalar": (lambda x, i: x.index_put((i,), torch.tensor(2.0)), (r(5, 3), torch.tensor([0, 3]))),
    "index_put_mask": (lambda x: x.index_put((x > 0,), torch.tensor(0.0)), (r(4, 3),)),
    "index_add": (lambda x, i, v: x.index_add(0, i, v, alpha=2), (r(5, 3), torch.tensor([0, 3, 3]), r(3, 3))),
    "index_copy": (lambda x, i, v: x.index_copy(1, i, v), (r(3, 5), torch.tensor([4, 0]), r(3, 2))),
    "index_fill": (lambda x, i: x.index_fill(1, i, 9.0), (r(3, 5), torch.tensor([4, 0]))),
    "masked_fill": (lambda x, m: (x.masked_fill(m, 2.0), x.masked_fill(m, -float("inf"))), (r(3, 4), b(3, 4))),
    "masked_fill_tensor": (lambda x, m, v: x.masked_fill(m, v), (n(3, 4), b(4), n())),
    "masked_scatter": (lambda x, m, v: x.masked_scatter(m, v), (r(3, 4), b(3, 4), r(12))),
    "scatter": (
        lambda x, i, v: x.scatter(1, i, v),
        (r(3, 5), torch.tensor([[0, 3], [4, 1], [2, 0]]), r(3, 2)),
    ),
    "scatter_value": (lambda x, i: x.scatter(1, i, 7.0), (r(3, 5), torch.tensor([[0], [4], [2]]))),
    "scatter_add": (lambda x, i, v: x.scatter_add(0, i, v), (r(3, 5), n(4, 5, low=0, high=3), r(4, 5))),
    "scatter_reduce_sum": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "sum"),
        (r(3, 5), n(4, 5, low=0, high=3), r(4, 5)),
    ),
    "scatter_reduce_amax": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amax", include_self=False),
        (r(3, 5), n(4, 5, low=0, high=3), r(4, 5)),
    ),
    "scatter_reduce_mean": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "mean"),
        (r(3, 5), n(4, 5, low=0, high=3), r(4, 5)),
    ),
    "scatter_reduce_prod": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "prod"),
        (r(3, 5), n(4, 5, low=0, high=3), r(4, 5)),
    ),
    "select_scatter": (lambda x, v: x.select_scatter(v, 1, 2), (r(3, 5), r(3))),
    "slice_scatter": (lambda x, v: x.slice_scatter(v, 1, 1, 5, 2), (r(3, 6), r(3, 2))),
    "diagonal_scatter": (lambda x, v: x.diagonal_scatter(v, 1), (r(3, 5), r(3))),
    "embedding": (F.embedding, (n(2, 3, low=0, high=7), r(7, 4))),
    "embedding_i32": (F.embedding, (n(2, 3, low=0, high=7, dtype=torch.int32), r(7, 4))),
    "embedding_bag": (
        lambda i, w: (F.embedding_bag(i, w, mode="mean"), F.embedding_bag(i, w, mode="sum")),
        (n(2, 3, low=0, high=7), r(7, 4)),
    ),
    "embedding_bag_offsets": (
        lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"),
        (n(6, low=0, high=7), r(7, 4), torch.tensor([0, 2])),
    ),
    "one_hot": (lambda i: F.one_hot(i, 6), (n(2, 3, low=0, high=6),)),
}

GROUPS["shapes"] = {
    "view": (lambda x: (x.view(6, 4), x.reshape(-1), x.view(2, -1, 2), x.flatten(1), x.ravel()), (r(2, 3, 4),)),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), (r(2, 6),)),
    "permute": (lambda x: (x.permute(2, 0, 1), x.transpose(0, 2), x.mT, x.swapaxes(0, 1)), (r(2, 3, 4),)),
    "movedim": (lambda x: (x.movedim(0, 2), torch.moveaxis(x, (0, 1), (2, 0))), (r(2, 3, 4),)),
    "squeeze": (lambda x: (x.squeeze(), x.squeeze(0), x.unsqueeze(-1), x.squeeze((0, 2))), (r(1, 3, 1),)),
    "expand": (lambda x: (x.expand(2, 3, 4), x.expand(-1, 5), x.broadcast_to(2, 3, 1)), (r(3, 1),)),
    "cat": (lambda a, c: (torch.cat([a, c]), torch.cat([a, a], 1)), (r(2, 3), r(4, 3))),
    "cat_promotes": (lambda a, c: torch.cat([a, c]), (r(2, 3), n(4, 3))),
    "stack": (lambda a, c: (torch.stack([a, c]), torch.stack([a, c], -1)), (r(2, 3), r(2, 3))),
    "hstack": (lambda a: (torch.hstack([a, a]), torch.vstack([a, a]), torch.dstack([a, a])), (r(2, 3),)),
    "split": (lambda x: (x.split(2), x.split([1, 4], 0), x.chunk(3), x.tensor_split(2)), (r(5, 3),)),
    "unbind": (lambda x: x.unbind(1), (r(2, 3),)),
    "unfold": (lambda x: x.unfold(1, 3, 2), (r(2, 7),)),
    "roll": (lambda x: (x.roll(1), x.roll((1, -2), (0, 1)), x.roll(7, 1)), (r(3, 4),)),
    "flip": (lambda x: (x.flip(0), x.flip((0, 1)), x.fliplr(), x.flipud()), (r(3, 4),)),
    "rot90": (lambda x: torch.rot90(x, 1, (0, 1)), (r(3, 4),)),
    "tril_triu": (lambda x: (x.tril(), x.triu(1), x.tril(-1)), (r(2, 4, 5),)),
    "tril_indices": (lambda x: x[torch.tril_indices(3, 3).unbind()], (r(3, 3),)),
    "diag": (lambda x, y: (torch.diag(x), torch.diag(y, 1), torch.diagonal(x, 1)), (r(3, 4), r(3))),
    "diag_embed": (lambda x: (torch.diag_embed(x), torch.diagflat(x, -1)), (r(2, 3),)),
    "meshgrid": (lambda a, c: torch.meshgrid(a, c, indexing="ij"), (r(3), r(4))),
    "cartesian_prod": (torch.cartesian_prod, (r(3), r(2))),
    "repeat": (lambda x: (x.repeat(2, 1), x.repeat(2, 1, 3), x.tile(2)), (r(2, 3),)),
    "repeat_interleave": (lambda x: (x.repeat_interleave(2, 0), x.repeat_interleave(3)), (r(2, 3),)),
    "narrow": (lambda x: (x.narrow(1, 1, 2), x.select(0, -1)), (r(3, 4),)),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 2), 1), (r(3, 4),)),
    "block_diag": (torch.block_diag, (r(2, 3), r(1, 2))),
    "vander": (lambda x: torch.vander(x, 4), (r(3),)),
    "atleast": (lambda x: (torch.atleast_1d(x), torch.atleast_3d(x)), (r(),)),
    "view_as_dtype": (lambda x: x.view(torch.int32), (r(3, 4),)),
    "empty": (lambda x: (x + 1, x.sum(0), x.sum(), x @ x.T, x.T @ x, x.mean(1), x.softmax(0)), (r(0, 4),)),
    "empty_cat": (lambda x, y: (torch.cat([x, y]), y[:0].sum(), y[:, :0].amax(0)), (r(0, 4), r(2, 4))),
}

GROUPS["makers_types"] = {
    "arange": (lambda x: (x + torch.arange(4), torch.arange(1, 9, 2) + x, torch.arange(0, 1, 0.25) + x), (r(4),)),
    "linspace": (lambda x: (torch.linspace(-1, 1, 5) + x, torch.logspace(0, 1, 5) + x), (r(5),)),
    "full_like": (lambda x: (torch.full_like(x, 3), x.new_zeros(2), torch.ones_like(x), torch.zeros(2) + x), (r(2),)),
    "eye": (lambda x: x * torch.eye(3) + torch.eye(3, 4)[:, :3], (r(3, 3),)),
    "casts": (
        lambda x: (x.int(), x.long(), x.double(), x.half(), x.bfloat16(), x.bool(), x.to(torch.int8)),
        (r(9) * 5,),
    ),
    "casts_int": (lambda x: (x.float(), x.bool(), x.to(torch.uint8), x.short()), (n(9),)),
    "casts_bool": (lambda x: (x.float(), x.long(), x.half(), x + x, x * 2), (b(9),)),
    "promotion": (
        lambda i, f, d: (i + f, f + d, i * 2.5, i / 2, d * 2, f + True),
        (n(3), r(3), r(3, dtype=torch.float64)),
    ),
    "promotion_half": (lambda h, f, i: (h + f, h * i, h + 1.5), (r(3).half(), r(3), n(3))),
    "promotion_bool": (lambda m, i, f: (m + i, m * f, m + 1, m / 2, ~m), (b(3), n(3), r(3))),
    "promotion_0d": (lambda f, d: (f * d, f + d.sum()), (r(3), r(dtype=torch.float64))),
    "promotion_i32_i64": (lambda a, c: (a + c, a * 3, a / c), (n(3, dtype=torch.int32), n(3, low=1))),
    "f64": (
        lambda x: (x.exp(), x.softmax(0), x @ x.T, x.sum(), x.erf(), x.tanh(), x**3),
        (r(3, 3, dtype=torch.float64),),
    ),
    "f16": (lambda x: (x.exp(), x.softmax(0), x @ x.T, x.sum(), x.tanh(), x * 2, F.gelu(x)), (r(3, 3).half(),)),
    "bf16": (lambda x: (x.exp(), x.softmax(0), x @ x.T, x.sum(), x.tanh(), x * 2, F.gelu(x)), (r(3, 3).bfloat16(),)),
    "in_place": (lambda x: (x.clone().add_(1).mul_(2).relu_(), x.clone().fill_(3)), (r(3, 4),)),
    "in_place_view": (lambda x: _store(x.clone()), (r(3, 4),)),
    "copy_promotes": (lambda x, i: x.clone().copy_(i), (r(3), n(3))),
    "item_free": (lambda x: x.new_tensor([1.0, 2.0]) + x, (r(2),)),
    "bernoulli_free": (lambda x: F.dropout(x, 0.5, training=False), (r(3, 4),)),
    "frexp": (torch.frexp, (r(5),)),
}


def _store(x: Tensor) -> Tensor:
    """Writes through views."""
    x[0] = 7.0
    x[:, 1] += 1
    x[1:, ::2].mul_(2)
    x.T[3].zero_()
    return x


GROUPS["norms_losses"] = {
    "batch_norm": (module(nn.BatchNorm2d(3)), (r(2, 3, 4, 5),)),
    "batch_norm_training": (lambda x: F.batch_norm(x, None, None, training=True), (r(4, 3, 5),)),
    "instance_norm": (lambda x: F.instance_norm(x), (r(2, 3, 4, 5),)),
    "group_norm": (lambda x, w, c: F.group_norm(x, 2, w, c), (r(2, 4, 3, 3), r(4), r(4))),
    "layer_norm": (lambda x, w, c: F.layer_norm(x, (5,), w, c), (r(2, 3, 5), r(5), r(5))),
    "layer_norm_2": (lambda x: F.layer_norm(x, (3, 5)), (r(2, 3, 5),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w), (r(2, 3, 5), r(5))),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), (r(1, 4, 3, 3),)),
    "normalize": (lambda x: F.normalize(x, dim=1), (r(3, 5),)),
    "weight_norm": (module(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))), (r(2, 4),)),
    "mse": (lambda a, c: (F.mse_loss(a, c), F.mse_loss(a, c, reduction="none")), (r(3, 5), r(3, 5))),
    "l1": (F.l1_loss, (r(3, 5), r(3, 5))),
    "smooth_l1": (lambda a, c: F.smooth_l1_loss(a, c, beta=0.5), (r(3, 5), r(3, 5))),
    "huber": (lambda a, c: F.huber_loss(a, c, delta=0.7), (r(3, 5), r(3, 5))),
    "cross_entropy": (F.cross_entropy, (r(4, 5), n(4, low=0, high=5))),
    "cross_entropy_ignore": (
        lambda x, y: F.cross_entropy(x, y, ignore_index=2),
        (r(4, 5), torch.tensor([0, 2, 4, 2])),
    ),
    "cross_entropy_weight": (
        lambda x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1),
        (r(4, 5), n(4, low=0, high=5), u(5)),
    ),
    "cross_entropy_2d": (F.cross_entropy, (r(2, 5, 3), n(2, 3, low=0, high=5))),
    "cross_entropy_soft": (F.cross_entropy, (r(4, 5), u(4, 5))),
    "nll": (lambda x, y: F.nll_loss(x, y, reduction="sum"), (r(4, 5), n(4, low=0, high=5))),
    "bce": (F.binary_cross_entropy, (u(3, 5), u(3, 5))),
    "bce_logits": (F.binary_cross_entropy_with_logits, (r(3, 5), u(3, 5))),
    "kl_div": (lambda a, c: F.kl_div(a, c, reduction="batchmean"), (r(3, 5), u(3, 5))),
    "hinge_embedding": (F.hinge_embedding_loss, (r(3, 5), n(3, 5, low=0, high=2) * 2 - 1)),
    "cosine_embedding": (F.cosine_embedding_loss, (r(3, 5), r(3, 5), torch.tensor([1, -1, 1]))),
    "margin_ranking": (F.margin_ranking_loss, (r(5), r(5), torch.tensor([1, -1, 1, 1, -1]))),
    "triplet_margin": (F.triplet_margin_loss, (r(3, 5), r(3, 5), r(3, 5))),
    "multi_margin": (F.multi_margin_loss, (r(3, 5), n(3, low=0, high=5))),
    "poisson_nll": (F.poisson_nll_loss, (r(3, 5), u(3, 5))),
    "gaussian_nll": (F.gaussian_nll_loss, (r(3, 5), r(3, 5), u(3, 5))),
}

GROUPS["recurrent"] = {
    "rnn_cell": (module(nn.RNNCell(3, 4)), (r(2, 3), r(2, 4))),
    "gru_cell": (module(nn.GRUCell(3, 4)), (r(2, 3), r(2, 4))),
    "lstm_cell": (module(nn.LSTMCell(3, 4)), (r(2, 3), (r(2, 4), r(2, 4)))),
    "rnn": (module(nn.RNN(3, 4)), (r(3, 2, 3),)),
    "gru": (module(nn.GRU(3, 4, batch_first=True)), (r(2, 3, 3),)),
    "lstm": (module(nn.LSTM(3, 4, num_layers=2)), (r(3, 2, 3),)),
    "lstm_both_ways": (module(nn.LSTM(3, 4, bidirectional=True)), (r(3, 2, 3),)),
    "attention": (module(nn.MultiheadAttention(8, 2, batch_first=True)), (r(1, 5, 8), r(1, 5, 8), r(1, 5, 8))),
    "encoder_layer": (module(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), (r(1, 5, 8),)),
}
