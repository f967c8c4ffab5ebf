"""Whether a model computes in float64: not every device can."""

from __future__ import annotations

import torch
from torch.fx import Graph

from covan_mlir.frontend.actions import graphs
from covan_mlir.frontend.frames import parse


def first_double(graph: Graph) -> str | None:
    """The first float64 value of an exported graph, in words; None if there is none.

    To be asked before decompositions: some of torch-mlir's take float64 inside.
    """
    for node in (node for _, inner in graphs(graph) for node in inner.nodes):
        value = node.meta.get("val")
        values = value if isinstance(value, tuple | list) else (value,)
        if not any(isinstance(v, torch.Tensor) and v.dtype is torch.float64 for v in values):
            continue
        if node.op == "placeholder":
            return f"argument or weight {node.name}"
        user = next((frame for frame in parse(node.meta.get("stack_trace")) if not frame.internal), None)
        return f"{node.name} ({node.target})" + (f" at {user}" if user else "")
    return None


def convolves_halves(graph: Graph) -> bool:
    """Whether an exported graph has a convolution in half precision of a batch that is not known to be one."""
    for node in (node for _, inner in graphs(graph) for node in inner.nodes):
        value = node.meta.get("val")
        if (
            node.op == "call_function"
            and "conv" in getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
            and isinstance(value, torch.Tensor)
            and value.dtype in (torch.float16, torch.bfloat16)
            and not (isinstance(value.shape[0], int) and value.shape[0] == 1)
        ):
            return True
    return False
