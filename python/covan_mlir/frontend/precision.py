"""Whether a model computes in float64: not every device can."""

from __future__ import annotations

import torch
from torch.fx import Graph

from covan_mlir.frontend.frames import parse


def first_double(graph: Graph) -> str | None:
    """The first float64 value of an exported graph, in words; None if there is none.

    To be asked before decompositions: some of torch-mlir's take float64 inside.
    """
    for node in graph.nodes:
        value = node.meta.get("val")
        values = value if isinstance(value, tuple | list) else (value,)
        if not any(isinstance(v, torch.Tensor) and v.dtype is torch.float64 for v in values):
            continue
        if node.op == "placeholder":
            return f"argument or weight {node.name}"
        user = next((frame for frame in parse(node.meta.get("stack_trace")) if not frame.internal), None)
        return f"{node.name} ({node.target})" + (f" at {user}" if user else "")
    return None
