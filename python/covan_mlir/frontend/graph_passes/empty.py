"""Tensors without elements: several lowerings fail on them, and nothing has to be computed."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend.graph_passes.casts import convert

aten = torch.ops.aten
_WRITES = {aten.scatter, aten.scatter_add, aten.scatter_reduce, aten.index_add, aten.index_copy, aten.index_fill}
"""(operand, axis, index, ...): the operand, with other elements in the places that an index says."""


def fold_empty(graph: Graph) -> None:
    """Make constants of what has no elements, and of what is computed from nothing else; what is written to no place
    is a copy.

    A sum over no elements is zero and a mean of none NaN; torch itself is asked which.
    """
    for node in list(graph.nodes):
        if node.target is operator.getitem and _is_empty(node.meta.get("val")) and _is_plain(node.args[0]):
            fill(node, 0)
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            if _is_empty(value):
                fill(node, 0)
            elif _from_nothing(node):
                _fill_with(node, _evaluate(node))
            elif node.target.overloadpacket in _WRITES and _is_empty(node.args[2].meta["val"]):
                node.target, node.args, node.kwargs = aten.clone.default, node.args[:1], {}
            elif node.target is aten.cat.default:
                _drop_empty_pieces(graph, node)
        elif isinstance(value, tuple | list) and _from_nothing(node):
            results = _evaluate(node)
            for user in list(node.users):
                if user.target is operator.getitem and results is not None:
                    _fill_with(user, results[user.args[1]])


def _is_plain(node: Any) -> bool:
    """Whether a call does nothing but give values: tokens of others are empty, too."""
    return isinstance(node.target, torch._ops.OpOverload)


def _is_empty(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and all(isinstance(size, int) for size in value.shape)
        and any(size == 0 for size in value.shape)
    )


def _from_nothing(node: Node) -> bool:
    assert isinstance(node.target, torch._ops.OpOverload)
    inputs = [n.meta.get("val") for n in node.all_input_nodes]
    return (
        bool(inputs) and all(_is_empty(v) for v in inputs) and torch.Tag.nondeterministic_seeded not in node.target.tags
    )


def _drop_empty_pieces(graph: Graph, node: Node) -> None:
    """Have a concatenation read what it holds elements of. Those without any may still decide of which type it is."""
    pieces: Any = node.args[0]
    kept = [piece for piece in pieces if not _is_empty(piece.meta["val"])]
    if len(kept) == len(pieces):
        return
    dtype = node.meta["val"].dtype
    with graph.inserting_before(node):
        if reduce(torch.promote_types, (piece.meta["val"].dtype for piece in kept)) is not dtype:
            kept = [convert(graph, piece, dtype, node) for piece in kept]
    node.args = (kept, *node.args[1:])


def _evaluate(node: Node) -> Any:
    def real(item: Any) -> Any:
        if not isinstance(item, Node):
            return item
        value = item.meta["val"]
        return torch.empty(tuple(value.shape), dtype=value.dtype)

    args, kwargs = pytree.tree_map(real, (node.args, node.kwargs), is_leaf=lambda item: isinstance(item, Node))
    assert callable(node.target)
    try:
        return node.target(*args, **kwargs)
    except Exception:  # what eager refuses is the compiler's to refuse
        return None


def _fill_with(node: Node, result: Any) -> None:
    if not isinstance(result, torch.Tensor):
        return
    if result.numel() == 0:
        fill(node, 0)
        return
    first = result.reshape(-1)[0]
    if torch.equal(result.nan_to_num(), first.nan_to_num().expand_as(result)):
        fill(node, first.item())


def fill(node: Node, number: Any) -> None:
    """Make a node the constant that holds a number everywhere."""
    value = node.meta["val"]
    node.target = aten.full.default
    node.args, node.kwargs = (list(value.shape), number), {"dtype": value.dtype}
    if value.dtype == torch.uint8 and not value.numel():  # torch-mlir folds it to a literal that it takes for signed
        node.target, node.args = aten.empty.memory_format, (list(value.shape),)
