"""Functions of JAX, each with its arguments: what numpy's and lax's functions become in StableHLO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from limits import SWEEP

_RNG = np.random.default_rng(0)


def _f(*shape: int) -> Any:
    return jnp.asarray(_RNG.standard_normal(shape, np.float32))


def _i(limit: int, *shape: int) -> Any:
    return jnp.asarray(_RNG.integers(0, limit, shape, np.int32))


X, Y, M, N, V = _f(3, 4, 5), _f(3, 4, 5), _f(4, 5), _f(5, 6), _f(7)
IMAGE, KEY = _f(2, 9, 9, 3), jax.random.PRNGKey(3)
_NHWC = ("NHWC", "HWIO", "NHWC")


def _conv(x: Any, k: Any, strides: Any = (1, 1), padding: Any = "SAME", **more: Any) -> Any:
    return lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=_NHWC, **more)


def _pooled(x: Any, size: int, step: int, padding: str) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, step, step, 1), padding)


def _layernorm(x: Any, gain: Any, offset: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * gain + offset


Programs = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]
ELEMENTS: Programs = {
    "rounding": (lambda x: (jnp.round(x), jnp.trunc(x), jnp.sign(x), lax.round(x)), (X * 3,)),
    "exponentials": (lambda x: (jnp.expm1(x), jnp.log1p(jnp.abs(x)), jax.nn.softplus(x), jnp.cbrt(x)), (X,)),
    "activations": (
        lambda x: (jax.nn.gelu(x), jax.nn.gelu(x, approximate=False), jax.nn.silu(x), jax.nn.selu(x)),
        (X,),
    ),
    "two": (lambda x, y: (jnp.hypot(x, y), jnp.arctan2(x, y), jnp.logaddexp(x, y), jnp.fmod(x, y), x // y), (X, Y)),
    "integers": (lambda a, b: (a // b, a % b, a & b, a ^ b, a << b, a >> b, jnp.gcd(a, b)), (_i(40, 9) - 20, _i(5, 9))),
    "division by zero": (lambda a: (lax.div(a, a - a), lax.rem(a, a - a)), (_i(9, 4) - 4,)),
    "unsigned": (
        lambda u: (u * jnp.uint32(7) + u // jnp.uint32(3)) >> jnp.uint32(2),
        (_i(2**31 - 1, 5).astype("uint32"),),
    ),
    "types": (lambda x: (x.astype(jnp.bfloat16) * 2, x.astype(jnp.int8), lax.bitcast_convert_type(x, jnp.int32)), (X,)),
    "special": (lambda x: (lax.erf(x), lax.erf_inv(jnp.tanh(x)), lax.lgamma(jnp.abs(x) + 1), jnp.sinc(x)), (X,)),
    "complex": (lambda x, y: (jnp.abs(x + 1j * y), jnp.angle(x + 1j * y), ((x + 1j * y) * (y - 2j)).real), (X, Y)),
    "choices": (lambda x, y: (jnp.where(x > 0, x, y), jnp.clip(x, -0.5, 0.5), jnp.nan_to_num(x / 0)), (X, Y)),
}
SHAPES: Programs = {
    "moves": (lambda x: (jnp.roll(x, 2, 1), jnp.tile(x, (2, 1, 3)), jnp.rot90(x[0]), jnp.repeat(x, 3, 1)), (X,)),
    "padding": (lambda x: (jnp.pad(x, 1, mode="reflect"), lax.pad(x, 1.0, ((1, -1, 1), (0, 2, 2), (-1, 0, 0)))), (X,)),
    "triangles": (lambda m: (jnp.tril(m), jnp.triu(m, 1), jnp.diag(m), jnp.diag(m[0]), m @ jnp.eye(5)), (M,)),
    "indices": (
        lambda x, i: (x[i], x[:, i % 4, 1:3], x[i, :, i], x[1:, ::2, None, -1], jnp.take(x, i, 2)),
        (X, _i(3, 6)),
    ),
    "along": (lambda x, i: (jnp.take_along_axis(x, i, 1), x.at[i[0, 0]].get(mode="fill")), (X, _i(4, 3, 2, 5))),
    "written": (
        lambda x, i: (x.at[i].set(1.0), x.at[:, i].add(2.0), x.at[i, 1].multiply(2.0), x.at[i].max(0.5)),
        (X, _i(3, 3)),
    ),
    "beyond": (lambda x, i: (x.at[i].add(1.0, mode="drop"), x.at[i].get(mode="fill", fill_value=9.0)), (X, _i(6, 4))),
    "places": (
        lambda x, k: (lax.dynamic_slice(x, (k, k, 0), (2, 2, 5)), lax.dynamic_update_slice(x, x[:2, :2], (k, k, 0))),
        (X, 2),
    ),
    "segments": (lambda x, i: (jax.ops.segment_sum(x, i, 4), jax.ops.segment_max(x, i, 4)), (_f(9, 2), _i(4, 9))),
    "resized": (
        lambda x: (jax.image.resize(x, (2, 18, 18, 3), "bilinear"), jax.image.resize(x, (2, 5, 5, 3), "nearest")),
        (IMAGE,),
    ),
}
SUMS: Programs = {
    "reductions": (lambda x: (x.sum(1), x.mean(), x.max(0), x.min((0, 2)), x.prod(1), x.var(1), (x > 0).any(1)), (X,)),
    "extremes": (
        lambda x: (x.argmax(1), x.argmin(2), jnp.argmax(x.at[0, 1, 2].set(jnp.nan), 1), jnp.median(x, 1)),
        (X,),
    ),
    "running": (
        lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 1), lax.cummax(x, 1), lax.cumsum(x, 1, reverse=True)),
        (X,),
    ),
    "products": (
        lambda x, y, n: (
            x @ n,
            jnp.einsum("bij,bkj->bik", x, y),
            jnp.tensordot(x, y, ((1, 2), (1, 2))),
            jnp.kron(n, n),
        ),
        (X, Y, N),
    ),
    "narrow": (
        lambda m, n: lax.dot(m.astype("int8"), n.astype("int8"), preferred_element_type=jnp.int32),
        (M * 5, N * 5),
    ),
    "sorted": (lambda x: (jnp.sort(x), jnp.argsort(x, axis=0), jnp.sort(x, descending=True), lax.top_k(x, 2)), (X,)),
    "several keys": (lambda a, b: (lax.sort((a, b), num_keys=2), jnp.lexsort((b, a))), (_i(3, 9), _i(3, 9))),
    "any function": (lambda x: lax.reduce(x, jnp.float32(0), lambda a, b: jnp.sqrt(a * a + b * b), (1,)), (X,)),
    "softmax": (lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x), jax.nn.logsumexp(x, 1)), (X,)),
    "norm": (_layernorm, (X, _f(5), _f(5))),
    "attention": (lambda q: jax.nn.dot_product_attention(q, q + 1, q * 2, is_causal=True), (_f(2, 6, 3, 8),)),
}
WINDOWS: Programs = {
    "convolutions": (
        lambda x, k: (_conv(x, k), _conv(x, k, (2, 2)), _conv(x, k, rhs_dilation=(2, 2))),
        (IMAGE, _f(3, 3, 3, 4)),
    ),
    "groups": (lambda x, k: _conv(x, k, feature_group_count=3), (IMAGE, _f(3, 3, 1, 6))),
    "groups of the batch": (lambda x, k: _conv(x, k, batch_group_count=2), (_f(4, 9, 9, 3), _f(3, 3, 3, 4))),
    "transposed": (
        lambda x, k: (lax.conv_transpose(x, k, (2, 2), "SAME"), lax.conv_transpose(x, k, (2, 2), "VALID")),
        (IMAGE, _f(3, 3, 3, 4)),
    ),
    "set apart": (
        lambda x, k: _conv(x, k, (2, 1), ((1, 2), (3, 0)), lhs_dilation=(3, 2), rhs_dilation=(1, 2)),
        (IMAGE, _f(3, 3, 3, 4)),
    ),
    "one and three axes": (
        lambda x, k: (
            jnp.convolve(x, k, mode="same"),
            lax.conv(x.reshape(1, 1, 7, 1, 1), k.reshape(1, 1, 3, 1, 1), (1, 1, 1), "SAME"),
        ),
        (V, _f(3)),
    ),
    "pooling": (
        lambda x: (
            _pooled(x, 2, 2, "VALID"),
            _pooled(x, 3, 2, "SAME"),
            lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        ),
        (IMAGE,),
    ),
    "gradients": (
        lambda x, k: jax.grad(lambda a, b: (_pooled(_conv(a, b), 2, 2, "VALID") ** 2).sum(), (0, 1))(x, k),
        (IMAGE, _f(3, 3, 3, 4)),
    ),
}
CONTROL: Programs = {
    "scan": (lambda x: lax.scan(lambda c, t: (c * 0.5 + t, c), jnp.zeros(5), x), (M,)),
    "long scan": (lambda x: lax.scan(lambda c, t: (jnp.tanh(c * 0.5 + t), c.sum()), jnp.zeros(5), x), (_f(300, 5),)),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 1.5 + 1, x), (jnp.abs(V),)),
    "branches": (
        lambda x, k: (
            lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x),
            lax.switch(k[0], [jnp.sin, jnp.cos, jnp.tan], x),
        ),
        (V, _i(3, 1)),
    ),
    "mapped": (lambda x: (lax.map(lambda a: jnp.sin(a).sum(), x), jax.vmap(lambda a: a @ a.T)(x)), (X,)),
    "derivatives": (lambda v: (jax.hessian(lambda x: (jnp.sin(x) ** 2).sum())(v), jax.jvp(jnp.sin, (v,), (v,))), (V,)),
    "random numbers": (
        lambda k: jax.random.normal(k, (3,)),
        (KEY,),
    ),
    "linear algebra": (
        lambda m: (
            jnp.linalg.cholesky(m @ m.T + 5 * jnp.eye(4)),
            jnp.linalg.solve(m @ m.T + 5 * jnp.eye(4), m),
            jnp.linalg.det(m[:, :4]),
        ),
        (M,),
    ),
    "decompositions": (
        lambda m: (
            *jnp.linalg.qr(m.T),
            jnp.linalg.svd(m, compute_uv=False),
            [jnp.abs(part) for part in jnp.linalg.svd(m, full_matrices=False)],  # whose vectors may be turned round
            [jnp.abs(part) for part in jnp.linalg.eigh(m @ m.T)],
            jnp.linalg.pinv(m),
        ),
        (M,),
    ),
    "Fourier": (
        lambda v: (jnp.fft.fft(v), jnp.fft.rfft(v), jnp.fft.irfft(jnp.fft.rfft(v)), jnp.fft.fft2(v.reshape(1, 7))),
        (V,),
    ),
}
if SWEEP:  # the same generator, written out again and again
    CONTROL["more random numbers"] = (
        lambda k: (jax.random.randint(k, (3,), 0, 9), jax.random.permutation(k, 8)),
        (KEY,),
    )
ALL = {"elements": ELEMENTS, "shapes": SHAPES, "sums": SUMS, "windows": WINDOWS, "control": CONTROL}
