"""How much a rule changes what is computed in floating point: measured on tensors that are hard on it.

Rules are true of real numbers. Both sides of one are evaluated in float32, each operator rounding and sums one term
after the other, and in float64, which is what is right here. What is compared are errors, in units of the last place of
the largest element of a result: how often as large as the source's, or as one unit where that is more, is the target's?

The tensors: ordinary ones; elements of all magnitudes; such that cancel within a tensor, or between tensors; of one
sign; and so large or small that a product of three leaves the range of float32 and one of two does not. A target that
is not finite where the source is has no bound.
"""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from covan_mlir.subst.inference import Typed
from covan_mlir.subst.operators import FUNCTIONS
from covan_mlir.subst.prove import random_sizes
from covan_mlir.subst.terms import Apply, Term, Var, subterms

Array = npt.NDArray[Any]
BOUND = 8.0
"""Rules that may make errors larger by more than this are off by default."""
SIZES = 6
"""Choices of sizes that a rule is tried on."""
_UNIT = float(np.finfo(np.float32).eps)
_WIDE, _EXTREME = 12, 50
"""Magnitudes go from 2 to the minus this to 2 to this."""


def _ordinary(shape: Sequence[int], rng: np.random.Generator, draw: int) -> Array:
    return rng.normal(0, 1, shape)


def _magnitudes(shape: Sequence[int], rng: np.random.Generator, draw: int, most: int = _WIDE) -> Array:
    return rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.uniform(-most, most, shape)


def _cancelling(shape: Sequence[int], rng: np.random.Generator, draw: int) -> Array:
    """Neighbours along the last axis are nearly opposite."""
    values = rng.normal(0, 1, shape)
    if values.ndim and shape[-1] > 1:
        even = values[..., : shape[-1] // 2 * 2 : 2]
        values[..., 1::2] = -even * (1 + 1e-5 * rng.normal(0, 1, even.shape))
    return values * 1000


def _alike(shape: Sequence[int], rng: np.random.Generator, draw: int) -> Array:
    """Tensors of one shape are nearly the same, or opposite."""
    values = np.random.default_rng([draw, *shape]).normal(0, 1, shape)
    return float(rng.choice([-1.0, 1.0])) * values * (1 + 1e-5 * rng.normal(0, 1, shape))


def _positive(shape: Sequence[int], rng: np.random.Generator, draw: int) -> Array:
    return rng.uniform(0.5, 2.0, shape)


_STRESS: tuple[Callable[[Sequence[int], np.random.Generator, int], Array], ...] = (
    _ordinary,
    _magnitudes,
    _cancelling,
    _alike,
    _positive,
    functools.partial(_magnitudes, most=_EXTREME),
)


def growth(typed: Typed, sizes: int = SIZES) -> float:
    """How often as large as the source's errors the target's were at most: 0 where both always have the same bits, else
    a power of two; infinite where the target is not finite and the source is."""
    rng = np.random.default_rng(zlib.crc32(str(typed.rule).encode()))
    most = 0.0
    for draw in range(sizes):
        chosen = random_sizes(typed, rng)
        if chosen is None:
            break
        for stress in _STRESS:
            given = {
                name: stress([size.value(chosen) for size in shape], rng, draw).astype(np.float32)
                for name, shape in typed.rule.shapes
            }
            most = max(most, _compared(typed, given, chosen))
    return 2.0 ** max(0, math.ceil(math.log2(most))) if 0 < most < math.inf else most


def _compared(typed: Typed, given: Mapping[str, Array], sizes: Mapping[str, int]) -> float:
    double = {name: value.astype(np.float64) for name, value in given.items()}
    with np.errstate(all="ignore"):
        sources, targets = (evaluate(side, given, sizes) for side in (typed.rule.source, typed.rule.target))
        right = evaluate(typed.rule.source, double, sizes)
    most = 0.0
    for source, target, exact in zip(sources, targets, right, strict=True):
        if np.array_equal(source, target, equal_nan=True):
            continue
        fine = np.isfinite(source) & np.isfinite(exact)
        if not np.isfinite(target[fine]).all():
            return math.inf
        if not fine.any():
            continue
        scale = float(np.abs(exact[fine]).max())
        unit = max(scale * _UNIT, float(np.finfo(np.float32).smallest_normal))
        theirs, ours = (float(np.abs(side[fine].astype(np.float64) - exact[fine]).max()) for side in (source, target))
        most = max(most, ours / max(theirs, unit), np.finfo(np.float64).tiny)
    return most


def evaluate(terms: tuple[Term, ...], given: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Array]:
    """Terms on tensors, in the type of their elements: each operation rounds, sums go one term after the other."""
    values: dict[Term, Array] = {}
    kind: Any = next(iter(given.values())).dtype if given else np.dtype(np.float32)
    for term in subterms(terms):
        if isinstance(term, Var):
            values[term] = given[term.name]
        else:
            attributes = {name: tuple(size.value(sizes) for size in value) for name, value in term.attributes}
            values[term] = _apply(term, [values[arg] for arg in term.args], attributes, kind)
    return [values[term] for term in terms]


def _summed(parts: Sequence[Array]) -> Array:
    return functools.reduce(np.add, parts)


def _slices(x: Array, axis: int) -> list[Array]:
    return [x.take(at, axis) for at in range(x.shape[axis])]


_PLAIN: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "scale": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "exp": np.exp,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "sigmoid": lambda x: x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x)),
    "silu": lambda x: x / (x.dtype.type(1) + np.exp(-x)),
    "gelu": lambda x: x * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(x).astype(x.dtype),
    "matmul": lambda a, b: _summed([a[..., :, k, None] * b[..., None, k, :] for k in range(a.shape[-1])]),
}


def _apply(term: Apply, args: list[Array], attributes: Mapping[str, tuple[int, ...]], kind: Any) -> Array:
    if term.op in _PLAIN:
        return _PLAIN[term.op](*args)
    if not args:
        return _constant(term.op, attributes["size"], kind)
    x, axis = args[0], attributes.get("axis", (0,))[0]
    match term.op:
        case "transpose":
            return x.transpose(attributes["axes"])
        case "concat":
            return np.concatenate(args, axis)
        case "head":
            return x.take(range(attributes["size"][0]), axis)
        case "tail":
            return x.take(range(x.shape[axis] - attributes["size"][0], x.shape[axis]), axis)
        case "merge":
            return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
        case "divide":
            return x.reshape(*x.shape[:axis], -1, *attributes["size"], *x.shape[axis + 1 :])
        case "broadcast":
            return np.repeat(np.expand_dims(x, axis), attributes["size"][0], axis)
        case "sum":
            return _summed(_slices(x, axis))
        case "max":
            return functools.reduce(np.maximum, _slices(x, axis))
        case "softmax":
            top: Array = np.exp(x - x.max(axis, keepdims=True))
            total: Array = np.expand_dims(_summed(_slices(top, axis)), axis)
            return top / total
        case "conv":
            return _conv(x, args[1], attributes)
        case "enlarge":
            return _padded(x, attributes["border"])
        case "avg_pool":
            taps = _taps(_padded(x, attributes["pad"]), attributes["window"], attributes)
            mean: Array = _summed(taps) / kind.type(math.prod(attributes["window"]))
            return mean
        case "max_pool":
            taps = _taps(_padded(x, attributes["pad"], -math.inf), attributes["window"], attributes)
            return functools.reduce(np.maximum, taps)
    raise KeyError(f"{term.op} is not evaluated in floating point; functions are {', '.join(FUNCTIONS)}")


def _constant(op: str, size: tuple[int, ...], kind: Any) -> Array:
    if op in ("zeros", "ones"):
        return np.full(size, int(op == "ones"), kind)
    if op == "eye":
        return np.eye(size[0], dtype=kind)
    if op == "conv_identity":
        kernel = np.zeros((size[0], size[0], 2 * size[1] + 1, 2 * size[2] + 1), kind)
        kernel[range(size[0]), range(size[0]), size[1], size[2]] = 1
        return kernel
    return np.full((size[0], 1, size[1], size[2]), 1 / (size[1] * size[2]), kind)


def _padded(x: Array, pads: Sequence[int], fill: float = 0.0) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *((pad, pad) for pad in pads)], constant_values=fill)


def _taps(x: Array, window: Sequence[int], attributes: Mapping[str, tuple[int, ...]]) -> list[Array]:
    """For each tap of the window, what it reads at all places."""
    stride, dilation = attributes["stride"], attributes.get("dilation", (1, 1))
    counts = [
        (size - step * (taps - 1) - 1) // by + 1
        for size, taps, by, step in zip(x.shape[2:], window, stride, dilation, strict=True)
    ]
    return [
        x[..., i : i + (counts[0] - 1) * stride[0] + 1 : stride[0], j : j + (counts[1] - 1) * stride[1] + 1 : stride[1]]
        for i, j in itertools.product(
            range(0, window[0] * dilation[0], dilation[0]), range(0, window[1] * dilation[1], dilation[1])
        )
    ]


def _conv(x: Array, w: Array, attributes: Mapping[str, tuple[int, ...]]) -> Array:
    (groups,), (outputs, inner, *window) = attributes["groups"], w.shape
    taps = _taps(_padded(x, attributes["pad"]), window, attributes)
    terms = []
    for tap, (i, j) in zip(taps, itertools.product(*map(range, window)), strict=True):
        image = tap.reshape(tap.shape[0], groups, inner, *tap.shape[2:])
        kernel = w[:, :, i, j].reshape(groups, outputs // groups, inner)
        terms += [image[:, :, None, c] * kernel[None, :, :, c, None, None] for c in range(inner)]
    total = _summed(terms)
    return total.reshape(total.shape[0], outputs, *total.shape[3:])
