"""Small programs, one operation or idiom each, in groups: element-wise operations, reductions, products.

A program is a function and its arguments. A group is compiled as one.
Names follow the operation; the variant stands behind it.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable

import torch
import torch.nn.functional as F
from op_inputs import HALVES, SPECIAL, Group, b, ints, n, r, u

D = torch.tensor([-30.5, -3.2, -1.0, -0.4, 1e-9, 0.3, 0.8, 2.5, 7.0, 33.3], dtype=torch.float64)
POWERS = torch.tensor(
    [
        [0.0, 0.0, -0.0, -0.0, 2.0, -2.0, -2.0, -2.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 0.5],
        [0.0, 1.0, 3.0, -3.0, 3.0, 3.0, 2.0, 0.5, torch.nan, torch.inf, 0.0, 3.0, 0.0, -torch.inf],
    ],
    dtype=torch.float64,
)
"""Bases, and exponents."""
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
    "pow": (lambda x, y: (x**y, 0.0**y, y**-1, y**-2), (POWERS[0], POWERS[1])),
    "logaddexp2": (torch.logaddexp2, (r(3, 4), r(4))),
    "functions of a number and a tensor": (
        lambda x: (
            torch.xlogy(0.3, x),
            torch.xlogy(x, 0.3),
            torch.special.xlog1py(0.3, x),
            torch.special.xlog1py(x, 0.3),
            torch.special.zeta(2.5, x + 1),
            torch.special.zeta(x + 1.5, 2.0),
        ),
        (torch.rand(3, 5),),
    ),
    "xlogy": (torch.xlogy, (torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 3.0]))),
    "sqrt_of_int": (torch.sqrt, (n(4, low=0),)),
    "exp_of_bool": (torch.exp, (b(4),)),
    "square_of_bool": (torch.square, (b(4),)),
    "angle": (torch.angle, (D,)),
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
    "dist_half": (lambda a, c: torch.dist(a, c, 4), ((r(9) * 99).half(), r(9).half())),
    "float_power": (lambda a: torch.float_power(a, 2), (r(3),)),
    "true_divide_0d": (lambda a, c: a / c, (r(), n())),
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
    "logspace": (
        lambda x: (
            [
                torch.logspace(0, end, steps, base, dtype=torch.int64) + x
                for end, base in ((4, 2.0), (6, 5.0))
                for steps in (0, 1, 2, 5)
            ]
            + [torch.logspace(x[0], 6, 7, dtype=torch.int64)]
        ),
        (torch.zeros(1, dtype=torch.int64),),
    ),
    "pow_int": (lambda a: (a**2, a**3, a**0, a**1), (n(8),)),
    "pow_int_tensor": (torch.pow, (n(8), n(8, low=0, high=5))),
    "pow_int_base": (lambda a: 3**a, (n(6, low=0, high=8),)),
    "gcd": (lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), (n(5, 7, low=-50, high=50), n(7, low=-9, high=9))),
    "gcd_number": (lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), (torch.tensor(-12), torch.tensor(18))),
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

GROUPS["special_values"] = {
    "activations": (
        lambda x: (F.relu(x), F.relu6(x), F.hardtanh(x), F.leaky_relu(x), F.silu(x), F.elu(x), F.hardswish(x)),
        (SPECIAL,),
    ),
    "functions": (lambda x: (x.exp(), x.log(), x.sqrt(), x.tanh(), x.sigmoid(), x.abs(), x.floor()), (SPECIAL,)),
    "signs": (lambda x: (x.sign(), -x, torch.copysign(x, x.flip(0)), x.signbit()), (SPECIAL[:6],)),
    "orders": (lambda x: (x.sort(), x.sort(descending=True), x.argsort()), (SPECIAL,)),
    "places": (lambda x: (x.argmax(), x.argmin(), x[:6].argmax(), x[:6].argmin()), (SPECIAL,)),
    "infinite_places": (
        lambda x: (x.argmax(), x.argmin()),
        (torch.tensor([1.0, float("inf"), float("nan"), -float("inf")]),),
    ),
    "middles": (lambda x: (x.median(), x.nanmedian(), x[:6].median(), x.kthvalue(2)[0]), (SPECIAL,)),
    "scans": (lambda x: (x.cummax(0), x.cummin(0), x[:5].logcumsumexp(0)), (SPECIAL,)),
    "clamps": (lambda x: (x.clamp(-1, 1), x.clamp(min=-x), x.clip(max=2)), (SPECIAL,)),
    "itself": (lambda x: (x == x, x != x, x <= x, torch.isclose(x, x)), (SPECIAL,)),
    "sums": (lambda x: (x.sum(), x[:6].sum(), x[:4].prod(), x.amax(), x.amin(), x.softmax(0)), (SPECIAL,)),
    "logcumsumexp_large": (lambda x: x.logcumsumexp(0), (r(7) * 300,)),
    "logsumexp_large": (lambda x: x.logsumexp(0), (r(7) * 300,)),
}

GROUPS["float64"] = {
    "sin_cos": (lambda x: (x.sin(), x.cos(), x.tan()), (D,)),
    "sin_cos_large": (lambda x: (x.sin(), x.cos()), (torch.tensor([1e5, -1e8, 3e12, 355.0], dtype=torch.float64),)),
    "inverse": (lambda x: (x.atan(), x.clamp(-1, 1).asin(), x.clamp(-1, 1).acos(), x.atan2(x.flip(0))), (D,)),
    "hyperbolic": (lambda x: (x.tanh(), x.sinh(), x.cosh()), (D,)),
    "logarithms": (lambda x: (x.abs().log2(), x.abs().log10(), x.abs().log1p()), (D,)),
    "error_function": (lambda x: (x.erf(), x.erfc(), (x / 40).erfinv(), F.gelu(x)), (D,)),
    "gamma": (lambda x: (x.lgamma(), x.digamma()), (D,)),
    "remainders": (lambda x: (x % 0.7, x % -0.7, torch.fmod(x, 0.7), torch.remainder(x, x.flip(0))), (D,)),
    "mish": (lambda x: (F.mish(x), F.softplus(x), torch.sinc(x)), (D,)),
    "pow": (lambda x, y: (x**y, 0.0**y, y**-1, y**-2), (POWERS[0], POWERS[1])),
    "logaddexp2": (torch.logaddexp2, (D, D.flip(0))),
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
    "vector_norm_half": (lambda x: (x.norm(), torch.linalg.vector_norm(x, 6)), ((r(9) * 99).half(),)),
    "matrix_norm": (lambda x: (torch.linalg.matrix_norm(x), torch.linalg.matrix_norm(x, 1)), (r(3, 4),)),
    "count_nonzero": (lambda x: (torch.count_nonzero(x), torch.count_nonzero(x, 0)), (n(3, 4, low=0, high=2),)),
    "nansum": (lambda x: (torch.nansum(x[4:]), torch.nanmean(x[6:])), (SPECIAL,)),
    "median": (lambda x: (x.median(), x.median(1)), (r(3, 5),)),
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
    "sort_stable": (lambda x: x.sort(dim=1, stable=True), (n(3, 9, low=0, high=3),)),
    "sort_int": (lambda x: x.sort(descending=True)[0], (n(3, 5),)),
    "argsort": (lambda x: (x.argsort(), x.argsort(0, descending=True)), (r(3, 5),)),
    "msort": (torch.msort, (r(4, 3),)),
    "topk": (lambda x: (x.topk(2), x.topk(2, 0, largest=False)), (r(3, 5),)),
    "sorts_of_one_shape": (lambda x: (x.argsort(0), x.sort(0, True), x.argsort(1), *x.topk(2, 0)), (r(3, 5),)),
    "topk_long": (lambda x: (x.topk(3), x.topk(2, 0, largest=False)), (r(35, 100),)),
    "topk_int": (lambda x: x.topk(3)[0], (n(3, 7),)),
    "kthvalue": (lambda x: x.kthvalue(2, 1), (r(3, 5),)),
    "trapezoid": (lambda y: torch.trapezoid(y, dx=0.5), (r(3, 5),)),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), (r(3, 5),)),
    "histc_free": (lambda x: F.one_hot(x, 5).sum(0), (n(9, low=0, high=5),)),
    "weighted bincount": (
        lambda x, w: (torch.bincount(x, w), torch.bincount(x, w.double(), minlength=9)),
        (torch.tensor([0, 1, 1, 5]), torch.randn(4)),
    ),
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
    "addbmm_int_fractions": (
        lambda c, a, d: torch.addbmm(c, a, d, beta=1.6, alpha=2.2),
        (n(3, 2), n(2, 3, 5), n(2, 5, 2)),
    ),
    "addbmm_int": (torch.addbmm, (n(3, 2), n(2, 3, 5), n(2, 5, 2))),
    "linear": (F.linear, (r(2, 3, 5), r(4, 5), r(4))),
    "linear_1d": (F.linear, (r(5), r(4, 5))),
    "bilinear": (F.bilinear, (r(3, 4), r(3, 5), r(2, 4, 5), r(2))),
    "bilinear_batches": (lambda x, y, w: F.bilinear(x, y, w), (r(2, 3, 4), r(2, 3, 5), r(6, 4, 5))),
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

GROUPS["halves"] = {
    "cumsum_bf16": (lambda x: x.cumsum(1), (r(3, 40, dtype=torch.bfloat16),)),
    "cumsum_into_f16": (lambda x: x.cumsum(0, dtype=torch.float16), (r(20, 3),)),
}

GROUPS["bessel"] = {
    **{
        name: (getattr(torch.special, name), (r(24) * 6,))
        for name in (
            "bessel_j0",
            "bessel_j1",
            "i0e",
            "i1",
            "i1e",
            "modified_bessel_i0",
            "spherical_bessel_j0",
            "airy_ai",
        )
    },
    **{
        name: (getattr(torch.special, name), (r(24).abs() * 6,))
        for name in ("bessel_y0", "bessel_y1", "modified_bessel_k0", "scaled_modified_bessel_k1")
    },
    "i0": (torch.i0, (r(24),)),
    "i0_int": (torch.i0, (n(6),)),
    "ndtri": (torch.special.ndtri, (u(24),)),
    "log_ndtr": (torch.special.log_ndtr, (r(24) * 3,)),
    "zeta": (torch.special.zeta, (r(24).abs() + 1.5, r(24).abs() + 0.1)),
    "polygamma": (lambda x: (torch.polygamma(1, x), torch.polygamma(3, x)), (r(24).abs() + 0.1,)),
}


def _of_constants(
    operation: Callable[[torch.Tensor, float], torch.Tensor], dtype: torch.dtype
) -> Callable[..., object]:
    """An operation on constants of one number and numbers, of all kinds that eager takes."""
    taken = []
    for constant, number in itertools.product((2, -3), (1, 2, 1.5, -2.0, True)):
        with contextlib.suppress(RuntimeError):
            operation(torch.full((2,), constant, dtype=dtype), number)
            taken.append((constant, number))
    return lambda x: [operation(torch.full_like(x, constant), number) for constant, number in taken]


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge")
GROUPS["constants_and_numbers"] = {
    f"{name}_{dtype}": (_of_constants(getattr(operator, name), dtype), (torch.ones(2, dtype=dtype),))
    for name, dtype in itertools.product(
        _BINARY, (torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.bool)
    )
}


def _with_true(operation: Callable[[torch.Tensor, bool], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: operation(x, True)


GROUPS["numbers_that_are_booleans"] = {
    f"{name}_{x.dtype}": (_with_true(getattr(operator, name)), (x,))
    for name in ("add", "mul", "truediv", "floordiv", "pow", "eq", "gt")
    for x in (torch.arange(4), torch.arange(4.0), torch.arange(4) > 1)
    if name not in ("pow", "floordiv") or x.dtype is not torch.bool  # which eager refuses
}
