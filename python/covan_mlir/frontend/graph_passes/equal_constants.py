"""Equal literals of one call become one: of an image of one row, the rows above and below are the same.

Compilers merge such constants, and then what is computed of either, which the graph tells apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from covan_mlir.frontend.constants import literals


def unite_equal_constants(graph: Graph) -> None:
    """Have all nodes read the first of those literals of a call that are equal.

    Those of other calls stay: what is left of a call has to say where it was computed.
    """
    first: dict[Any, Node] = {}
    for node, value in literals(graph, {}).items():
        call = call_from(node)
        if call is not None:
            flat = value.reshape(-1).clone(
                memory_format=torch.contiguous_format
            )  # one element of an expanded literal too
            key = (call, value.dtype, tuple(value.shape), bytes(flat.view(torch.uint8).tolist()))
            leading = first.setdefault(key, node)
            if leading is not node:
                node.replace_all_uses_with(leading)


def call_from(node: Node) -> tuple[int, str] | None:
    """What tells the call that a node comes from; None if torch does not say."""
    sources, call = node.meta.get("from_node") or [], None
    while sources:
        call = sources[-1].graph_id, sources[-1].name
        sources = sources[-1].from_node
    return call
