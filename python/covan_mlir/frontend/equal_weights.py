"""Weights of one element that hold the same are one: compilers make them constants, and equal constants one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.fx import Node

from covan_mlir.frontend.identity import contents


def unite_scalars(weights: Mapping[Node, torch.Tensor]) -> None:
    """Have what reads a weight of one element read the first that has its type and bits.

    Limits that modules keep as buffers are alike in all layers: what is computed of them and of the same is merged, and
    the ledger has to know that it is the same. A weight that the graph returns is returned as it is.

    Args:
        weights: those that enter the program by value, of a decomposed graph.
    """
    first: dict[str, Node] = {}
    for node, weight in weights.items():
        if weight.numel() != 1 or weight.layout is not torch.strided or weight.is_meta or weight.is_quantized:
            continue
        same = first.setdefault(contents(weight), node)
        if same is not node:
            node.replace_all_uses_with(same, delete_user_cb=lambda user: user.op == "call_function")
