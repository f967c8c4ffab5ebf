"""``linalg.generic`` at the positions of its results that are asked for."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from covan_mlir.checking.affine import AffineMap, affine_map
from covan_mlir.checking.field import PAIR, Exact, combined, dot
from covan_mlir.checking.payload import Scope, Value, inner_values, run
from covan_mlir.checking.tensors import Tensor, UnevaluatedError, spend, wide
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance.bodies import Block, Operation, shape_of

_AT_ONCE = 1 << 20
"""Points of an iteration space that are computed together."""
_PER_ELEMENT = 32
"""Multiplications of a product in the time in which an element is computed elsewhere."""
_ROUNDS = 1 << 14
"""Steps of a reduction that has to go one by one."""
FOLDS: Mapping[str, np.ufunc] = {
    "arith.addf": np.add,
    "arith.addi": np.add,
    "arith.mulf": np.multiply,
    "arith.muli": np.multiply,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}
"""Functions of two numbers whose order does not matter."""


def generic(op: Operation, operands: Sequence[Value], first: int, values: Mapping[int, Value]) -> list[Tensor]:
    """Its results.

    Args:
        first: number of the first value of its block.
        values: those around it, by number.
    """
    loop = _Loop.of(op, operands, first, values)
    return [
        Tensor(loop.outputs[r].shape, wide(shape_of(kind)[0]), functools.partial(loop.result, r))
        for r, kind in enumerate(op.types)
    ]


@dataclass
class _Loop:
    op: Operation
    inputs: list[Value]
    outputs: list[Any]
    maps: list[AffineMap]
    reduced: list[int]
    sizes: list[int]
    first: int
    values: dict[int, Value]

    @staticmethod
    def of(op: Operation, operands: Sequence[Value], first: int, values: Mapping[int, Value]) -> _Loop:
        attributes = op.attributes
        count = attributes["operandSegmentSizes"][0]
        maps = [affine_map(text) for text in attributes["indexing_maps"]]
        iterators = attributes["iterator_types"]
        sizes = list(attributes.get("sizes", [-1] * len(iterators)))
        for value, one in zip(operands, maps, strict=True):
            for k, dim in enumerate(one.plain):
                if dim is not None and isinstance(value, Tensor):
                    sizes[dim] = value.shape[k]
        reduced = [k for k, iterator in enumerate(iterators) if "parallel" not in iterator]
        if any(sizes[k] < 0 for k in reduced):
            raise UnevaluatedError(f"{op.name} over a dimension of unknown size")
        return _Loop(op, list(operands[:count]), list(operands[count:]), maps, reduced, sizes, first, dict(values))

    @property
    def block(self) -> Block:
        return self.op.blocks[0]

    def result(self, which: int, index: tuple[Array, ...]) -> Array:
        """The elements of a result at some positions."""
        count = index[0].size if index else 1
        position: list[Any] = [np.zeros(count, np.int64)] * len(self.sizes)
        for dim, place in zip(self.maps[len(self.inputs) + which].plain, index, strict=True):
            if dim is not None:
                position[dim] = place
        start = [self._at(len(self.inputs) + k, out, position) for k, out in enumerate(self.outputs)]
        if not self.reduced:
            return np.asarray(self._payload(position, start)[which])
        shape = [self.sizes[k] for k in self.reduced]
        if not prod(shape) or self.block.operations[-1].operands[which] == self._accumulator(which):
            return np.asarray(start[which])  # there is nothing to reduce, or nothing is added
        if (folded := self._folded(which)) is not None:
            return self._fold(which, *folded, position, start[which], shape)
        if prod(shape) > _ROUNDS:
            raise UnevaluatedError(f"{self.op.name} of {prod(shape)} steps that depend on each other")
        for point in np.ndindex(*shape):
            here = list(position)
            for k, place in zip(self.reduced, point, strict=True):
                here[k] = np.full(count, place, np.int64)
            start = [np.asarray(value) for value in self._payload(here, start)]
        return np.asarray(start[which])

    def _accumulator(self, which: int) -> int:
        return self.first + len(self.inputs) + which

    def _at(self, number: int, value: Value, position: Sequence[Array]) -> Array:
        if not isinstance(value, Tensor):
            return np.asarray(value)
        places = [
            np.broadcast_to(place, position[0].shape if position else (1,)) for place in self.maps[number](position)
        ]
        return value.at_index(places) if places else np.broadcast_to(value.at(np.zeros(1, np.int64)), (1,))

    def _payload(self, position: Sequence[Array], accumulators: Sequence[Value]) -> tuple[Value, ...]:
        read = [self._at(k, value, position) for k, value in enumerate(self.inputs)]
        return run(self.block, self.first, [*read, *accumulators], Scope(dict(self.values), position))

    def _folded(self, which: int) -> tuple[np.ufunc, int] | None:
        """How a reduction combines, and the number of what it combines, if that does not depend on what is there."""
        *operations, last = self.block.operations
        accumulators = set(range(self.first + len(self.inputs), self.first + len(self.block.arguments)))
        number = self.first + len(self.block.arguments)
        made: dict[int, Operation] = {}
        depends = set(accumulators)
        for operation in operations:
            number += inner_values(operation)
            results = range(number, number + len(operation.types))
            if operation.blocks or depends.intersection(operation.operands):
                depends.update(results)
            made.update(dict.fromkeys(results, operation))
            number += len(operation.types)
        combine = made.get(last.operands[which])
        if combine is None or combine.name not in FOLDS or len(combine.operands) != 2:
            return None
        others = [operand for operand in combine.operands if operand != self._accumulator(which)]
        if len(others) != 1 or others[0] in depends:
            return None
        return FOLDS[combine.name], others[0]

    def _fold(
        self, which: int, combine: np.ufunc, number: int, position: Sequence[Array], start: Array, shape: Sequence[int]
    ) -> Array:
        points, count = prod(shape), position[0].size
        total = np.broadcast_to(start, (count,))
        factors = self._factors(number) if combine is np.add else None
        step = max(1, _AT_ONCE // count)
        for begin in range(0, points, step):
            part = np.arange(begin, min(points, begin + step))
            inner: dict[int, Array] = dict(zip(self.reduced, np.unravel_index(part, shape), strict=True))
            if factors is not None:
                product = self._product(count, *(self._slab(k, position, inner) for k in factors))
                with np.errstate(all="ignore"):  # infinities may meet
                    total = (Exact.of(total) + product).pairs if total.dtype == PAIR else total + product
                continue
            spend(count * part.size, self.op.name)
            here = [
                inner[k][None] if k in inner else np.broadcast_to(place, (count,))[:, None]
                for k, place in enumerate(position)
            ]
            read = [held[rows] for held, rows in (self._slab(k, position, inner) for k in range(len(self.inputs)))]
            scope = Scope(dict(self.values), here)
            run(self.block, self.first, [*read, *(np.zeros(1, out.dtype) for out in self.outputs)], scope)
            values = np.broadcast_to(scope.values[number], (count, part.size))
            if values.dtype == PAIR:
                total = combined(combine, total, values, axis=1)
                continue
            with np.errstate(all="ignore"):
                total = combine(total, combine.reduce(values, axis=1))
        return np.asarray(total)

    def _slab(self, number: int, position: Sequence[Array], inner: Mapping[int, Array]) -> tuple[Array, Array]:
        """What an input holds for some points of a reduction: a row for each that differs, and which one each of the
        positions reads."""
        value, one = self.inputs[number], self.maps[number]
        count = position[0].size
        if not isinstance(value, Tensor):
            return np.asarray(value).reshape(1, 1), np.zeros(count, np.int64)
        outer = sorted(one.used - inner.keys())
        different, rows = _distinct(
            [np.broadcast_to(position[k], (count,)) for k in outer], [self.sizes[k] for k in outer]
        )
        here: list[Any] = [np.zeros((1, 1), np.int64)] * len(position)
        for k, row in zip(outer, different, strict=True):
            here[k] = row[:, None]
        for k in one.used & inner.keys():
            here[k] = inner[k][None]
        width = next((inner[k].size for k in one.used & inner.keys()), 1)
        height = different[0].size if outer else 1
        places = [np.broadcast_to(place, (height, width)) for place in one(here)]
        values = value.at_index(places) if places else value.at(np.zeros((1, 1), np.int64))
        return values, rows if outer else np.zeros(count, np.int64)

    def _factors(self, number: int) -> tuple[int, int] | None:
        """The two inputs of floats whose product the value with a number is; None: it is none."""
        defined: dict[int, Operation] = {}
        count = self.first + len(self.block.arguments)
        for operation in self.block.operations:
            if len(operation.types) != 1 or operation.blocks:
                break
            defined[count] = operation
            count += 1
        product = defined.get(number)
        if product is None or product.name != "arith.mulf":
            return None
        factors = []
        for operand in product.operands:
            while operand in defined and defined[operand].name in ("arith.extf", "arith.truncf"):
                (operand,) = defined[operand].operands  # floats of all widths are taken for real numbers
            factors.append(operand - self.first)
        one, other = factors
        inside = all(0 <= k < len(self.inputs) and isinstance(self.inputs[k], Tensor) for k in factors)
        return (one, other) if inside else None

    def _product(self, count: int, left: tuple[Array, Array], right: tuple[Array, Array]) -> Array:
        (one, rows), (other, columns) = left, right
        width = max(one.shape[1], other.shape[1])
        one, other = (np.broadcast_to(values, (values.shape[0], width)) for values in (one, other))
        if one.dtype == PAIR:
            spend(count * width, self.op.name)
            return dot(one[rows], other[columns])
        with np.errstate(all="ignore"):
            if one.shape[0] * other.shape[0] <= _PER_ELEMENT * count:
                spend(one.shape[0] * other.shape[0] * width // _PER_ELEMENT, self.op.name)
                return np.asarray((one @ other.T)[rows, columns])
            spend(count * width, self.op.name)
            return np.asarray(np.einsum("ij,ij->i", one[rows], other[columns]))


def _distinct(index: Sequence[Array], sizes: Sequence[int]) -> tuple[tuple[Array, ...], Array]:
    """Positions, each of them once, in row-major order, and which of those each one was."""
    if not index:
        return (), np.zeros(0, np.int64)
    flat = index[0].astype(np.int64)
    for place, size in zip(index[1:], sizes[1:], strict=True):
        flat = flat * size + place
    whole = prod(sizes)
    if whole <= _PER_ELEMENT * flat.size:  # to look all of them up is less work than to sort
        asked = np.zeros(whole, np.bool_)
        asked[flat] = True
        different = np.flatnonzero(asked)
        ranks = np.zeros(whole, np.int64)
        ranks[different] = np.arange(different.size)
        rows = ranks[flat]
    else:
        different, rows = np.unique(flat, return_inverse=True)
    return np.unravel_index(different, sizes), rows
