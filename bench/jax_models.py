"""Models written in JAX, at their real size, beside `jax.jit`: call times, errors, lineage.

    python bench/jax_models.py
    python bench/jax_models.py resnet50 --rounds 9 --seconds 2

Weights are drawn at random and closed over, as they are in inference. Errors are the largest difference to what JAX
computes in 64 bits, as a share of the largest element; beside it JAX's own in 32 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import REST, SETTLE, Row, arguments, interleave, machine, once, report, short, write_json
from jax import lax

import covan_mlir
from covan_mlir.errors import CovanError

Params = dict[str, Any]
Model = tuple[Callable[..., Any], Params, tuple[Any, ...]]
"""A function of parameters and arguments, and these."""
_RNG = np.random.default_rng(0)


def _weights(*shape: int) -> Any:
    """As large as keeps what goes through a layer as large as it is."""
    return (_RNG.standard_normal(shape) * np.sqrt(2 / np.prod(shape[:-1]))).astype(np.float32)


def _conv(x: Any, kernel: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _norm(x: Any, p: Params) -> Any:
    return (x - p["mean"]) * (p["scale"] * lax.rsqrt(p["var"] + 1e-5)) + p["bias"]


def _norm_params(size: int) -> Params:
    draw = _RNG.random((4, size)).astype(np.float32)
    return {"scale": draw[0] + 0.5, "bias": draw[1] - 0.5, "mean": draw[2] - 0.5, "var": draw[3] + 0.5}


def resnet50() -> Model:
    """ResNet-50, channels last, as JAX's libraries have it."""
    strides, blocks, channels = [], [], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for index in range(count):
            strides.append(2 if stage and not index else 1)
            block: Params = {}
            for name, shape in (
                ("a", (1, 1, channels, width)),
                ("b", (3, 3, width, width)),
                ("c", (1, 1, width, 4 * width)),
            ):
                block[name] = (_weights(*shape), _norm_params(shape[-1]))
            if not index:
                block["skip"] = (_weights(1, 1, channels, 4 * width), _norm_params(4 * width))
            channels = 4 * width
            blocks.append(block)
    params = {"stem": (_weights(7, 7, 3, 64), _norm_params(64)), "blocks": blocks, "head": _weights(channels, 1000)}

    def forward(params: Params, x: Any) -> Any:
        stem = params["stem"]
        with jax.named_scope("stem"):
            x = jax.nn.relu(_norm(_conv(x, stem[0], 2), stem[1]))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for index, (p, stride) in enumerate(zip(params["blocks"], strides, strict=True)):
            with jax.named_scope(f"block_{index}"):
                y = jax.nn.relu(_norm(_conv(x, p["a"][0]), p["a"][1]))
                y = jax.nn.relu(_norm(_conv(y, p["b"][0], stride), p["b"][1]))
                y = _norm(_conv(y, p["c"][0]), p["c"][1])
                x = jax.nn.relu(y + (_norm(_conv(x, p["skip"][0], stride), p["skip"][1]) if "skip" in p else x))
        return x.mean((1, 2)) @ params["head"]

    return forward, params, (_RNG.standard_normal((1, 224, 224, 3)).astype(np.float32),)


def encoder(layers: int = 12, width: int = 768, heads: int = 12, length: int = 128) -> Model:
    """An encoder of BERT-base's size, whose layers are a scan over stacked weights."""
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    stacked = {name: np.stack([_weights(*shape) for _ in range(layers)]) for name, shape in shapes.items()}
    params = {"table": _weights(30522, width), "layers": stacked}

    def normed(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-6)

    def layer(x: Any, p: Params) -> tuple[Any, None]:
        q, k, v = jnp.split((normed(x) @ p["qkv"]).reshape(*x.shape[:2], 3 * heads, width // heads), 3, axis=2)
        x = x + jax.nn.dot_product_attention(q, k, v).reshape(x.shape) @ p["out"]
        return x + jax.nn.gelu(normed(x) @ p["up"]) @ p["down"], None

    def forward(params: Params, ids: Any) -> Any:
        return normed(lax.scan(layer, jnp.asarray(params["table"])[ids], params["layers"])[0])

    return forward, params, (_RNG.integers(0, 30522, (1, length)).astype(np.int32),)


MODELS: dict[str, Callable[[], Model]] = {"resnet50": resnet50, "encoder": encoder}
COLUMNS = ("model", "covan, ms", "jax.jit, ms", "jax / covan", "error", "JAX's own", "sites", "compile, s", "verify")


def _in_64_bits(function: Any, *args: Any) -> Any:
    with jax.enable_x64(True):
        wide = jax.tree_util.tree_map(lambda a: a.astype(np.float64) if a.dtype.kind == "f" else a, args)
        return np.asarray(jax.jit(function)(*wide))


def measured(name: str, rounds: int, seconds: float) -> Row:
    """One model."""
    function, params, args = MODELS[name]()
    jitted = jax.jit(functools.partial(function, params))
    exe, took = once(functools.partial(covan_mlir.compile_module, jitted, args))
    arrays = tuple(map(jnp.asarray, args))
    times = interleave(
        {"covan": lambda: exe(*args), "jax": lambda: jitted(*arrays).block_until_ready()},
        rounds=rounds,
        seconds=seconds,
        settle=SETTLE,
        pause=REST,
    )
    exact = _in_64_bits(function, params, *args)
    errors = [
        float(np.abs(each - exact).max() / np.abs(exact).max()) for each in (exe(*args), np.asarray(jitted(*args)))
    ]
    own, theirs = (times[each].median * 1e3 for each in ("covan", "jax"))
    values = (
        *(name, own, theirs, theirs / own, *(f"{error:.1e}" for error in errors)),
        *(len(exe.lineage.sites), took, "yes" if exe.verify() else "no"),
    )
    return dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    """Measure, and print."""
    options = arguments(str(__doc__), 9, 3.0).parse_args()
    host = machine()
    rows: list[Row] = []
    for name in options.models or MODELS:
        try:
            rows.append(measured(name, options.rounds, options.seconds))
        except CovanError as error:
            rows.append({"model": name, "verify": short(error)})
        print(f"{name} is measured", flush=True)
    print(report("JAX models", host, COLUMNS, rows))
    if options.json:
        write_json(options.json, "jax_models", host, rows)


if __name__ == "__main__":
    main()
