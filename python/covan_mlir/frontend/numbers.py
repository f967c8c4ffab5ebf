"""Numbers in the place of tensors.

Decompositions write ``sub(3.14, x)``. The importer makes float32 of such a first argument, whatever ``x`` is.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

_scalar_tensor = torch.ops.aten.scalar_tensor.default


def type_numbers(graph: Graph) -> None:
    """Give the numbers that stand where an operation takes a tensor the type that they are computed in."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if not node.args or not isinstance(node.args[0], float):
            continue  # in any other place the importer finds the form of the operation that takes a number
        like = [v for n in node.all_input_nodes if isinstance(v := n.meta.get("val"), torch.Tensor)]
        formal = node.target._schema.arguments[0].type
        if like and like[0].dtype is torch.float64 and isinstance(formal, torch.TensorType):
            node.update_arg(0, _typed(graph, node, node.args[0], like[0]))


def _typed(graph: Graph, node: Node, number: float, like: torch.Tensor) -> Node:
    with graph.inserting_before(node):
        scalar = graph.call_function(_scalar_tensor, (number,), {"dtype": like.dtype})
    scalar.meta = {key: node.meta[key] for key in ("from_node", "nn_module_stack", "stack_trace") if key in node.meta}
    scalar.meta["val"] = like.new_empty(())
    return scalar
