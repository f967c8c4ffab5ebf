"""What a chain computes at some positions, in double precision, by its interpreter: kernels must give the same.

A whole result of a large convolution takes longer to interpret than all of its kernels together take to time. Of axes
that only say which result it is (filters, rows, batches) some positions are as good as all; the last is among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covan_mlir.fred.chain import Axis, Chain
from covan_mlir.fred.expression import Extent, Index, walk, windows
from covan_mlir.fred.interpret import interpret
from covan_mlir.fred.scalars import DTYPES, is_float

Array = NDArray[Any]

ENOUGH = 1 << 22
"""Positions that an expression is evaluated at, about: as many as take a tenth of a second."""
MOST = 1 << 27
"""More do not fit into memory."""
SLACK = 64.0
"""Roundings of a sum, in those that a random walk of as many takes: there are steps before and after it."""


class NoReferenceError(Exception):
    """A chain's reference cannot be computed; the message says why."""


@dataclass(frozen=True)
class Reference:
    """What is right at some positions.

    Attributes:
        places: of the axes that have some positions only, these.
        outputs: the chain's, at these positions.
        terms: that are summed for an element, at most.
        slack: how many times as large errors may be as those of direct sums.
    """

    chain: Chain
    places: Mapping[str, NDArray[np.int64]]
    outputs: Mapping[str, Array]
    terms: int
    slack: float

    def differs(self, results: Mapping[str, Array]) -> str:
        """What is wrong with a kernel's results; empty if nothing is."""
        for name, want in self.outputs.items():
            value = self.chain.values[name]
            got = _taken(results[name], value.axes, self.places)
            if got.shape != want.shape:
                return f"{name} has the shape {got.shape}, not {want.shape}"
            if not is_float(value.dtype):
                wrong = got != want
            else:
                rounded = self._rounded(name)
                unit = float(np.finfo(np.float64 if rounded == {"f64"} else np.float32).eps)
                half = 2.0**-7 if rounded & {"f16", "bf16"} else 0.0
                largest = float(np.abs(want, where=np.isfinite(want), out=np.zeros(want.shape)).max(initial=1.0))
                bound = (self.slack * SLACK * unit * self.terms**0.5 + half) * largest
                with np.errstate(invalid="ignore"):
                    near = np.abs(got.astype(np.float64) - want) <= bound
                wrong = ~(near | (got == want) | (np.isnan(got.astype(np.float64)) & np.isnan(want)))
            if wrong.any():
                place = tuple(map(int, np.argwhere(wrong)[0]))
                return f"{name} is {got[place]!s} at {place}, not {want[place]!s}"
        return ""

    def _rounded(self, name: str) -> set[str]:
        """Types of floats that a result, and what it is computed from, is rounded to."""
        steps = {step.name: step.dtype for step in self.chain.steps}
        return {steps[one] for one in (name, *self.chain.depends(name)) if one in steps and is_float(steps[one])}


def operands(chain: Chain, seed: int) -> dict[str, Array]:
    """Random inputs of a chain whose sizes are all known, by name: floats of a normal distribution, integers that are
    positions on each axis."""
    generator = np.random.default_rng(seed)
    smallest = max(1, min((axis.size or 1 for axis in chain.axes), default=1))
    arrays: dict[str, Array] = {}
    for value in chain.inputs:
        shape = [chain.known_sizes[axis] for axis in value.axes]
        if is_float(value.dtype):
            arrays[value.name] = generator.standard_normal(shape, np.float32).astype(DTYPES[value.dtype])
        else:
            most = 2 if value.dtype == "i1" else min(smallest, 100)
            arrays[value.name] = generator.integers(0, most, shape).astype(DTYPES[value.dtype])
    return arrays


def reference(chain: Chain, arrays: Mapping[str, Array], slack: float = 1.0) -> Reference:
    """The reference of a chain whose sizes are all known.

    Raises:
        NoReferenceError: it takes too much memory, or the interpreter does not know an operation.
    """
    places = _places(chain)
    sizes = {axis: len(at) for axis, at in places.items()}
    part = replace(chain, axes=tuple(Axis(axis.name, sizes.get(axis.name, axis.size)) for axis in chain.axes))
    if (count := _positions(part)) > MOST:
        raise NoReferenceError(f"its reference takes {count:,} positions at once")
    given = {value.name: _taken(arrays[value.name], value.axes, places) for value in chain.inputs}
    try:
        outputs = interpret(part, given, "f64")
    except (KeyError, ValueError, NotImplementedError) as error:
        raise NoReferenceError(f"its reference cannot be computed: {error}") from error
    terms = max((prod(chain.known_sizes[axis] for axis in step.over) for step in chain.reductions), default=1)
    return Reference(chain, places, outputs, terms, slack)


def _positions(chain: Chain) -> int:
    """At which its largest step is evaluated."""
    steps = [(*step.axes, *getattr(step, "over", ())) for step in chain.steps]
    return max(prod(chain.known_sizes[axis] for axis in axes) for axes in steps)


def _places(chain: Chain) -> dict[str, NDArray[np.int64]]:
    """Of axes that need not be looked at as a whole, some positions."""
    fixed = set(chain.swept)
    for step in chain.steps:
        for node in walk(step.expr):
            if isinstance(node, Index | Extent):
                fixed.add(node.axis)
        for window in windows(step.expr):
            fixed |= window.axes
    for name in chain.windowed:
        fixed |= set(chain.values[name].axes)
    shared = set[str].intersection(*(set(chain.values[name].axes) for name in chain.outputs)) - fixed
    sizes = dict(chain.known_sizes)
    generator = np.random.default_rng(len(chain.steps))
    places: dict[str, NDArray[np.int64]] = {}
    for axis in sorted(shared, key=lambda name: -sizes[name]):
        steps = [(*step.axes, *getattr(step, "over", ())) for step in chain.steps]
        count = max(prod(sizes[name] for name in axes) for axes in steps)
        if count <= ENOUGH:
            break
        kept = max(1, sizes[axis] * ENOUGH // count)
        if kept < sizes[axis]:
            others = generator.choice(sizes[axis] - 1, kept - 1, replace=False)
            places[axis] = np.sort(np.append(others, sizes[axis] - 1)).astype(np.int64)
            sizes[axis] = kept
    return places


def _taken(array: Array, axes: tuple[str, ...], places: Mapping[str, NDArray[np.int64]]) -> Array:
    for dimension, axis in enumerate(axes):
        if axis in places:
            array = np.take(array, places[axis], axis=dimension)
    return array
