"""Scalar code of bodies (the payload of a ``linalg.generic``, the region of a pad), at many positions at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from covan_mlir.checking.affine import INDICES, affine_map
from covan_mlir.checking.bits import bits_of, crosses
from covan_mlir.checking.field import PAIR
from covan_mlir.checking.field_code import computed
from covan_mlir.checking.tensors import Held, Tensor, UnevaluatedError, cast, is_float, poison, splat, wide
from covan_mlir.fred.scalars import Array, UnknownOperationError, compute
from covan_mlir.provenance.bodies import Block, Operation, shape_of

Value = Any
"""A `Tensor`, or numbers: an array of the positions' shape, or of no dimension."""
_YIELDS = frozenset({"linalg.yield", "scf.yield", "tensor.yield", "iree_linalg_ext.yield", "scf.condition"})
_HALF = frozenset({"f16", "bf16"})
_SIGNED = frozenset({"arith.extsi", "arith.sitofp", "arith.index_cast"})
_COMPLEX: Mapping[str, Callable[..., Any]] = {
    "complex.create": lambda real, imaginary: _complex(np.asarray(real), np.asarray(imaginary)),
    "complex.re": np.real,
    "complex.im": np.imag,
    "complex.abs": np.abs,
    "complex.angle": np.angle,
    "complex.conj": np.conj,
    "complex.neg": np.negative,
    "complex.add": np.add,
    "complex.sub": np.subtract,
    "complex.mul": np.multiply,
    "complex.div": np.divide,
    "complex.exp": np.exp,
    "complex.log": np.log,
    "complex.sqrt": np.sqrt,
    "complex.eq": np.equal,
    "complex.neq": np.not_equal,
}


def _complex(real: Array, imaginary: Array) -> Array:
    """Of its halves, of which one may be infinite: that times ``1j`` would be NaN in the other."""
    whole = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.complex128)
    whole.real, whole.imag = real, imaginary
    return whole


_ALIKE = ("iree_tensor_ext.dispatch.workload.ordinal", "util.assume.int", "util.optimization_barrier")


def inner_values(operation: Operation) -> int:
    """How many values an operation's blocks define."""
    return sum(map(block_values, operation.blocks)) if operation.blocks else 0


def block_values(block: Block) -> int:
    """How many values a block defines."""
    count = len(block.arguments)
    for operation in block.operations:
        count += inner_values(operation) + len(operation.types)
    return count


def element(kind: str) -> str:
    """As `covan_mlir.fred.scalars` has it: all floats are wide."""
    name = shape_of(kind)[0]
    return "f64" if is_float(name) else name


def number(value: Any, kind: str) -> Array:
    """A constant."""
    return _cast(float(value) if isinstance(value, str) else value, shape_of(kind)[0])


class _Literal(np.ndarray):
    """A number of code.

    Attributes:
        held: what it is.
    """

    held: float


def _cast(value: Any, name: str) -> Array:
    return cast(value, wide(name), half=name in _HALF)


@dataclass
class Scope:
    """Values by number, and where the code runs.

    Attributes:
        values: of the code around, too.
        position: the position on each dimension of what holds the code.
    """

    values: dict[int, Value]
    position: Sequence[Array] = ()


def run(block: Block, first: int, arguments: Sequence[Value], scope: Scope) -> tuple[Value, ...]:
    """What a block yields.

    Args:
        first: number of its first value.

    Raises:
        UnevaluatedError: an operation in it is not known.
    """
    values = scope.values
    values.update(zip(range(first, first + len(block.arguments)), arguments, strict=True))
    count = first + len(block.arguments)
    for operation in block.operations:
        operands = [values[n] for n in operation.operands]
        if operation.name in _YIELDS:
            return tuple(operands)
        results = _scalar(operation, operands, count, scope)
        count += inner_values(operation)
        for result in results:
            values[count] = result
            count += 1
    return ()


def _scalar(operation: Operation, operands: list[Value], first: int, scope: Scope) -> Sequence[Value]:
    name, attributes = operation.name, operation.attributes
    if name in _SPECIAL:
        return [_SPECIAL[name](operation, operands, scope)]
    if name in INDICES:
        return INDICES[name](operation, operands)
    if name == "scf.if":
        return _chosen(operation, operands[0], first, scope)
    if name in ("cf.assert", "util.assume.int") and not operation.types:
        return []
    if name in _ALIKE:
        return operands
    if name == "affine.apply":
        return [np.asarray(affine_map(attributes["map"])(operands)[0])]
    return [arithmetic(operation, operands)]


def arithmetic(operation: Operation, operands: Sequence[Value]) -> Array:
    """One operation of arith or math, on numbers."""
    if any(isinstance(operand, Tensor) for operand in operands) or len(operation.types) != 1:
        raise UnevaluatedError(operation.name)
    if operation.name in _COMPLEX:
        if wide("f64") == PAIR:
            raise UnevaluatedError(operation.name)
        with np.errstate(all="ignore"):  # Infinities and NaN are values as any others.
            return np.asarray(_COMPLEX[operation.name](*operands))
    kind = element(operation.types[0])
    if operation.name == "arith.truncf" and operation.types[0] == "f32" and isinstance(operands[0], _Literal):
        return number(float(np.float32(operands[0].held)), "f64")  # as numbers of the source are
    if operation.name == "arith.bitcast" and crosses(operands[0].dtype, kind):
        return bits_of(np.asarray(operands[0]), kind)
    args = tuple(np.asarray(operand) for operand in operands)
    if operation.name in _SIGNED and args[0].dtype == np.bool_:
        args = (-args[0].astype(np.int8),)
    try:
        if wide("f64") == PAIR:
            return computed(operation.name, args, kind)
        return compute(operation.name, args, kind)
    except (UnknownOperationError, KeyError, TypeError) as error:
        raise UnevaluatedError(operation.name) from error


def _chosen(operation: Operation, condition: Value, first: int, scope: Scope) -> Sequence[Value]:
    """Both ways, and of each position its own."""
    ways = []
    for block in operation.blocks:
        ways.append(run(block, first, (), scope))
        first += block_values(block)
    if any(isinstance(value, Tensor) for way in ways for value in way):
        raise UnevaluatedError(operation.name)
    return [np.where(condition, *pair) for pair in zip(*ways, strict=True)]


def _constant(operation: Operation, operands: list[Value], scope: Scope) -> Value:
    return constant(operation)


def constant(operation: Operation) -> Value:
    """A number, or a tensor of numbers."""
    value, kind = operation.attributes["value"], operation.types[0]
    name, shape = shape_of(kind)
    if shape is None:
        literal = number(value, kind).view(_Literal)
        literal.held = float(value)
        return literal
    if "splat" in value:
        return splat(number(value["splat"], name), shape, wide(name))
    held = [float(item) if isinstance(item, str) else item for item in value["elements"]]
    return Held(_cast(np.array(held), name).reshape(shape))


def _index(operation: Operation, operands: list[Value], scope: Scope) -> Value:
    dim = operation.attributes["dim"]
    if dim >= len(scope.position):
        raise UnevaluatedError(operation.name)
    return scope.position[dim]


def _extract(operation: Operation, operands: list[Value], scope: Scope) -> Value:
    source, *index = operands
    places = np.broadcast_arrays(*(np.asarray(place, np.int64) for place in index)) if index else []
    return source.at_index([np.atleast_1d(place) for place in places])


def _dim(operation: Operation, operands: list[Value], scope: Scope) -> Value:
    position: Any = operation.attributes.get("index", operands[1] if len(operands) > 1 else 0)
    return np.int64(operands[0].shape[int(position)])


def _window(operation: Operation, operands: list[Value], scope: Scope) -> Value:
    (source,) = operands
    outside = number(operation.attributes["outside"], operation.types[0])
    inside: Any = np.True_
    places = affine_map(operation.attributes["at"])(scope.position)
    for place, size in zip(places, source.shape, strict=True):
        inside = inside & (place >= 0) & (place < size)
    inside = np.asarray(inside)
    places = [np.broadcast_to(place, inside.shape) for place in places]
    values = np.full(inside.shape, outside, source.dtype)
    values[inside] = source.at_index([place[inside] for place in places])
    return values


_SPECIAL: Mapping[str, Callable[[Operation, list[Value], Scope], Value]] = {
    "arith.constant": _constant,
    "linalg.index": _index,
    "tensor.extract": _extract,
    "tensor.dim": _dim,
    "hal.buffer_view.dim": _dim,
    "fred.window": _window,
}


def undefined_number(kind: str) -> Any:
    """A number that nothing defines."""
    return poison(wide(shape_of(kind)[0]))
