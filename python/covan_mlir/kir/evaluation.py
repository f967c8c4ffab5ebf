"""Operators on NumPy arrays, by what is said of them: their integers come from attributes, not from the region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Affine, Expr, Read, rebuild
from covan_mlir.fred.interpret import Space, Value, evaluate, inputs_of, run_step, sizes_of
from covan_mlir.fred.scalars import DTYPES, Array
from covan_mlir.kir.operators import Contraction, Dequantization, Factor, Operator, Requantization
from covan_mlir.kir.quantisation import operands_of

_BITS = 32


class Overflow(ArithmeticError):
    """A sum of products of steps has more bits than the accumulator."""


def run(chain: Chain, arrays: Mapping[str, Array], operator: Operator) -> dict[str, Array]:
    """The results of an operator that is known, by name; see `covan_mlir.kir.interpretation.interpret`."""
    space = Space(sizes_of(chain, arrays), {}, exact=True)
    held = {name: array.view(np.int8) if array.dtype == np.uint8 else array for name, array in arrays.items()}
    env = inputs_of(chain, held, space)
    reals: dict[Expr, Read] = {}
    for node, one in operands_of(chain).items():
        name = f"{one.name} as a number"
        while name in env:
            name += "'"
        env[name] = dequantized(one, env, space)
        reals[node] = Read(name, one.dtype)
    contraction = operator.contraction
    for step in chain.steps:
        if contraction is not None and step.name == contraction.name:
            env[step.name] = Value(sums(contraction, held, space.sizes), step.axes)
        else:
            env[step.name] = run_step(_with_reals(step, reals), env, space)
    results = {}
    for name, steps in zip(chain.outputs, operator.results, strict=True):
        axes = env[name].axes
        results[name] = env[name].data
        if steps is not None:
            given = quantized(steps, env, axes, space) if not operator.table else _looked_up(operator, env, axes, space)
            results[name] = given if steps.again is None else _numbers(steps.again, Value(given, axes), env, axes)
    return results


def _with_reals(step: Map | Reduce, reals: Mapping[Expr, Read]) -> Map | Reduce:
    return replace(step, expr=rebuild(step.expr, lambda node: reals.get(node, node))) if reals else step


def dequantized(one: Dequantization, env: Mapping[str, Value], space: Space) -> Value:
    """The numbers that steps of an input stand for, on the axes along which they are read."""
    axes = _axes(one, env)
    return Value(_numbers(one, Value(evaluate(one.steps, env, axes, space), axes), env, axes), axes)


def _axes(one: Dequantization, env: Mapping[str, Value]) -> tuple[str, ...]:
    read = env[one.name].axes if isinstance(one.steps, Read) else tuple(sorted(one.steps.axes))
    more = [axis for number in (one.zero, one.scale) if isinstance(number, str) for axis in env[number].axes]
    return tuple(dict.fromkeys((*read, *more)))


def _numbers(one: Dequantization, steps: Value, env: Mapping[str, Value], axes: tuple[str, ...]) -> Array:
    held = np.asarray(steps.at(axes)).astype(np.int8).view(np.int8 if one.signed else np.uint8)
    zero, scale = (_number(number, env, axes) for number in (one.zero, one.scale))
    kind = DTYPES[one.dtype]
    real: Array = (held.astype(np.int64) - zero.astype(np.int64)).astype(kind) * scale.astype(kind)
    return real


def _looked_up(operator: Operator, env: Mapping[str, Value], axes: tuple[str, ...], space: Space) -> Array:
    """Steps by their table."""
    (one,) = operator.operands
    held = np.asarray(evaluate(one.steps, env, axes, space)).astype(np.int8).view(np.int8 if one.signed else np.uint8)
    least = -len(operator.table) // 2 if one.signed else 0
    return np.asarray(operator.table, np.int32)[held.astype(np.int64) - least].astype(np.int8)


def sums(contraction: Contraction, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
    """Sums of products of steps, as integers of 32 bits; their dimensions are the contraction's axes.

    Raises:
        Overflow: one does not fit.
    """
    first, second = (_steps(factor, arrays[factor.name], sizes) for factor in (contraction.first, contraction.second))
    letters = {axis: n for n, axis in enumerate((*contraction.axes, *contraction.over))}
    operands = [part for one in (first, second) for part in (one.data, [letters[axis] for axis in one.axes])]
    total = np.einsum(*operands, [letters[axis] for axis in contraction.axes if axis in {*first.axes, *second.axes}])
    missing = [sizes[axis] for axis in contraction.over if axis not in {*first.axes, *second.axes}]
    total = total * int(np.prod(missing, dtype=np.int64))
    if total.size and int(np.abs(total).max()) >= 1 << (_BITS - 1):
        raise Overflow(f"a sum of {contraction.name} has more than {_BITS} bits")
    known = Value(total, tuple(axis for axis in contraction.axes if axis in {*first.axes, *second.axes}))
    return np.broadcast_to(known.at(contraction.axes), [sizes[axis] for axis in contraction.axes]).astype(np.int32)


def _steps(factor: Factor, array: Array, sizes: Mapping[str, int]) -> Value:
    """A factor less its zero point, at every position on its axes, as integers of 64 bits."""
    held = array.view(np.int8 if factor.signed else np.uint8).astype(np.int64)
    axes = tuple(sorted(factor.axes))
    inside = np.ones([sizes[axis] for axis in axes], np.bool_)
    places = []
    for at, size in zip(factor.at, held.shape, strict=True):
        place = _places(at, axes, sizes)
        inside &= (place >= 0) & (place < size)
        places.append(place.clip(0, max(size - 1, 0)))
    outside = 0 if factor.outside is None else factor.outside
    steps = np.where(inside, held[tuple(places)], outside) if held.size else np.full(inside.shape, outside)
    return Value(steps - factor.zero, axes)


def _places(at: Affine, axes: tuple[str, ...], sizes: Mapping[str, int]) -> Array:
    place = np.full([sizes[axis] for axis in axes], at.offset, np.int64)
    for axis, coefficient in at.terms:
        place = place + coefficient * Value(np.arange(sizes[axis]), (axis,)).at(axes)
    return place


def quantized(steps: Requantization, env: Mapping[str, Value], axes: tuple[str, ...], space: Space) -> Array:
    """A result in steps, as integers of 8 bits with a sign: the bits are the steps', whatever sign these have."""
    shape = [space.sizes[axis] for axis in axes]
    real = np.broadcast_to(evaluate(steps.real, env, axes, space), shape)
    factor, zero = (_number(number, env, axes).astype(real.dtype) for number in (steps.factor, steps.zero))
    rounded: Array = np.rint(real / factor if steps.divided else real * factor) + zero
    return rounded.clip(steps.least, steps.largest).astype(np.int32).astype(np.int8).reshape(shape)


def _number(number: float | str, env: Mapping[str, Value], axes: tuple[str, ...]) -> Array:
    return env[number].at(axes) if isinstance(number, str) else np.asarray(number)
