"""A half of a pair of numbers is that half: the real part of what was put together of two parts is the first of them.

What nobody else reads of the other part is then dead code, here as it is in the compilers below.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from covan_mlir.frontend.graph_passes.equal_constants import call_from

_aten = torch.ops.aten


def take_halves(graph: Graph) -> None:
    """Read halves of complex numbers from what these are put together of, where that has the same sizes and belongs to
    the same call: a half that the user asks for of numbers that the user put together stays what was written."""
    for node in graph.find_nodes(op="call_function", target=_aten.select.int):
        pairs: Any = node.args[0]
        if pairs.target is not _aten.view_as_real.default:
            continue
        dim, at = node.args[1], node.args[2]
        last = pairs.meta["val"].dim() - 1
        numbers: Any = pairs.args[0]
        if dim not in (-1, last) or at not in (0, 1):
            continue
        if numbers.target is _aten.complex.default:
            half: Node = numbers.args[at]
            whole = half.meta["val"].shape == node.meta["val"].shape and call_from(half) == call_from(numbers)
            if whole:
                node.target, node.args = _aten.expand.default, (half, [-1] * last)
