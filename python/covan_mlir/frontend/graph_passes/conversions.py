"""Numbers that are read from tensors, converted: torch-mlir's importer knows the operators of ATen for it only."""

from __future__ import annotations

import torch
from torch.fx import Graph

_CONVERSIONS = {torch.sym_float: torch.ops.aten.Float.Scalar}


def name_conversions(graph: Graph) -> None:
    """Make operators of conversions between numbers."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _CONVERSIONS:
            node.target = _CONVERSIONS[node.target]
