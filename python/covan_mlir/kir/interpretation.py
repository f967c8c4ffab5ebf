"""What operators compute, on NumPy arrays: the meaning of their integers, to the bit.

Sums are exact. What an operator does with its sums besides is arithmetic in the element types that it says, of which
each operation is rounded once; of transcendental functions (``math.erf``, ``math.exp``) kernels have approximations of
their own, and a result near the border between two steps may be the other one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine
from covan_mlir.fred.interpret import Space, Value, evaluate, inputs_of, run_step, sizes_of
from covan_mlir.fred.scalars import Array
from covan_mlir.kir.operators import Contraction, Factor, Operator, Requantization
from covan_mlir.kir.recognition import operator_of

_BITS = 32


class Overflow(ArithmeticError):
    """A sum of products of steps has more bits than the accumulator."""


def interpret(chain: Chain, arrays: Mapping[str, Array], operator: Operator | None = None) -> dict[str, Array]:
    """The results of an operator, by name.

    Args:
        chain: the formula of the operator: where its values are, and what it does with its sums.
        arrays: the inputs by name, each of the shape of its axes; steps as integers of 8 bits, with a sign or without.
        operator: what the chain is, if that is known.

    Raises:
        ChainError: an input is missing or has the wrong shape.
        Overflow: a sum does not fit the accumulator: machines would wrap it around, silently.
    """
    operator = operator or operator_of(chain)
    space = Space(sizes_of(chain, arrays), {})
    held = {name: array.view(np.int8) if array.dtype == np.uint8 else array for name, array in arrays.items()}
    env = inputs_of(chain, held, space)
    contraction = operator.contraction
    for step in chain.steps:
        if contraction is not None and step.name == contraction.name:
            env[step.name] = Value(sums(contraction, held, space.sizes), step.axes)
        else:
            env[step.name] = run_step(step, env, space)
    results = {}
    for name, steps in zip(chain.outputs, operator.results, strict=True):
        axes = env[name].axes
        shape = [space.sizes[axis] for axis in axes]
        results[name] = env[name].data if steps is None else _quantized(steps, env, axes, space).reshape(shape)
    return results


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


def _quantized(steps: Requantization, env: Mapping[str, Value], axes: tuple[str, ...], space: Space) -> Array:
    """A result in steps, as integers of 8 bits with a sign: the bits are the steps', whatever sign these have."""
    real = np.broadcast_to(evaluate(steps.real, env, axes, space), [space.sizes[axis] for axis in axes])
    factor, zero = (_number(number, env, axes).astype(real.dtype) for number in (steps.factor, steps.zero))
    rounded: Array = np.rint(real / factor if steps.divided else real * factor) + zero
    return rounded.clip(steps.least, steps.largest).astype(np.int32).astype(np.int8)


def _number(number: float | str, env: Mapping[str, Value], axes: tuple[str, ...]) -> Array:
    return env[number].at(axes) if isinstance(number, str) else np.asarray(number)
