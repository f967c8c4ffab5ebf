"""Slices of concatenations, as slices of what was concatenated.

``cat([a, b])[:n]`` is a piece of ``a``: class tokens are put in front of a sequence and taken off again. The compilers
know, and read ``a``. A graph that says so has the program read what its source does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten


def slice_pieces(graph: Graph) -> None:
    """Have slices along the axis of a concatenation that lie within one of its operands read that operand."""
    for node in graph.nodes:
        if node.target is _aten.slice.Tensor and not node.kwargs:
            cat: Any = node.args[0]
            if isinstance(cat, Node) and cat.target is _aten.cat.default:
                _read_piece(node, cat)


def _read_piece(node: Node, cat: Node) -> None:
    args: list[Any] = [*node.args, *(0, None, None, 1)[len(node.args) - 1 :]]
    pieces: Any = cat.args[0]
    whole = cat.meta["val"]
    axis = args[1] % whole.dim()
    along: Any = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
    shapes = [piece.meta["val"].shape for piece in pieces]
    known = [*args[2:], *(shape[axis] for shape in shapes if len(shape) == whole.dim())]
    # torch lets empty tensors of one dimension through, too.
    if (
        along % whole.dim() != axis
        or len(known) != 3 + len(shapes)
        or not all(isinstance(b, int | None) for b in known)
    ):
        return
    start, stop, step = slice(*args[2:]).indices(sum(shape[axis] for shape in shapes))
    begin = 0
    for piece, shape in zip(pieces, shapes, strict=True):
        end = begin + shape[axis]
        if begin <= start < stop <= end and piece.meta["val"].dtype is node.meta["val"].dtype:
            node.args = (piece, axis, start - begin, stop - begin, step)
            return
        begin = end
