"""Dimensions and bounds of slices, counted from the front.

``x.sum(-1)`` and ``x.sum(1)`` of a matrix are one value, as ``x[:, 1:]`` and ``x[:, -1:]`` of two columns are.
Compilers keep one of them, under the name of one; written alike, they are one value for whoever compares arguments.
And torch-mlir's lowering of scatters crashes on axes that are counted from the back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten

_DIMENSIONS = frozenset({"dim", "dims", "dim0", "dim1"})
_LONGER = {aten.unsqueeze.default: 1, aten.stack.default: 1}
"""Operators whose dimension is one of the result's, which has so many more."""
_SLICES = (aten.slice.Tensor, aten.slice_scatter.default)
_END = torch.iinfo(torch.int64).max
"""As torch writes that a slice goes on to the end."""
_SELECTS = (aten.select.int, aten.select_scatter.default)


def count_from_front(graph: Graph) -> None:
    """Rewrite the negative dimensions of ``graph``'s calls, and the bounds of slices of dimensions of known sizes."""
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        value = _value(node)
        if value is None:
            continue
        rank = max(1, value.dim() + _LONGER.get(node.target, 0))  # a number has an axis, by torch's rules
        for position, argument in enumerate(node.target._schema.arguments):
            if argument.name in _DIMENSIONS and position < len(node.args):
                node.update_arg(position, _front(node.args[position], rank))
        if node.target in _SLICES:
            _count_bounds(node, value, node.target is aten.slice_scatter.default)
        elif node.target in _SELECTS:
            _count_index(node, value, node.target is aten.select_scatter.default)


def _value(node: Node) -> torch.Tensor | None:
    """The tensor that a call reads first, or the first of those."""
    first: Any = node.args[0] if node.args else None
    if isinstance(first, list | tuple) and first:
        first = first[0]
    value = first.meta.get("val") if isinstance(first, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _front(dimension: Any, rank: int) -> Any:
    if isinstance(dimension, list | tuple):
        return [_front(each, rank) for each in dimension]
    return dimension + rank if type(dimension) is int and dimension < 0 else dimension


def _size(node: Node, value: torch.Tensor, position: int) -> int | None:
    """The size of the dimension that a call is given at a position, or that comes first; None where it is open."""
    dimension = node.args[position] if position < len(node.args) else 0
    if type(dimension) is not int or not 0 <= dimension < value.dim():
        return None
    size = value.shape[dimension]
    return size if isinstance(size, int) else None


def _count_bounds(node: Node, value: torch.Tensor, scatters: bool) -> None:
    first = 2 if scatters else 1
    for position, end in ((first + 1, 0), (first + 2, _END)):  # what is left out is said
        if position < len(node.args) and node.args[position] is None:
            node.update_arg(position, end)
    size = _size(node, value, first)
    bounds = node.args[first + 1 : first + 3]
    if size is None or any(type(bound) is not int and bound is not None for bound in bounds):
        return
    for position, bound in enumerate(bounds, first + 1):
        if isinstance(bound, int):
            node.update_arg(position, min(max(bound + size if bound < 0 else bound, 0), size))


def _count_index(node: Node, value: torch.Tensor, scatters: bool) -> None:
    first = 2 if scatters else 1
    size = _size(node, value, first)
    index = node.args[first + 1]
    if size is not None and type(index) is int and index < 0:
        node.update_arg(first + 1, index + size)
