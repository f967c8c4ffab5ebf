"""Values of IREE's module that follow from constants alone, computed by numpy.

What weights are prepared in is a handful of operations of linalg, tensor and arith. IREE would compile a program for
them, and run it, which takes longer than all kernels of a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from covan_mlir.fred.scalars import DTYPES, Array, compute, is_float, is_known
from covan_mlir.lowering.kernels import resources

_INTEGERS = ("i8", "i32")
"""Of weights that are integers, and of sums of them."""


class UnknownError(Exception):
    """A value that is not computed here; the message says what of."""


def result(op: Any, values: Mapping[Any, Array]) -> Array:
    """The result of an operation of IREE's context, in which the caller is.

    Products of many factors and sums of many terms are rounded as numpy orders them.

    Args:
        values: of all that the operation and its regions read.

    Raises:
        UnknownError: it is none of those that weights are prepared by.
    """
    if op.name not in _OPERATIONS:
        raise UnknownError(f"{op.name} is not evaluated")
    return _OPERATIONS[op.name](op, values)


def call(function: Any, arguments: Sequence[Array]) -> Array:
    """The result of a function of one block and one result.

    Raises:
        UnknownError: an operation of it is none of those that weights are prepared by.
    """
    (block,) = function.regions[0].blocks
    *ops, returned = [view.operation for view in block]
    values = dict(zip(block.arguments, arguments, strict=True))
    for op in ops:
        values[op.result] = result(op, values)
    return np.ascontiguousarray(values[returned.operands[0]])


def _constant(op: Any, _: Mapping[Any, Array]) -> Array:
    import iree.compiler.ir as ir

    attribute = op.attributes["value"]
    if isinstance(op.result.type, ir.FloatType):
        return np.asarray(attribute.value, _dtype(op.result.type))
    if isinstance(op.result.type, ir.IndexType | ir.IntegerType):  # of slices and pads, which hold it themselves, too
        return np.asarray(attribute.value)
    shape, dtype = _kind(op.result)
    if isinstance(attribute, ir.DenseElementsAttr):
        if attribute.is_splat:
            return np.full(shape, attribute.get_splat_value().value, dtype)
        if dtype.name not in ("float32", "float64"):
            raise UnknownError(f"a constant of {op.result.type} is not evaluated")
        return np.array(attribute).reshape(shape)
    # The bindings do not say by its class that an attribute is a resource.
    try:
        held = resources.data(ir.DenseResourceElementsAttr(attribute), prod(shape) * dtype.itemsize)
    except ValueError as error:
        raise UnknownError(f"a constant of {op.result.type} is not evaluated: {error}") from error
    return np.frombuffer(held, dtype).reshape(shape)


def _empty(op: Any, _: Mapping[Any, Array]) -> Array:
    shape, dtype = _kind(op.result)
    return np.broadcast_to(np.zeros((), dtype), shape)


def _fill(op: Any, values: Mapping[Any, Array]) -> Array:
    return np.broadcast_to(values[op.operands[0]], _kind(op.result)[0])


def _reshape(op: Any, values: Mapping[Any, Array]) -> Array:
    return values[op.operands[0]].reshape(_kind(op.result)[0])


def _transpose(op: Any, values: Mapping[Any, Array]) -> Array:
    return values[op.operands[0]].transpose(_numbers(op, "permutation"))


def _pad(op: Any, values: Mapping[Any, Array]) -> Array:
    (block,) = op.regions[0].blocks
    *computed, end = [view.operation for view in block]
    if computed or end.operands[0] not in values or len(op.operands) > 1:
        raise UnknownError("padding that varies is not evaluated")
    width = list(zip(_numbers(op, "static_low"), _numbers(op, "static_high"), strict=True))
    return np.pad(values[op.operands[0]], width, constant_values=values[end.operands[0]])


def _pack(op: Any, values: Mapping[Any, Array]) -> Array:
    value, _, *filling = [values[operand] for operand in op.operands]
    positions, tiles = _numbers(op, "inner_dims_pos"), _numbers(op, "static_inner_tiles")
    order = _numbers(op, "outer_dims_perm") or list(range(value.ndim))
    if len(filling) > 1 or min(tiles) < 0:
        raise UnknownError("tiles of sizes known at run time only are not evaluated")
    tile = dict(zip(positions, tiles, strict=True))
    missing = [(0, -size % tile.get(axis, 1)) for axis, size in enumerate(value.shape)]
    if any(high for _, high in missing):
        value = np.pad(value, missing, constant_values=filling[0] if filling else 0)
    split: list[int] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    for axis, size in enumerate(value.shape):
        outer[axis] = len(split)
        split.append(size // tile.get(axis, 1))
        if axis in tile:
            inner[axis] = len(split)
            split.append(tile[axis])
    return value.reshape(split).transpose([outer[axis] for axis in order] + [inner[axis] for axis in positions])


def _generic(op: Any, values: Mapping[Any, Array]) -> Array:
    """One loop nest: of independent iterations; or of sums of products, of what it is given and no more."""
    from iree.compiler.dialects import linalg

    (block,) = op.regions[0].blocks
    *before, end = [view.operation for view in block]
    *axes, written = [_axes(indexing) for indexing in linalg.get_indexing_maps(op)]
    *given, initial = [values[operand] for operand in op.operands]
    if not set().union(*axes) <= set(written):
        return np.asarray(initial + _sum_of_products(block, end, given, axes, written))
    aligned = [_aligned(value, own, written) for value, own in zip(given, axes, strict=True)]
    inside = {**values, **dict(zip(block.arguments, [*aligned, _aligned(initial, written, written)], strict=True))}
    for inner in before:
        if not is_known(inner.name):
            raise UnknownError(f"{inner.name} is not evaluated")
        dtype = _dtype(inner.result.type)
        operands = tuple(inside[operand] for operand in inner.operands)
        inside[inner.result] = compute(inner.name, operands, _name(inner.result.type)).astype(dtype, copy=False)
    return np.broadcast_to(inside[end.operands[0]], _kind(op.result)[0])


def _sum_of_products(block: Any, end: Any, operands: list[Array], axes: list[list[int]], written: list[int]) -> Array:
    """What a loop nest adds to its initial value."""
    *arguments, total = block.arguments
    add = end.operands[0].owner
    if getattr(add, "name", "") not in ("arith.addf", "arith.addi") or total not in add.operands:
        raise UnknownError("a reduction that is no sum is not evaluated")
    (term,) = [operand for operand in add.operands if operand != total]
    dtype = _dtype(total.type)
    factors: list[Any] = []
    waiting = [term]
    while waiting:
        factor = waiting.pop()
        if factor in arguments:
            number = arguments.index(factor)
            factors += [operands[number].astype(dtype), axes[number]]
        elif getattr(factor.owner, "name", "") in ("arith.mulf", "arith.muli", "arith.extf", "arith.extsi"):
            waiting += factor.owner.operands
        else:
            raise UnknownError("a sum of other than products is not evaluated")
    total_of: Array = np.einsum(*factors, written, optimize=True)
    return total_of


def _aligned(value: Array, axes: list[int], written: list[int]) -> Array:
    """A view that broadcasts to the axes of the result."""
    present = [axis for axis in written if axis in axes]
    ordered = value.transpose([axes.index(axis) for axis in present])
    return ordered[tuple(slice(None) if axis in axes else np.newaxis for axis in written)]


def _axes(map_: Any) -> list[int]:
    """The loops that index an operand's dimensions."""
    import iree.compiler.ir as ir

    expressions = ir.AffineMapAttr(map_).value.results
    if not all(isinstance(expression, ir.AffineDimExpr) for expression in expressions):
        raise UnknownError("reading at other than loops' own positions is not evaluated")
    return [expression.position for expression in expressions]


def _kind(value: Any) -> tuple[list[int], np.dtype[Any]]:
    import iree.compiler.ir as ir

    kind = ir.RankedTensorType(value.type)
    if not kind.has_static_shape:
        raise UnknownError(f"{kind} is of a size known at run time only")
    return list(kind.shape), _dtype(kind.element_type)


def _dtype(kind: Any) -> np.dtype[Any]:
    return DTYPES[_name(kind)]


def _name(kind: Any) -> str:
    name = str(kind)
    if not is_float(name) and name not in _INTEGERS:
        raise UnknownError(f"elements of {name} are not evaluated")
    return name


def _numbers(op: Any, name: str) -> list[int]:
    return list(op.attributes[name]) if name in op.attributes else []


_OPERATIONS: dict[str, Callable[[Any, Mapping[Any, Array]], Array]] = {
    "arith.constant": _constant,
    "linalg.fill": _fill,
    "linalg.generic": _generic,
    "linalg.pack": _pack,
    "linalg.transpose": _transpose,
    "tensor.collapse_shape": _reshape,
    "tensor.empty": _empty,
    "tensor.expand_shape": _reshape,
    "tensor.pad": _pad,
}
