"""Terms on numbers: exactly, in the field of integers modulo a prime, many points at a time.

Beside its element of the field each number has a real one, drawn independently: it decides which of several is the
greatest. A function of which nothing is known is a hash of its argument. So two terms that are equal by laws of
fields, of order and of functions have equal elements; two that differ have different ones but for a chance of about
their degree in 2^31 (Schwartz 1980, Zippel 1979).
"""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from covan_mlir.subst.operators import FUNCTIONS
from covan_mlir.subst.terms import Apply, Term, Var, subterms

PRIME = 2**31 - 1
Array = npt.NDArray[Any]
Integers = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Numbers:
    """A tensor of elements of the field, and one of real numbers; both may have axes for several points in front."""

    field: Array
    real: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Of both."""
        return tuple(self.field.shape)

    def map(self, change: Callable[[Array], Array]) -> Numbers:
        """With both moved about in the same way."""
        return Numbers(change(self.field), change(self.real))


def draw(shape: Sequence[int], rng: np.random.Generator) -> Numbers:
    """Numbers at random."""
    return Numbers(rng.integers(0, PRIME, tuple(shape)), rng.normal(0, 1, tuple(shape)))


def known(values: Array) -> Numbers:
    """Whole numbers."""
    return Numbers(values.astype(np.int64) % PRIME, values.astype(np.float64))


def _times(a: Numbers, b: Numbers) -> Numbers:
    return Numbers(a.field * b.field % PRIME, a.real * b.real)


def _plus(a: Numbers, b: Numbers) -> Numbers:
    return Numbers((a.field + b.field) % PRIME, a.real + b.real)


def _total(parts: Sequence[Numbers]) -> Numbers:
    return functools.reduce(_plus, parts)


def _inverse(values: Array) -> Array:
    result, base, power = np.ones_like(values), values % PRIME, PRIME - 2
    while power:
        if power & 1:
            result = result * base % PRIME
        base, power = base * base % PRIME, power >> 1
    return result


def _hashed(name: str, values: Array) -> Array:
    salt = zlib.crc32(name.encode())
    mixed = (values + salt % PRIME) % PRIME
    square = mixed * mixed % PRIME
    hashed: Array = (square * mixed % PRIME * (salt % 1000 + 7) + square) % PRIME
    return hashed


def _function(name: str, x: Numbers) -> Numbers:
    with np.errstate(all="ignore"):
        if name == "reciprocal":
            return Numbers(_inverse(x.field), 1 / x.real)
        # The real value only has to be one of the same argument.
        return Numbers(_hashed(name, x.field), np.sin(x.real * (len(name) + 1) + 1))


def _greatest(options: Sequence[Numbers]) -> Numbers:
    real = np.stack([option.real for option in options])
    choice = np.argmax(real, axis=0)[None]
    field = np.stack([option.field for option in options])
    return Numbers(
        np.take_along_axis(field, choice, 0)[0],
        np.take_along_axis(real, choice, 0)[0],
    )


def _slices(x: Numbers, axis: int) -> list[Numbers]:
    return [x.map(functools.partial(np.take, indices=at, axis=axis)) for at in range(x.shape[axis])]


def _padded(x: Numbers, pads: Sequence[int], fill: float = 0.0) -> Numbers:
    widths = [(0, 0)] * (len(x.shape) - 2) + [(pad, pad) for pad in pads]
    return Numbers(np.pad(x.field, widths), np.pad(x.real, widths, constant_values=fill))


def _taps(x: Numbers, window: Sequence[int], attributes: Integers) -> list[Numbers]:
    """For each tap of the window, what it reads at all places."""
    stride, (down, right) = attributes["stride"], attributes.get("dilation", (1, 1))
    height, width = x.shape[-2:]
    rows = (height - down * (window[0] - 1) - 1) // stride[0] + 1
    columns = (width - right * (window[1] - 1) - 1) // stride[1] + 1

    def tap(y: int, z: int) -> Numbers:
        down_to, right_to = y + (rows - 1) * stride[0] + 1, z + (columns - 1) * stride[1] + 1
        return x.map(lambda a: a[..., y : down_to : stride[0], z : right_to : stride[1]])

    return [tap(i * down, j * right) for i, j in itertools.product(range(window[0]), range(window[1]))]


def _matmul(a: Numbers, b: Numbers) -> Numbers:
    def summand(k: int) -> Numbers:
        return _times(a.map(lambda v: v[..., :, k, None]), b.map(lambda v: v[..., None, k, :]))

    return _total([summand(k) for k in range(a.shape[-1])])


def _conv(x: Numbers, w: Numbers, attributes: Integers) -> Numbers:
    groups, outputs, inner = attributes["groups"][0], w.shape[-4], w.shape[-3]
    kernel = w.map(lambda a: a.reshape(*a.shape[:-4], 1, groups, outputs // groups, *a.shape[-3:]))
    taps = _taps(_padded(x, attributes["pad"]), w.shape[-2:], attributes)
    total: Numbers | None = None
    for (i, j), tap in zip(itertools.product(range(w.shape[-2]), range(w.shape[-1])), taps, strict=True):
        image = tap.map(lambda a: a.reshape(*a.shape[:-3], groups, inner, *a.shape[-2:]))
        for c in range(inner):
            share = _times(
                image.map(lambda a, c=c: a[..., :, None, c, :, :]),  # type: ignore[misc]  # a default binds the loop's value
                kernel.map(lambda a, c=c, i=i, j=j: a[..., c, i, j, None, None]),  # type: ignore[misc]  # defaults bind the loop's values
            )
            total = share if total is None else _plus(total, share)
    assert total is not None
    return total.map(lambda a: a.reshape(*a.shape[:-4], outputs, *a.shape[-2:]))


def _constant(op: str, size: tuple[int, ...]) -> Numbers:
    if op in ("zeros", "ones"):
        return known(np.full(size, int(op == "ones")))
    if op == "eye":
        return known(np.eye(size[0]))
    if op == "conv_identity":
        kernel = np.zeros((size[0], size[0], 2 * size[1] + 1, 2 * size[2] + 1))
        kernel[range(size[0]), range(size[0]), size[1], size[2]] = 1
        return known(kernel)
    taps = known(np.full((size[0], 1, size[1], size[2]), size[1] * size[2]))
    return Numbers(_inverse(taps.field), 1 / taps.real)


def apply(op: str, attributes: Integers, args: Sequence[Numbers], rank: int) -> Numbers:
    """One operator.

    Args:
        rank: of the first operand; axes in front of these are of several points.

    Raises:
        KeyError: there is no such operator.
    """
    if not args:
        return _constant(op, attributes["size"])
    x = args[0]
    axis = attributes.get("axis", (0,))[0] - rank
    match op:
        case "add":
            return _plus(x, args[1])
        case "sub":
            return _plus(x, _times(known(np.array(-1)), args[1]))
        case "mul":
            return _times(x, args[1])
        case "div":
            return _times(x, _function("reciprocal", args[1]))
        case "neg":
            return _times(known(np.array(-1)), x)
        case "scale":
            return _times(x, args[1].map(lambda a: a.reshape(a.shape + (1,) * rank)))
        case "relu":
            return _greatest([x, x.map(np.zeros_like)])
        case "transpose":
            front = len(x.shape) - rank
            order = [*range(front), *(front + axis for axis in attributes["axes"])]
            return x.map(lambda a: a.transpose(order))
        case "matmul":
            return _matmul(x, args[1])
        case "concat":
            return Numbers(*(np.concatenate(pair, axis) for pair in ((x.field, args[1].field), (x.real, args[1].real))))
        case "head":
            return x.map(lambda a: np.take(a, range(attributes["size"][0]), axis))
        case "tail":
            return x.map(lambda a: np.take(a, range(a.shape[axis] - attributes["size"][0], a.shape[axis]), axis))
        case "merge":
            return x.map(lambda a: _reshaped(a, axis, 2, (-1,)))
        case "divide":
            return x.map(lambda a: _reshaped(a, axis, 1, (a.shape[axis] // attributes["size"][0], *attributes["size"])))
        case "broadcast":
            place = attributes["axis"][0] - rank - 1
            return x.map(lambda a: np.repeat(np.expand_dims(a, place), attributes["size"][0], place))
        case "sum":
            return _total(_slices(x, axis))
        case "max":
            return _greatest(_slices(x, axis))
        case "softmax":
            top = _function("exp", x)
            total = _function("reciprocal", _total(_slices(top, axis)))
            return _times(top, total.map(lambda a: np.expand_dims(a, axis)))
        case "conv":
            return _conv(x, args[1], attributes)
        case "enlarge":
            return _padded(x, attributes["border"])
        case "avg_pool":
            window = attributes["window"]
            total = _total(_taps(_padded(x, attributes["pad"]), window, attributes))
            taps = known(np.array(math.prod(window)))
            return _times(total, Numbers(_inverse(taps.field), 1 / taps.real))
        case "max_pool":
            return _greatest(_taps(_padded(x, attributes["pad"], -math.inf), attributes["window"], attributes))
    if op in FUNCTIONS:
        return _function(op, x)
    raise KeyError(op)


def _reshaped(values: Array, axis: int, count: int, into: tuple[int, ...]) -> Array:
    at = len(values.shape) + axis
    return values.reshape(*values.shape[:at], *into, *values.shape[at + count :])


def evaluate(
    terms: tuple[Term, ...], ranks: Mapping[Term, int], given: Mapping[str, Numbers], sizes: Mapping[str, int]
) -> list[Numbers]:
    """Terms on given tensors.

    Args:
        ranks: of all terms in them.
        given: tensors by name.
        sizes: by name.
    """
    values: dict[Term, Numbers] = {}
    fronts = [given[term.name].shape[: -ranks[term] or None] for term in ranks if isinstance(term, Var)]
    points = next(iter(fronts), ())
    for term in subterms(terms):
        if isinstance(term, Var):
            values[term] = given[term.name]
        elif not term.args:
            constant = _apply(term, [], ranks, sizes)
            values[term] = constant.map(lambda a: np.broadcast_to(a, (*points, *a.shape)))
        else:
            values[term] = _apply(term, [values[arg] for arg in term.args], ranks, sizes)
    return [values[term] for term in terms]


def _apply(term: Apply, args: list[Numbers], ranks: Mapping[Term, int], sizes: Mapping[str, int]) -> Numbers:
    attributes = {name: tuple(size.value(sizes) for size in value) for name, value in term.attributes}
    return apply(term.op, attributes, args, ranks[term.args[0]] if term.args else 0)
