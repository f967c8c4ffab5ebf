"""Chains on numpy arrays, with the semantics of the operations that they are written in: the oracle of every test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from covan_mlir.fred.chain import Chain, ChainError, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Extent, Index, Read, Window, walk
from covan_mlir.fred.scalars import DTYPES, Array, compute, fold, is_float


@dataclass(frozen=True, eq=False)
class Value:
    """An array whose dimensions are named."""

    data: Array
    axes: tuple[str, ...]

    def at(self, position: tuple[str, ...]) -> Array:
        """The array with one dimension per axis of ``position``, of size 1 where the value does not depend on it."""
        order = [self.axes.index(axis) for axis in position if axis in self.axes]
        shape = [self.data.shape[self.axes.index(axis)] if axis in self.axes else 1 for axis in position]
        return self.data.transpose(order).reshape(shape)

    def part(self, ranges: Mapping[str, slice]) -> Value:
        """The value on a range of positions."""
        return Value(self.data[tuple(ranges.get(axis, slice(None)) for axis in self.axes)], self.axes)


@dataclass(frozen=True)
class Space:
    """Positions that expressions are evaluated on: a range of each axis.

    Attributes:
        sizes: whole size of each axis.
        ranges: positions of each axis, where not all.
        wide: the element type that all floats are computed in instead of their own.
        exact: functions (``math``) of narrower floats are computed in f64, and rounded once: NumPy's own of f32 are
            those of the machine.
    """

    sizes: Mapping[str, int]
    ranges: Mapping[str, slice]
    wide: str | None = None
    exact: bool = False

    def dtype(self, dtype: str) -> str:
        """The element type that a value of ``dtype`` is computed in."""
        return self.wide if self.wide and is_float(dtype) else dtype

    def length(self, axis: str) -> int:
        """Number of positions on an axis."""
        return len(range(*self.ranges.get(axis, slice(None)).indices(self.sizes[axis])))


def evaluate(expr: Expr, env: Mapping[str, Value], position: tuple[str, ...], space: Space) -> Array:
    """The expression at every position, with dimensions of size 1 where it does not depend on the axis."""
    results: dict[int, Array] = {}
    for node in walk(expr):
        dtype = space.dtype(node.dtype)
        if isinstance(node, Const):
            result = np.asarray(node.value).astype(DTYPES[dtype]).reshape((1,) * len(position))
        elif isinstance(node, Read):
            result = env[node.name].at(position).astype(DTYPES[dtype], copy=False)
        elif isinstance(node, Window):
            result = _window(node, env[node.name], position, space).astype(DTYPES[dtype], copy=False)
        elif isinstance(node, Extent):
            result = np.full((1,) * len(position), space.sizes[node.axis], np.int64)
        elif isinstance(node, Index):
            places = np.arange(space.sizes[node.axis])[space.ranges.get(node.axis, slice(None))]
            result = Value(places, (node.axis,)).at(position)
        elif isinstance(node, Apply):
            args = tuple(results[id(arg)] for arg in node.args)
            if space.exact and node.op.startswith("math.") and is_float(dtype):
                args = tuple(arg.astype(np.float64) if arg.dtype.kind != "i" else arg for arg in args)
            result = compute(node.op, args, dtype)
        results[id(node)] = result
    return results[id(expr)]


def _window(window: Window, value: Value, position: tuple[str, ...], space: Space) -> Array:
    """The elements that a window reads, with dimensions of size 1 where it does not depend on the axis."""
    if space.ranges:
        raise ChainError(
            f"{window.name} is read through a window, and a part of its positions does not hold all it needs"
        )
    outside = np.asarray(window.outside.value).astype(value.data.dtype)
    shape = [space.sizes[axis] if axis in window.axes else 1 for axis in position]
    if value.data.size == 0:
        return np.full(shape, outside)
    places, inside = [], np.ones(shape, np.bool_)
    for at, size in zip(window.at, value.data.shape, strict=True):
        place = np.full(shape, at.offset, np.int64)
        for axis, coefficient in at.terms:
            place = place + coefficient * Value(np.arange(space.sizes[axis]), (axis,)).at(position)
        inside &= (place >= 0) & (place < size)
        places.append(place.clip(0, size - 1))
    return np.where(inside, value.data[tuple(places)], outside)


def run_step(step: Map | Reduce, env: Mapping[str, Value], space: Space) -> Value:
    """What a step computes on the positions of ``space``, from values given on those positions."""
    dtype = space.dtype(step.dtype)
    position = (*step.axes, *(step.over if isinstance(step, Reduce) else ()))
    data = np.broadcast_to(evaluate(step.expr, env, position, space), [space.length(axis) for axis in position])
    if isinstance(step, Map):
        return Value(data.astype(DTYPES[dtype]), step.axes)
    over = tuple(range(len(step.axes), len(position)))
    return Value(fold(step.combine, data, over, step.initial.value, dtype), step.axes)


def sizes_of(chain: Chain, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Sizes of the axes, from the chain and from the inputs' shapes.

    Raises:
        ChainError: shapes contradict each other or the chain, or an axis has no size.
    """
    sizes = {axis.name: axis.size for axis in chain.axes if axis.size is not None}
    for value in chain.inputs:
        if value.name not in arrays:
            raise ChainError(f"input {value.name} is missing")
        shape = np.shape(arrays[value.name])
        if len(shape) != len(value.axes):
            raise ChainError(f"input {value.name} has {len(shape)} dimensions, not {len(value.axes)}")
        for axis, size in zip(value.axes, shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ChainError(f"axis {axis} has {sizes[axis]} positions, input {value.name} has {size}")
    if missing := [axis.name for axis in chain.axes if axis.name not in sizes]:
        raise ChainError(f"no input tells the size of {missing}")
    return sizes


def inputs_of(chain: Chain, arrays: Mapping[str, Array], space: Space) -> dict[str, Value]:
    """The inputs as named arrays in the element types that they are computed in."""
    return {
        value.name: Value(np.asarray(arrays[value.name]).astype(DTYPES[space.dtype(value.dtype)]), value.axes)
        for value in chain.inputs
    }


def interpret(chain: Chain, arrays: Mapping[str, Array], wide: str | None = None) -> dict[str, Array]:
    """The outputs of a chain, computed step by step, each value in full.

    Args:
        chain: what to compute.
        arrays: the inputs by name, each of the shape of its axes.
        wide: an element type that all floats are computed in instead of their own; ``f64`` makes an oracle.

    Raises:
        ChainError: an input is missing or has the wrong shape.
    """
    space = Space(sizes_of(chain, arrays), {}, wide)
    env = inputs_of(chain, arrays, space)
    for step in chain.steps:
        env[step.name] = run_step(step, env, space)
    return {name: env[name].data for name in chain.outputs}
