"""Slices of concatenations, as slices of what was concatenated.

``cat([a, b])[:n]`` is a piece of ``a``: class tokens are put in front of a sequence and taken off again. The compilers know,
and read ``a``. A graph that says so needs no copy of ``b``, and the program that is compiled reads what its source does.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten


def slice_pieces(graph: Graph) -> None:
    """Have slices along the axis of a concatenation that lie within one of its operands read that operand."""
    for node in graph.nodes:
        if node.target is not _aten.slice.Tensor or not isinstance(node.args[0], Node):
            continue
        cat = node.args[0]
        axis = int(node.args[1]) if len(node.args) > 1 else 0
        if cat.target is not _aten.cat.default or node.kwargs:
            continue
        rank, size = cat.meta["val"].dim(), cat.meta["val"].shape[axis]
        along = int(cat.args[1]) if len(cat.args) > 1 else int(cat.kwargs.get("dim", 0))
        bounds = [None, None, 1]
        bounds[: len(node.args) - 2] = list(node.args[2:])
        if along % rank != axis % rank or not all(isinstance(b, int | None) for b in (*bounds, size)):
            continue
        start, stop, step = slice(bounds[0], bounds[1], bounds[2]).indices(size)
        begin = 0
        for piece in cat.args[0]:
            width = piece.meta["val"].shape[axis] if piece.meta["val"].dim() == rank else None
            if not isinstance(width, int):
                break
            if begin <= start < stop <= begin + width and piece.meta["val"].dtype is node.meta["val"].dtype:
                node.args = (piece, axis, start - begin, stop - begin, step)
                break
            begin += width
