"""Numbers in exact arithmetic: each float is an element of the field of integers modulo a prime, beside its value.

Sums, products and quotients are taken in the field, so nothing is rounded: two rational functions that differ agree at
a random point with a probability of at most their degree over the prime (Schwartz, 1980; Zippel, 1979). A constant is
the dyadic rational that its float is. Functions that are not rational are uninterpreted: each gives an element that is
drawn anew for each argument. What the order of numbers decides (comparisons, maxima, roundings to integers) their
values decide, as float64: of a function of several pieces, both sides are held against each other on one piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from covan_mlir.fred.scalars import Array

PRIME = 2**31 - 1
"""Products of two elements are no more than 62 bits, and sums of 2^32 elements no more than 63."""
PAIR = np.dtype([("value", np.float64), ("residue", np.int64)])
"""A number and its element of the field: -1 where that is not known (infinities, what nothing defines)."""
_UNKNOWN = -1
_EXPONENTS = 1100
_POWERS = 64
"""Exponents up to which a power is a product."""


@dataclass
class Trace:
    """What an evaluation used beside sums, products and quotients.

    Attributes:
        atoms: uninterpreted functions, each with its argument, as keys of 64 bits.
        constants: numbers of the code.
        rounded: whether some of them are of half precision.
        roots: whether some functions are roots or powers, which depend on their arguments: x / sqrt(x) is sqrt(x).
    """

    atoms: set[int] = field(default_factory=set)
    constants: set[float] = field(default_factory=set)
    rounded: bool = False
    roots: bool = False


_TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def traced() -> Iterator[Trace]:
    """Within, what is evaluated is written down."""
    trace = Trace()
    token = _TRACE.set(trace)
    try:
        yield trace
    finally:
        _TRACE.reset(token)


_REPLACED: ContextVar[Mapping[float, float] | None] = ContextVar("replaced", default=None)


@contextmanager
def replaced(numbers: Mapping[float, float]) -> Iterator[None]:
    """Within, some numbers of the code are others."""
    token = _REPLACED.set(numbers)
    try:
        yield
    finally:
        _REPLACED.reset(token)


def constant(value: Any, *, half: bool = False) -> Array:
    """A number of the code."""
    for old, new in (_REPLACED.get() or {}).items():
        value = np.where(np.asarray(value) == old, new, value)
    trace = _TRACE.get()
    if trace is not None:
        trace.constants.update(np.unique(np.asarray(value, np.float64)).tolist())
        trace.rounded |= half
    return lifted(value)


def narrowed(number: Exact) -> Exact:
    """A number of the code as float32 holds it; what is drawn, and what is computed, stands for real numbers."""
    if number.value.ndim or not number.given:
        return number
    with np.errstate(all="ignore"):
        value = number.value.astype(np.float32).astype(np.float64)
    return Exact.of(constant(value))


def mixed(numbers: Array) -> Array:
    """64 bits that look random, other ones for each number (splitmix64)."""
    with np.errstate(over="ignore"):
        bits = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(bits ^ (bits >> np.uint64(31)))


def drawn(bits: Array) -> Array:
    """Elements of the field from 64 random bits each, other ones than what else is drawn of those."""
    return np.asarray(mixed(bits ^ np.uint64(0x5DEECE66D)) % np.uint64(PRIME)).astype(np.int64)


_TWO = np.array([pow(2, exponent, PRIME) for exponent in range(-_EXPONENTS, _EXPONENTS)], np.int64)


def residues(values: Array) -> Array:
    """The elements that numbers are: floats are dyadic rationals."""
    if values.dtype.kind != "f":
        return np.asarray(values.astype(np.int64) % PRIME)
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0).astype(np.float64))
    whole = np.asarray(mantissa * 2.0**53).astype(np.int64) % PRIME
    return np.where(finite, whole * _TWO[exponent - 53 + _EXPONENTS] % PRIME, _UNKNOWN)


def lifted(values: Any) -> Array:
    """Numbers as pairs."""
    array = np.asarray(values)
    return array if array.dtype == PAIR else paired(array, residues(array))


def paired(values: Array, elements: Array) -> Array:
    """Pairs of both."""
    pairs = np.empty(np.broadcast_shapes(np.shape(values), np.shape(elements)), PAIR)
    pairs["value"], pairs["residue"] = values, elements
    return pairs


def _inverse(elements: Array) -> Array:
    """By Fermat's little theorem."""
    result, square, power = np.ones_like(elements), elements, PRIME - 2
    while power:
        if power & 1:
            result = result * square % PRIME
        square = square * square % PRIME
        power >>= 1
    return result


class Exact:
    """Arrays of pairs, with operators."""

    __slots__ = ("residue", "value")

    def __init__(self, value: Array, residue: Array) -> None:
        self.value = value
        self.residue = residue

    @staticmethod
    def of(values: Any) -> Exact:
        """Pairs, or numbers of the code."""
        if isinstance(values, Exact):
            return values
        array = np.asarray(values)
        if array.dtype != PAIR:
            array = constant(array) if isinstance(values, float) else lifted(array)
        return Exact(array["value"], array["residue"])

    @property
    def pairs(self) -> Array:
        """As one array."""
        return paired(self.value, self.residue)

    @property
    def given(self) -> bool:
        """Whether all are numbers of the code, and not drawn."""
        return bool((residues(self.value) == self.residue).all())

    def _with(self, other: Any, value: Callable[..., Any], residue: Callable[..., Any]) -> Exact:
        right = Exact.of(other)
        known = (self.residue >= 0) & (right.residue >= 0)
        with np.errstate(all="ignore"):
            values = np.asarray(value(self.value, right.value))
        return Exact(values, np.where(known, residue(self.residue, right.residue) % PRIME, _UNKNOWN))

    def __add__(self, other: Any) -> Exact:
        return self._with(other, np.add, np.add)

    def __sub__(self, other: Any) -> Exact:
        return self._with(other, np.subtract, np.subtract)

    def __mul__(self, other: Any) -> Exact:
        return self._with(other, np.multiply, np.multiply)

    def __truediv__(self, other: Any) -> Exact:
        right = Exact.of(other)
        quotient = self._with(right, np.divide, lambda a, b: a * _inverse(b))
        return Exact(quotient.value, np.where(right.residue == 0, _UNKNOWN, quotient.residue))

    def __neg__(self) -> Exact:
        return Exact.of(0) - self

    def __getitem__(self, index: Any) -> Exact:
        return Exact(self.value[index], self.residue[index])

    def reshape(self, *shape: int) -> Exact:
        """In another shape."""
        return Exact(self.value.reshape(*shape), self.residue.reshape(*shape))


def where(condition: Any, one: Any, other: Any) -> Exact:
    """Of each position one of two."""
    left, right = Exact.of(one), Exact.of(other)
    return Exact(np.where(condition, left.value, right.value), np.where(condition, left.residue, right.residue))


def maximum(one: Any, other: Any, *, numbers: bool = False) -> Exact:
    """The larger one; NaN if one is, or the other one then (``numbers``)."""
    left, right = Exact.of(one), Exact.of(other)
    taken = np.isnan(right.value if numbers else left.value)
    return where((left.value >= right.value) | taken, left, right)


def minimum(one: Any, other: Any, *, numbers: bool = False) -> Exact:
    """The smaller one, as `maximum`."""
    left, right = Exact.of(one), Exact.of(other)
    taken = np.isnan(right.value if numbers else left.value)
    return where((left.value <= right.value) | taken, left, right)


def rounded(function: Callable[[Array], Array], number: Any) -> Exact:
    """To an integer, which the value decides."""
    return Exact.of(lifted(function(Exact.of(number).value)))


def absolute(number: Any) -> Exact:
    """Without its sign, which the value decides."""
    one = Exact.of(number)
    return where(np.signbit(one.value), -one, one)


_ERF = np.frompyfunc(math.erf, 1, 1)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "sqrt", "sin", "cos", "tan", "tanh", "cbrt")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "atan2": np.arctan2,
    "pow": np.power,
    "erf": lambda x: np.asarray(_ERF(x), np.float64),
}
_ODD = frozenset({"sin", "tan", "tanh", "asin", "atan", "asinh", "atanh", "erf", "cbrt"})
_ROOTS = frozenset({"sqrt", "cbrt", "pow"})
_AT_ZERO = {"exp": 1, "exp2": 1, "cos": 1, "sqrt": 0} | dict.fromkeys(_ODD, 0)
_AT_ONE = {"log": 0, "sqrt": 1}


def is_function(name: str) -> bool:
    """Whether `uninterpreted` knows it."""
    return name in _FUNCTIONS


def uninterpreted(name: str, *numbers: Any) -> Exact:
    """A function of which only this is known: it is odd or even, what it is of 0 or of 1, and exp(-x) = 1/exp(x)."""
    arguments = [Exact.of(number) for number in numbers]
    with np.errstate(all="ignore"):
        value = np.asarray(_FUNCTIONS[name](*(one.value for one in arguments)), np.float64)
    shape = value.shape
    elements = [np.broadcast_to(one.residue, shape) for one in arguments]
    known = np.all([one >= 0 for one in elements], axis=0)
    first = elements[0]
    mirrored = known & (first > PRIME // 2) & (name in _ODD or name in ("exp", "exp2", "cos"))
    elements[0] = np.where(mirrored, PRIME - first, first)
    keys = np.broadcast_to(np.uint64(crc32(name.encode())), shape)
    for one in elements:
        keys = mixed(keys ^ (one.astype(np.uint64) << np.uint64(1)))
    result = np.asarray(keys % np.uint64(PRIME - 1)).astype(np.int64) + 1
    if name in _ODD:
        result = np.where(mirrored, PRIME - result, result)
    elif name in ("exp", "exp2") and mirrored.any():
        result = np.where(mirrored, _inverse(result), result)
    rational = np.zeros(shape, np.bool_)
    for at, table in ((0, _AT_ZERO), (1, _AT_ONE)):
        if name in table:
            rational |= first == at
            result = np.where(first == at, table[name], result)
    result = np.where(known, result, _UNKNOWN)
    if (trace := _TRACE.get()) is not None:
        trace.atoms.update(np.unique(keys[known & ~rational]).tolist())
        trace.roots |= name in _ROOTS and bool((known & ~rational).any())
    if name == "exp":
        result = np.where(np.isneginf(arguments[0].value), 0, result)
    return Exact(value, result)


def power(base: Any, exponent: Any) -> Exact:
    """A product for whole exponents, a root for halves."""
    one, other = Exact.of(base), Exact.of(exponent)
    numbers = np.unique(other.value)
    if numbers.size != 1 or not other.given:
        return uninterpreted("pow", one, other)
    number = float(numbers[0])
    if number in (0.5, -0.5):
        root = uninterpreted("sqrt", one)
        return root if number > 0 else Exact.of(1) / root
    if not number.is_integer() or abs(number) > _POWERS:
        return uninterpreted("pow", one, other)
    product = Exact(np.ones_like(one.value), np.ones_like(one.residue))
    for _ in range(int(abs(number))):
        product = product * one
    return product if number >= 0 else Exact.of(1) / product


def total(numbers: Exact, axis: int) -> Exact:
    """The sum along an axis."""
    unknown = (numbers.residue < 0).any(axis)
    return Exact(numbers.value.sum(axis), np.where(unknown, _UNKNOWN, numbers.residue.sum(axis) % PRIME))


def product(numbers: Exact, axis: int) -> Exact:
    """The product along an axis."""
    result = Exact.of(1)
    for k in range(numbers.value.shape[axis]):
        result = result * Exact(numbers.value.take(k, axis), numbers.residue.take(k, axis))
    return result


def extreme(numbers: Exact, axis: int, *, largest: bool) -> Exact:
    """The largest or smallest along an axis."""
    place = np.expand_dims((np.argmax if largest else np.argmin)(numbers.value, axis), axis)
    taken = (np.take_along_axis(one, place, axis).squeeze(axis) for one in (numbers.value, numbers.residue))
    return Exact(*taken)


def dot(one: Array, other: Array) -> Array:
    """Sums of products along the last axis, of pairs."""
    return total(Exact.of(one) * Exact.of(other), -1).pairs


_COMBINE: Mapping[str, tuple[Callable[[Any, Any], Exact], Callable[[Exact, int], Exact]]] = {
    "add": (lambda a, b: Exact.of(a) + b, total),
    "multiply": (lambda a, b: Exact.of(a) * b, product),
    "maximum": (maximum, lambda numbers, axis: extreme(numbers, axis, largest=True)),
    "minimum": (minimum, lambda numbers, axis: extreme(numbers, axis, largest=False)),
    "fmax": (
        lambda a, b: maximum(a, b, numbers=True),
        lambda numbers, axis: _numbers(numbers, axis, largest=True),
    ),
    "fmin": (
        lambda a, b: minimum(a, b, numbers=True),
        lambda numbers, axis: _numbers(numbers, axis, largest=False),
    ),
}


def _numbers(numbers: Exact, axis: int, *, largest: bool) -> Exact:
    worst = np.where(np.isnan(numbers.value), -np.inf if largest else np.inf, numbers.value)
    return extreme(Exact(worst, numbers.residue), axis, largest=largest)


def combined(function: np.ufunc, start: Array, pairs: Array, axis: int) -> Array:
    """Pairs folded along an axis, onto what is there."""
    combine, fold = _COMBINE[function.__name__]
    return combine(start, fold(Exact.of(pairs), axis)).pairs


def same(one: Array, other: Array) -> tuple[Array, Array]:
    """Where two arrays of pairs are the same, and where they are known to differ."""
    known = (one["residue"] >= 0) & (other["residue"] >= 0)
    equal = known & (one["residue"] == other["residue"])
    beyond = ~np.isfinite(one["value"]) & ~np.isfinite(other["value"])
    alike = (one["value"] == other["value"]) | (np.isnan(one["value"]) & np.isnan(other["value"]))
    return equal | (~known & beyond & alike), known & ~equal


def softmax(numbers: Exact, axis: int, *, log: bool = False) -> Exact:
    """Along an axis, and less the largest one, as all programs do."""
    largest = extreme(numbers, axis, largest=True)
    less = numbers - Exact(np.expand_dims(largest.value, axis), np.expand_dims(largest.residue, axis))
    powers = uninterpreted("exp", less)
    whole = total(powers, axis)
    whole = Exact(np.expand_dims(whole.value, axis), np.expand_dims(whole.residue, axis))
    return less - uninterpreted("log", whole) if log else powers / whole


def stacked(numbers: Sequence[Exact], axis: int) -> Exact:
    """Along a new axis."""
    return Exact(np.stack([n.value for n in numbers], axis), np.stack([n.residue for n in numbers], axis))
