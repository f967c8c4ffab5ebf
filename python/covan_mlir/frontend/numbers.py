"""Numbers in the place of tensors.

Decompositions write ``sub(3.14, x)``. The importer makes float32 of such a first argument, whatever ``x`` is. Of
``x + True`` it makes what no operation takes, or adds without a carry.
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
        like = [v for n in node.all_input_nodes if isinstance(v := n.meta.get("val"), torch.Tensor)]
        if not like:
            continue
        for position, (formal, number) in enumerate(zip(node.target._schema.arguments, node.args, strict=False)):
            if isinstance(number, bool) and isinstance(formal.type, torch.TensorType | torch.NumberType):
                if like[0].dtype is not torch.bool:
                    node.update_arg(position, int(number))
                elif isinstance(formal.type, torch.TensorType):
                    node.update_arg(position, _typed(graph, node, number, like[0]))
            # In any other place the importer finds the form of the operation that takes a number.
            elif position or not isinstance(number, float) or like[0].dtype is not torch.float64:
                continue
            elif isinstance(formal.type, torch.TensorType):
                node.update_arg(position, _typed(graph, node, number, like[0]))


def _typed(graph: Graph, node: Node, number: float, like: torch.Tensor) -> Node:
    with graph.inserting_before(node):
        scalar = graph.call_function(_scalar_tensor, (number,), {"dtype": like.dtype})
    scalar.meta = {key: node.meta[key] for key in ("from_node", "nn_module_stack", "stack_trace") if key in node.meta}
    scalar.meta["val"] = like.new_empty(())
    return scalar
