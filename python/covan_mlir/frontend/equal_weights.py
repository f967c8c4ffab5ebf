"""Weights of one element, and nameless constants, that hold the same are one: compilers make equal constants one."""

from __future__ import annotations

from collections.abc import Container, Mapping

import torch
from torch.fx import Node

from covan_mlir.frontend.identity import contents


def unite_equal(weights: Mapping[Node, torch.Tensor], nameless: Container[Node]) -> None:
    """Have what reads a weight of one element, or a constant without a name, read the first that has its type and bits.

    Limits that modules keep as buffers are alike in all layers: what is computed of them and of the same is merged, and
    the ledger has to know that it is the same; so are tables that the program itself holds, as of two transforms. Other
    weights keep their names, by which people know them. A weight that the graph returns is returned as it is.

    Args:
        weights: those that enter the program by value, of a decomposed graph.
        nameless: those of them that are no parameters or buffers of a module.
    """
    first: dict[str, Node] = {}
    for node, weight in weights.items():
        if (
            (weight.numel() != 1 and node not in nameless)
            or weight.layout is not torch.strided
            or weight.is_meta
            or weight.is_quantized
        ):
            continue
        same = first.setdefault(contents(weight), node)
        if same is not node:
            node.replace_all_uses_with(same, delete_user_cb=lambda user: user.op == "call_function")
