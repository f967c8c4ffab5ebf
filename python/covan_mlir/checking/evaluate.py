"""Evaluates the body of a node (`covan_mlir.provenance.bodies`) on given operands, lazily: at the positions of its
results that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from covan_mlir.checking.affine import INDICES
from covan_mlir.checking.bits import read_as
from covan_mlir.checking.extensions import extension
from covan_mlir.checking.field import PAIR, Exact, softmax
from covan_mlir.checking.generic import generic
from covan_mlir.checking.payload import (
    Scope,
    Value,
    arithmetic,
    block_values,
    constant,
    inner_values,
    run,
)
from covan_mlir.checking.tensors import (
    Held,
    Reshaped,
    Tensor,
    UnevaluatedError,
    cast,
    inserted,
    resized,
    sliced,
    splat,
    undefined,
    wide,
)
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance.bodies import Body, Operation, shape_of

_DYNAMIC = -(2**63)
_TRIPS = 4096
Handler = Callable[["_Evaluator", Operation, list[Value], int], Sequence[Value]]


def evaluate(body: Body, inputs: Sequence[Value]) -> list[Tensor]:
    """The results of a body, given tensors and numbers.

    Raises:
        UnevaluatedError: an operation is not known; also later, when elements are asked for.
    """
    evaluator = _Evaluator(dict(enumerate(inputs)), body.inputs)
    evaluator.operations(body.operations, len(inputs))
    results = (evaluator.values[number] for number in body.results)
    return [value if isinstance(value, Tensor) else Held(np.asarray(value)) for value in results]


class _Evaluator:
    def __init__(self, values: dict[int, Value], inputs: Sequence[str]) -> None:
        self.values = values
        self.inputs = inputs

    def sized(self, number: int, sizes: Sequence[Value]) -> Value:
        """A value in the sizes that an operation says its operand has; an input comes in those of who gave it."""
        value, kind = self.values[number], self.inputs[number] if number < len(self.inputs) else ""
        if "?" not in kind or not sizes:
            return value
        rest = [int(size) for size in sizes]
        return resized(value, [rest.pop(0) if size < 0 else size for size in shape_of(kind)[1] or ()])

    def operations(self, operations: Sequence[Operation], count: int) -> tuple[Value, ...]:
        """Runs straight-line code whose first value has the number ``count``. -> what it yields"""
        for operation in operations:
            operands = [self.values[n] for n in operation.operands]
            if operation.name in ("scf.yield", "scf.condition"):
                return tuple(operands)
            results = self._run(operation, operands, count)
            count += inner_values(operation)
            self.values.update(zip(range(count, count + len(operation.types)), results, strict=True))
            count += len(operation.types)
        return ()

    def _run(self, operation: Operation, operands: list[Value], first: int) -> Sequence[Value]:
        name = operation.name
        if name in _HANDLERS:
            return _HANDLERS[name](self, operation, operands, first)
        if name in INDICES:
            return INDICES[name](operation, operands)
        if name in _SAME:
            return [read_as(_reshaped(operation, operands), operation.types[0])]
        if name.startswith(("arith.", "math.", "complex.")):
            return [_elementwise(operation, operands)]
        results = extension(operation, operands, first, self.values)
        if results is None:
            raise UnevaluatedError(name)
        return results


def _shape(operation: Operation, sizes: Sequence[Value] = (), result: int = 0) -> tuple[int, ...]:
    """That of a result; sizes that are known at run time only are given."""
    shape = shape_of(operation.types[result])[1]
    if shape is None:
        raise UnevaluatedError(operation.name)
    given = [int(size) for size in sizes]
    return tuple(given.pop(0) if size < 0 and given else size for size in shape)


def _element(operation: Operation, result: int = 0) -> np.dtype[Any]:
    return wide(shape_of(operation.types[result])[0])


def _reshaped(operation: Operation, operands: list[Value]) -> Tensor:
    source = operands[0]
    shape = list(_shape(operation))
    unknown = [k for k, size in enumerate(shape) if size < 0]
    sizes = operation.attributes.get("static_output_shape")
    if sizes is not None:
        shape = _mixed(sizes, operands[1:])
    elif len(shape) == len(source.shape):
        shape = list(source.shape)
    elif len(unknown) == 1:
        shape[unknown[0]] = source.size // max(1, prod(size for size in shape if size >= 0))
    elif unknown:
        groups = operation.attributes.get("reassociation")
        if groups is None or len(groups) != len(shape):
            raise UnevaluatedError(operation.name)
        shape = [prod(source.shape[k] for k in group) for group in groups]
    if source.dtype != _element(operation):
        raise UnevaluatedError(operation.name)
    return Reshaped(source, shape)


def _mixed(static: Sequence[int], dynamic: Sequence[Value]) -> list[int]:
    """Numbers of which some are known at run time only."""
    rest = list(dynamic)
    return [int(rest.pop(0)) if number == _DYNAMIC else number for number in static]


def _segments(operation: Operation, operands: Sequence[Value]) -> list[list[Value]]:
    start, segments = 0, []
    for size in operation.attributes["operandSegmentSizes"]:
        segments.append(list(operands[start : start + size]))
        start += size
    return segments


def _piece(operation: Operation, offsets: Sequence[Value], sizes: Sequence[Value], strides: Sequence[Value]) -> Any:
    names = ("static_offsets", "static_sizes", "static_strides")
    return [_mixed(operation.attributes[n], given) for n, given in zip(names, (offsets, sizes, strides), strict=True)]


def _extract_slice(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    groups = _segments(op, operands)
    offsets, sizes, strides = _piece(op, *groups[-3:])
    source = e.sized(op.operands[0], groups[1]) if len(groups) > 4 else groups[0][0]
    piece = sliced(source, offsets, sizes, strides)
    shape = _shape(op)
    if any(size < 0 for size in shape):
        dropped = len(sizes) - len(shape)
        shape = tuple(sizes) if not dropped else tuple(_fitted(sizes, shape))
    return [Reshaped(piece, shape)]


def _fitted(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The sizes of a slice without those unit dimensions that its type lacks."""
    drop = len(sizes) - len(shape)
    kept: list[int] = []
    for size in sizes:
        if drop and size == 1 and (len(kept) >= len(shape) or shape[len(kept)] != 1):
            drop -= 1
        else:
            kept.append(size)
    return kept


def _insert_slice(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    (source,), (target,), *rest = _segments(op, operands)
    return [inserted(source, target, *_piece(op, *rest[-3:]))]


def _store(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    (source,), _, sizes, *rest = _segments(op, operands)
    number_ = op.operands[1]
    e.values[number_] = inserted(source, e.sized(number_, sizes), *_piece(op, *rest[-3:]))
    return []


def _empty(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    return [undefined(_shape(op, operands), _element(op))]


def _constants(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    return [constant(op)]


def _fill(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    value, out = operands
    return [splat(value, out.shape, out.dtype)]


def _splat(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    return [splat(operands[0], _shape(op, operands[1:]), _element(op))]


def _from_elements(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    values = np.stack([np.asarray(value).reshape(-1)[0] for value in operands])
    return [Held(cast(values, _element(op)).reshape(_shape(op)))]


def _dim(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    position: Any = op.attributes.get("index", operands[1] if len(operands) > 1 else 0)
    return [np.int64(operands[0].shape[int(position)])]


def _extract(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    source, *index = operands
    return [source.at_index([np.asarray(place, np.int64).reshape(1) for place in index]).reshape(())]


def _load(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    (source,), _, index = _segments(op, operands)
    return _extract(e, op, [source, *index], first)


def _pad(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    (source,), low, high = _segments(op, operands)
    before, after = _mixed(op.attributes["static_low"], low), _mixed(op.attributes["static_high"], high)
    shape = [a + size + b for a, size, b in zip(before, source.shape, after, strict=True)]

    def around(index: tuple[Array, ...]) -> Array:
        (value,) = run(op.blocks[0], first, index, Scope(dict(e.values), index))
        return np.asarray(value)

    outer = Tensor(shape, source.dtype, around)
    return [inserted(source, outer, before, source.shape, [1] * len(shape))]


def _generate(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    values = dict(e.values)

    def compute(index: tuple[Array, ...]) -> Array:
        (value,) = run(op.blocks[0], first, index, Scope(dict(values), index))
        return np.asarray(value)

    return [Tensor(_shape(op, operands), _element(op), compute)]


def _concat(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    dim = op.attributes["dim"]
    shape = list(operands[0].shape)
    shape[dim] = sum(operand.shape[dim] for operand in operands)
    result, start = undefined(shape, operands[0].dtype), 0
    for operand in operands:
        offsets = [start if k == dim else 0 for k in range(len(shape))]
        result = inserted(operand, result, offsets, operand.shape, [1] * len(shape))
        start += operand.shape[dim]
    return [result]


def _generic(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    return generic(op, operands, first, e.values)


def _flow_slice(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    groups = _segments(op, operands)
    starts, lengths = [int(v) for v in groups[2]], [int(v) for v in groups[3]]
    source = e.sized(op.operands[0], groups[1])
    return [Reshaped(sliced(source, starts, lengths, [1] * len(starts)), lengths)]


def _flow_update(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    groups = _segments(op, operands)
    starts = [int(v) for v in groups[2]]
    target, update = e.sized(op.operands[0], groups[1]), e.sized(op.operands[-1 - len(groups[4])], groups[4])
    return [inserted(update, target, starts, update.shape, [1] * len(starts))]


def _for(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    start, stop, step, *carried = operands
    trips = range(int(start), int(stop), int(step))
    if len(trips) > _TRIPS:
        raise UnevaluatedError(f"{op.name} of {len(trips)} rounds")
    (block,) = op.blocks
    for position in trips:
        arguments = [np.int64(position), *carried]
        values = e.values | dict(zip(range(first, first + len(arguments)), arguments, strict=True))
        inner = _Evaluator(values, e.inputs)
        carried = list(inner.operations(block.operations, first + len(arguments)))
    return carried


def _if(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    for block, taken in zip(op.blocks, (True, False), strict=False):
        if bool(np.asarray(operands[0]).reshape(-1)[0]) is taken:
            return _Evaluator(dict(e.values), e.inputs).operations(block.operations, first)
        first += block_values(block)
    return []


def _softmax(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    source, dim = operands[0], op.attributes["dimension"]
    size = source.shape[dim]

    def compute(index: tuple[Array, ...]) -> Array:
        rows = [np.repeat(place[:, None], size, 1) for place in index]
        rows[dim] = np.broadcast_to(np.arange(size), rows[dim].shape)
        values = source.at_index(rows)
        if values.dtype == PAIR:
            shares = softmax(Exact.of(values), 1).pairs
            return np.asarray(np.take_along_axis(shares, index[dim][:, None], 1)[:, 0])
        with np.errstate(all="ignore"):
            powers = np.exp(values - values.max(1, keepdims=True))
            own = np.take_along_axis(powers, index[dim][:, None], 1)
            return np.asarray((own / powers.sum(1, keepdims=True))[:, 0])

    return [Tensor(source.shape, source.dtype, compute)]


def _elementwise(op: Operation, operands: list[Value]) -> Value:
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    if not tensors:
        return arithmetic(op, operands)

    def compute(index: tuple[Array, ...]) -> Array:
        return arithmetic(op, [o.at_index(index) if isinstance(o, Tensor) else o for o in operands])

    return Tensor(tensors[0].shape, _element(op), compute)


def _tied(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    """The value with the sizes that the program gives it."""
    return [resized(operands[0], _shape(op, operands[1:]))]


def _same(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    return operands[: len(op.types)]


def _nothing(e: _Evaluator, op: Operation, operands: list[Value], first: int) -> Sequence[Value]:
    return []


_SAME = frozenset(
    {
        "tensor.cast",
        "tensor.bitcast",
        "tensor.collapse_shape",
        "tensor.expand_shape",
        "flow.tensor.reshape",
        "flow.tensor.bitcast",
    }
)
_HANDLERS: Mapping[str, Handler] = {
    "linalg.generic": _generic,
    "linalg.fill": _fill,
    "linalg.softmax": _softmax,
    "arith.constant": _constants,
    "tensor.empty": _empty,
    "flow.tensor.empty": _empty,
    "flow.tensor.alloca": _empty,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "iree_tensor_ext.dispatch.tensor.load": _extract_slice,
    "iree_tensor_ext.dispatch.tensor.store": _store,
    "tensor.pad": _pad,
    "tensor.dim": _dim,
    "hal.buffer_view.dim": _dim,
    "tensor.extract": _extract,
    "flow.tensor.load": _load,
    "tensor.from_elements": _from_elements,
    "tensor.splat": _splat,
    "flow.tensor.splat": _splat,
    "tensor.generate": _generate,
    "tensor.concat": _concat,
    "flow.tensor.slice": _flow_slice,
    "flow.tensor.update": _flow_update,
    "scf.for": _for,
    "scf.if": _if,
    "flow.tensor.tie_shape": _tied,
    "flow.dispatch.tie_shape": _tied,
    "iree_tensor_ext.dispatch.tie_shape": _tied,
    "cf.assert": _nothing,
    **dict.fromkeys(
        (
            "flow.tensor.clone",
            "flow.tensor.transfer",
            "flow.tensor.encode",
            "util.optimization_barrier",
            "util.assume.int",
            "iree_tensor_ext.dispatch.workload.ordinal",
            "iree_tensor_ext.compute_barrier.start",
            "iree_tensor_ext.compute_barrier.end",
            "iree_encoding.set_encoding",
            "iree_encoding.unset_encoding",
        ),
        _same,
    ),
}
