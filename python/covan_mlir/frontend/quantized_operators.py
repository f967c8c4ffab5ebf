"""The operators of programs that torch's exporter quantised: torch declares them in a file that it does not import."""

from __future__ import annotations

from typing import Any

import torch

NAMESPACE = "quantized_decomposed"


def declared() -> Any:
    """`torch.ops.quantized_decomposed`, with all operators in it."""
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 - declares them

    return getattr(torch.ops, NAMESPACE)


def is_quantized(graph: torch.fx.Graph) -> bool:
    """Whether some call of a graph is of these operators."""
    return any(is_conversion(node) for node in graph.nodes)


def is_conversion(node: torch.fx.Node) -> bool:
    """Whether a call is of these operators."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == NAMESPACE
