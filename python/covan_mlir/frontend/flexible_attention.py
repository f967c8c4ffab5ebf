"""`torch.nn.attention.flex_attention`: attention whose scores a function changes, and another one masks.

torch.export keeps it as one operator that takes both functions as graphs. While a graph is decomposed it is run as
products and a softmax, as torch's own reference for it is (`torch._higher_order_ops.flex_attention.math_attention`);
blocks that a mask leaves out are computed, and masked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import math_attention
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

_FLEXIBLE = torch.ops.higher_order.flex_attention


@contextmanager
def in_plain_operations(graph: Graph) -> Iterator[None]:
    """Have such attention run as what it computes while a graph is decomposed."""
    before = [(node, node.args) for node in graph.nodes if node.target is _FLEXIBLE]
    owner = graph.owning_module
    for node, args in before:
        assert owner is not None  # it has the functions
        # torch takes modules among the arguments of what is none of its own operators for parameters.
        values = [value for value in pytree.tree_leaves(args) if isinstance(value, Node) and value.op != "get_attr"]
        node.target, node.args = _attention(args, values, owner), tuple(values)
    try:
        yield
    finally:
        for node, args in before:
            node.target, node.args = _FLEXIBLE, args


def _attention(args: Any, values: list[Node], owner: GraphModule) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The operator on the values among its arguments -> the output, logarithms of sums, largest scores."""

    def attention(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(values, tensors, strict=True))

        def of(argument: Any) -> Any:
            if not isinstance(argument, Node):
                return argument
            return given[argument] if argument in given else getattr(owner, str(argument.target))

        query, key, value, score, blocks, scale, options, *buffers = pytree.tree_map(of, args)
        results: tuple[torch.Tensor, ...] = math_attention(query, key, value, score, blocks, scale, options, *buffers)
        return results

    return attention
