"""How much a graph computes, by counting: good for an order of magnitude."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from covan_mlir.frontend.actions import calls

_aten = torch.ops.aten
_VIEWS = frozenset(
    {_aten.alias, _aten.detach, _aten.expand, _aten.permute, _aten.reshape, _aten.select, _aten.slice, _aten.split}
    | {_aten.split_with_sizes, _aten.squeeze, _aten.t, _aten.transpose, _aten.unsqueeze, _aten.view}
)


def work(graph: Graph) -> tuple[int, int]:
    """-> (floating-point operations of contractions, elements that operations other than views write).

    A dynamic dimension counts as the size of the example, and the body of a loop once.
    """
    flops = elements = 0
    for node in calls(graph):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target.overloadpacket in _VIEWS:
            continue
        values = node.meta.get("val")
        for value in values if isinstance(values, list | tuple) else [values]:
            if isinstance(value, torch.Tensor):
                elements += math.prod(_hint(size) for size in value.shape)
        flops += _flops(node, node.target)
    return flops, elements


def _flops(node: Node, operator: torch._ops.OpOverload) -> int:
    count = flop_registry.get(operator.overloadpacket)
    if count is None:
        return 0
    args, kwargs = tree_map(lambda a: a.meta.get("val") if isinstance(a, Node) else a, (node.args, node.kwargs))
    return _hint(count(*args, **kwargs, out_val=node.meta["val"]))


def _hint(size: Any) -> int:
    """The example's value of a size."""
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)
    return int(hint) if hint is not None else 1
