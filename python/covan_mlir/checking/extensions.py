"""IREE's operations beside linalg: prefix reductions, scatters, sorting. Each is computed in full."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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


def _scan(op: Operation, operands: Sequence[Value], first: int, values: dict[int, Value]) -> list[Array]:
    source, _, start = (operand.all() for operand in operands)
    dim = op.attributes["dimension"]
    rows = np.moveaxis(source, dim, 0)
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
    result = target.copy()
    slices = updates.ndim - len(batch)
    for where in np.ndindex(*batch):
        start: list[Any] = [0] * target.ndim
        for dim, place in zip(places, indices[where], strict=True):
            start[dim] = int(place)
        piece = updates[where]
        index: list[Any] = [slice(place, place + 1) for place in start]
        for k, size in enumerate(piece.shape):
            dim = target.ndim - slices + k
            index[dim] = slice(start[dim], start[dim] + size)
        here = tuple(index)
        if any(part.start < 0 or part.stop > size for part, size in zip(here, target.shape, strict=True)):
            continue
        before = result[here]
        result[here] = _combined(op, first, values, piece.reshape(before.shape), before)
    return [result]


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
