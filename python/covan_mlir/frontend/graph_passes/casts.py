"""Casts that the graph passes put into a graph."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node


def convert(graph: Graph, node: Node, dtype: torch.dtype, of: Node) -> Node:
    """A cast that belongs to the action of ``of``."""
    cast = graph.call_function(torch.ops.prims.convert_element_type.default, (node, dtype))
    cast.meta = {key: of.meta[key] for key in ("from_node", "nn_module_stack", "stack_trace") if key in of.meta}
    cast.meta["val"] = node.meta["val"].to(dtype)
    return cast
