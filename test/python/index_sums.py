"""Sums over index expressions, evaluated point by point: what `covan_mlir.subst.expressions` says, and nothing
cleverer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from covan_mlir.subst.expressions import Bound, Factor, Function, Greatest, Guard, Read, Reciprocal, Sum
from covan_mlir.subst.sizes import poly

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "reciprocal": lambda x: 1 / x,
    "exp": lambda x: float(np.exp(x)),
    "tanh": lambda x: float(np.tanh(x)),
    "sigmoid": lambda x: float(1 / (1 + np.exp(-x))),
    "sqrt": lambda x: float(np.sqrt(x)),
    "rsqrt": lambda x: float(1 / np.sqrt(x)),
}

Tensors = Mapping[str, np.ndarray]


def value_of(value: Sum, tensors: Tensors, sizes: Mapping[str, int]) -> float:
    """At one position, which is among the sizes."""
    total = 0.0
    for piece in value:
        for point in _points(piece.bound, piece.guards, sizes):
            number = piece.number.substitute({name: poly(size) for name, size in point.items()}).constant
            assert number is not None
            product = float(number)
            for factor in piece.factors:
                product *= _factor(factor, tensors, point)
            total += product
    return total


def _points(bound: Bound, guards: frozenset[Guard], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    for position in itertools.product(*(range(size.value(sizes)) for _, size in bound)):
        point = {**sizes, **dict(zip((index for index, _ in bound), position, strict=True))}
        if all(size.value(point) >= 0 if kind == "ge" else size.value(point) == 0 for kind, size in guards):
            yield point


def _factor(factor: Factor, tensors: Tensors, sizes: Mapping[str, int]) -> float:
    if isinstance(factor, Read):
        at = tuple(position.value(sizes) for position in factor.at)
        assert all(0 <= place < size for place, size in zip(at, tensors[factor.name].shape, strict=True))
        return float(tensors[factor.name][at])
    if isinstance(factor, Reciprocal):
        return 1 / factor.size.value(sizes)
    if isinstance(factor, Function):
        return FUNCTIONS[factor.name](value_of(factor.args[0], tensors, sizes))
    assert isinstance(factor, Greatest)
    return max(
        value_of(option.value, tensors, point)
        for option in factor.options
        for point in _points(option.bound, option.guards, sizes)
    )


def tensor_of(
    element: Callable[[Sequence[str]], Sum], shape: Sequence[int], tensors: Tensors, sizes: Mapping[str, int]
) -> np.ndarray:
    """At all positions."""
    names = [f"%o{axis}" for axis in range(len(shape))]
    value = element(names)
    result = np.empty(tuple(shape))
    for position in itertools.product(*map(range, shape)):
        result[position] = value_of(value, tensors, {**sizes, **dict(zip(names, position, strict=True))})
    return result
