"""A half of a pair of numbers is that half: the real part of what was put together of two parts is the first of them.

The compilers below know, and read it. What nobody else reads of the other part is then dead code, here as there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten


def take_halves(graph: Graph) -> None:
    """Read halves of complex numbers from what these are put together of, where the sizes of the result are known or
    those of the half."""
    for node in graph.find_nodes(op="call_function", target=_aten.select.int):
        pairs: Any = node.args[0]
        if pairs.target is not _aten.view_as_real.default:
            continue
        dim, at = node.args[1], node.args[2]
        last = pairs.meta["val"].dim() - 1
        numbers: Any = pairs.args[0]
        if dim not in (-1, last) or at not in (0, 1) or numbers.target is not _aten.complex.default:
            continue
        half: Node = numbers.args[at]
        shape = node.meta["val"].shape
        sizes = [-1] * last if half.meta["val"].shape == shape else list(shape)
        if all(isinstance(size, int) for size in sizes):
            node.target, node.args = _aten.expand.default, (half, sizes)
