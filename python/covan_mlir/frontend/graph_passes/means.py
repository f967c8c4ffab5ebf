"""Means of what is summed as well, as quotients of sums.

torch-mlir makes a sum and a quotient of a mean, and of two equal sums one: locations cannot tell then whose it is, and
who reads both the sum and the mean seems to read the mean twice. Written here, the two sums are equal values.
"""

from __future__ import annotations

from math import prod

import torch
from torch.fx import Graph, Node

from covan_mlir.frontend.index_operands import call_of

_aten = torch.ops.aten
_SUMS = (_aten.sum.dim_IntList, _aten.sum.default)


def divide_sums(graph: Graph) -> None:
    """Rewrite the means of ``graph`` over axes of known sizes, of what it sums."""
    summed = {node.args[0] for target in _SUMS for node in graph.find_nodes(op="call_function", target=target)}
    for target in (_aten.mean.dim, _aten.mean.default):
        for node in graph.find_nodes(op="call_function", target=target):
            source = node.args[0]
            if source in summed and isinstance(source, Node) and not node.kwargs:
                _divide(node, source)


def _divide(node: Node, source: Node) -> None:
    value = source.meta["val"]
    dim = node.args[1] if len(node.args) > 1 else None
    axes = [axis % value.dim() for axis in dim] if isinstance(dim, list | tuple) and dim else list(range(value.dim()))
    sizes = [value.shape[axis] for axis in axes]
    if not sizes or value.dtype not in (torch.float32, torch.float64) or not all(isinstance(n, int) for n in sizes):
        return
    with node.graph.inserting_before(node):
        # Called as torch.export writes it: equal values are told by their calls.
        keepdim = (True,) if len(node.args) > 2 and node.args[2] else ()
        total = call_of(node, _aten.sum.dim_IntList, source, axes, *keepdim)
    node.target, node.args = _aten.div.Scalar, (total, prod(sizes))
