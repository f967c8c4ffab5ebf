"""Axes of scatters, counted from the front: torch-mlir's lowering crashes on those that are counted from the back."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph

_aten = torch.ops.aten
_SCATTERS = (_aten.scatter, _aten.scatter_add, _aten.scatter_reduce)


def count_from_the_front(graph: Graph) -> None:
    """Give scatters axes that are not negative."""
    for node in graph.nodes:
        if getattr(node.target, "overloadpacket", None) in _SCATTERS:
            axis: Any = node.args[1]
            if isinstance(axis, int) and axis < 0:
                node.update_arg(1, axis + max(1, node.meta["val"].dim()))
