"""Sequences and optionals: which tensors they hold is known, so that they are no tensors of the program."""

from __future__ import annotations

from typing import Any

import torch

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.translation.value import Value, known_number


@operator("SequenceConstruct", since=11)
def construct(call: Call) -> Any:
    """Of tensors."""
    return ([call.value(index) for index in range(call.count)],)


@operator("SequenceEmpty", since=11)
def empty(call: Call) -> Any:
    """Of nothing."""
    return ([],)


@operator("SequenceInsert", since=11)
def insert(call: Call) -> Any:
    """With one more tensor, at a place or at the end."""
    items = list(call.sequence(0))
    place = int(call.number(2, len(items)))
    items.insert(place + len(items) if place < 0 else place, call.value(1))
    return (items,)


@operator("SequenceErase", since=11)
def erase(call: Call) -> Any:
    """Without one tensor."""
    items = list(call.sequence(0))
    del items[int(call.number(1, -1))]
    return (items,)


@operator("SequenceAt", since=11)
def at(call: Call) -> Any:
    """One tensor."""
    return call.sequence(0)[int(call.number(1, 0))]


@operator("SequenceLength", since=11)
def length(call: Call) -> Value:
    """How many tensors."""
    return known_number(len(call.sequence(0)), torch.int64)


@operator("SplitToSequence", since=11)
def split(call: Call) -> Any:
    """Pieces of a tensor along an axis."""
    value, axis = call.tensor(0), call.integer("axis")
    if not call.has(1):
        pieces = value.split(1, axis)
        return ([piece if call.integer("keepdims", 1) else piece.squeeze(axis) for piece in pieces],)
    sizes = call.sizes(1)
    each: Any = sizes[0] if call.value(1).tensor.dim() == 0 else sizes
    return (list(value.split(each, axis)),)


@operator("ConcatFromSequence", since=11)
def concatenated(call: Call) -> Any:
    """One tensor of all."""
    tensors = [item.tensor for item in call.sequence(0) if isinstance(item, Value)]
    join = torch.stack if call.integer("new_axis") else torch.cat
    return join(tensors, call.integer("axis"))


@operator("Optional", since=15)
def optional(call: Call) -> Any:
    """Something, or nothing."""
    return (call.items[0] if call.items else None,)


@operator("OptionalHasElement", since=15)
def has_element(call: Call) -> Value:
    """Whether it is something."""
    return known_number(bool(call.items) and call.items[0] is not None, torch.bool)


@operator("OptionalGetElement", since=15)
def get_element(call: Call) -> Any:
    """What it is."""
    return (call.items[0],)


@operator("SequenceMap", since=17)
def mapped(call: Call) -> Any:
    """A graph, run on each element of sequences."""
    graph = call.graph("body")
    first = call.sequence(0)
    results: list[list[Any]] = [[] for _ in call.node.output]
    for index in range(len(first)):
        given = [item[index] if isinstance(item, list) else item for item in call.items]
        for row, value in zip(results, call.run(graph, given), strict=True):
            row.append(value)
    return tuple(results)
