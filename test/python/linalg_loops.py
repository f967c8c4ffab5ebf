"""Functions of linalg on tensors, run loop by loop in Python: what `fred-lower` writes for windows, and no more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from covan_mlir.dialects.fred_scalars import constant

Array = np.ndarray[Any, Any]
OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "arith.addf": lambda a, b: a + b,
    "arith.mulf": lambda a, b: a * b,
    "arith.maximumf": max,
}


def run(function: Any, arrays: Sequence[Array]) -> Array:
    """What a function with one result gives, all sizes being static."""
    (block,) = function.regions[0].blocks
    values: dict[Any, Any] = dict(zip(block.arguments, arrays, strict=True))
    for view in block:
        op = view.operation
        if op.name == "func.return":
            result: Array = values[op.operands[0]]
            return result
        values[op.results[0]] = _operation(op, values)
    raise ValueError("the function does not return")


def _operation(op: Any, values: Mapping[Any, Any]) -> Any:
    attributes = op.attributes
    if op.name == "arith.constant":
        number = constant(attributes["value"])
        assert number is not None
        return number.value
    if op.name == "tensor.empty":
        return np.full(op.results[0].type.shape, np.nan, np.float32)
    if op.name == "linalg.fill":
        return np.full(op.results[0].type.shape, values[op.operands[0]], np.float32)
    if op.name == "tensor.pad":
        (view,) = op.regions[0].blocks[0]
        around = list(zip(attributes["static_low"], attributes["static_high"], strict=True))
        return np.pad(values[op.operands[0]], around, constant_values=values[view.operation.operands[0]])
    if op.name == "tensor.extract_slice":
        starts, sizes = attributes["static_offsets"], attributes["static_sizes"]
        return values[op.operands[0]][tuple(slice(a, a + size) for a, size in zip(starts, sizes, strict=True))]
    if op.name == "linalg.generic":
        return _generic(op, [values[operand] for operand in op.operands])
    raise ValueError(f"{op.name} is not known here")


def _generic(op: Any, operands: list[Array]) -> Array:
    maps = [attribute.value for attribute in op.attributes["indexing_maps"]]
    loops: dict[int, int] = {}
    for at, operand in zip(maps, operands, strict=True):
        for expr, size in zip(at.results, operand.shape, strict=True):
            text = str(expr)
            if text[0] == "d" and text[1:].isdigit() and loops.setdefault(int(text[1:]), size) != size:
                raise ValueError(f"loop {text} has {loops[int(text[1:])]} and {size} rounds")
    names = {f"d{number}" for number in range(maps[0].n_dims)}
    result = operands[-1].copy()
    for position in itertools.product(*(range(loops[number]) for number in range(len(names)))):
        by_name = {f"d{number}": place for number, place in enumerate(position)}
        places = [tuple(eval(str(expr), {}, by_name) for expr in at.results) for at in maps]
        if min((place for at in places for place in at), default=0) < 0:
            raise IndexError(f"{op} reads at a negative position")
        elements = [operand[at] for operand, at in zip((*operands[:-1], result), places, strict=True)]
        result[places[-1]] = _element(op.regions[0].blocks[0], elements)
    return result


def _element(block: Any, elements: Sequence[Any]) -> Any:
    scalars = dict(zip(block.arguments, elements, strict=True))
    for view in block:
        op = view.operation
        if op.name == "linalg.yield":
            return scalars[op.operands[0]]
        scalars[op.results[0]] = OPERATIONS[op.name](*(scalars[operand] for operand in op.operands))
    raise ValueError("the body yields nothing")
