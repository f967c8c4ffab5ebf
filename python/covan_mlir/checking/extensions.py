"""IREE's operations beside linalg: prefix reductions, scatters, sorting. Each is computed in full."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from covan_mlir.checking.generic import FOLDS
from covan_mlir.checking.payload import Scope, Value, run
from covan_mlir.checking.tensors import Tensor, UnevaluatedError
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance.bodies import Operation

_WORK = 1 << 22
"""Elements of what is computed in full."""
_COMPARISONS = 1 << 15


def extension(op: Operation, operands: Sequence[Value], first: int, values: Mapping[int, Value]) -> list[Tensor] | None:
    """The results of one of these operations; None of any other."""
    compute = _COMPUTE.get(op.name)
    if compute is None:
        return None
    if any(isinstance(operand, Tensor) and operand.size > _WORK for operand in operands):
        raise UnevaluatedError(f"{op.name} of so many elements")
    outputs = operands[-len(op.types) :]

    @functools.cache
    def computed() -> list[Array]:
        return compute(op, operands, first, dict(values))

    def result(number: int, index: tuple[Array, ...]) -> Array:
        return np.asarray(computed()[number][index])

    return [Tensor(out.shape, out.dtype, functools.partial(result, number)) for number, out in enumerate(outputs)]


def _combined(op: Operation, first: int, values: dict[int, Value], one: Array, other: Array) -> Array:
    (result,) = run(op.blocks[0], first, (one, other), Scope(values, ()))
    return np.asarray(result)


def _folded(op: Operation, first: int, *values: Array) -> np.ufunc | None:
    """The function that combines two numbers where the block does nothing else, on numbers that it takes."""
    numbers = first, first + 1
    match op.blocks[0].operations:
        case (combine, last) if last.operands == (first + 2,) and sorted(combine.operands) == sorted(numbers):
            kinds = {value.dtype for value in values}
            return FOLDS.get(combine.name) if len(kinds) == 1 and kinds.pop().kind in "iuf" else None
    return None


def _scan(op: Operation, operands: Sequence[Value], first: int, values: dict[int, Value]) -> list[Array]:
    source, _, start = (operand.all() for operand in operands)
    dim = op.attributes["dimension"]
    rows = np.moveaxis(source, dim, 0)
    if len(rows) and (function := _folded(op, first, source, start)) is not None:
        with np.errstate(all="ignore"):
            totals = function.accumulate(np.concatenate([start[None], rows]), axis=0, dtype=rows.dtype)
        result = totals[1:] if op.attributes["inclusive"] else totals[:-1]
        return [np.moveaxis(result, 0, dim), totals[-1]]
    total = start
    scanned = []
    for row in rows:
        before = total
        total = _combined(op, first, values, total, row)
        scanned.append(total if op.attributes["inclusive"] else before)
    result = np.moveaxis(np.stack(scanned), 0, dim) if scanned else source
    return [result, total]


def _scatter(op: Operation, operands: Sequence[Value], first: int, values: dict[int, Value]) -> list[Array]:
    updates, indices, target = (operand.all() for operand in operands)
    places = op.attributes["dimension_map"]
    if len(places) == 1 and (indices.ndim == 0 or indices.shape[-1] != 1 or indices.ndim > updates.ndim):
        indices = indices[..., None]
    batch = indices.shape[:-1]
    slices = updates.ndim - len(batch)
    pieces = updates.reshape(prod(batch), *updates.shape[len(batch) :])
    starts = np.zeros((prod(batch), target.ndim), np.int64)
    starts[:, list(places)] = indices.reshape(prod(batch), -1)
    sizes = np.array([1] * (target.ndim - slices) + list(pieces.shape[1:]), np.int64)
    inside = ((starts >= 0) & (starts + sizes <= np.array(target.shape, np.int64))).all(1)
    result = target.copy()
    function = _folded(op, first, updates, target)
    taken = [last.operands for last in op.blocks[0].operations] == [(first,)]
    if (function is not None or taken) and target.dtype == updates.dtype:
        index = _places(starts[inside], sizes)
        written = pieces[inside].reshape(-1, *sizes)
        if function is None:
            result[index] = written  # where places are repeated, the last one stays
        else:
            with np.errstate(all="ignore"):
                function.at(result, index, written)
        return [result]
    for start, piece in zip(starts[inside], pieces[inside], strict=True):
        here = tuple(slice(low, low + size) for low, size in zip(start, sizes, strict=True))
        before = result[here]
        result[here] = _combined(op, first, values, piece.reshape(before.shape), before)
    return [result]


def _places(starts: Array, sizes: Array) -> tuple[Array, ...]:
    """For each dimension, the positions of some boxes of one size: a row for each box."""
    inner = np.indices(tuple(sizes))
    ones = (1,) * len(sizes)
    return tuple(starts[:, dim].reshape(-1, *ones) + inner[dim] for dim in range(len(sizes)))


def _sort(op: Operation, operands: Sequence[Value], first: int, values: dict[int, Value]) -> list[Array]:
    dim = op.attributes["dimension"]
    columns = [np.moveaxis(operand.all(), dim, -1).copy() for operand in operands]
    size = columns[0].shape[-1]
    if columns[0].size * max(1, size.bit_length()) > _COMPARISONS:
        raise UnevaluatedError(f"{op.name} of so many elements")
    for row in np.ndindex(*columns[0].shape[:-1]):
        items = [column[row].copy() for column in columns]

        def compare(a: int, b: int, items: list[Array] = items) -> int:
            pairs = [item[[k]] for item in items for k in (a, b)]
            (before,) = run(op.blocks[0], first, pairs, Scope(values, ()))
            return -1 if bool(np.asarray(before).reshape(-1)[0]) else 1

        order = sorted(range(size), key=functools.cmp_to_key(compare))
        for column, item in zip(columns, items, strict=True):
            column[row] = item[order]
    return [np.moveaxis(column, -1, dim) for column in columns]


_COMPUTE = {"iree_linalg_ext.scan": _scan, "iree_linalg_ext.scatter": _scatter, "iree_linalg_ext.sort": _sort}
