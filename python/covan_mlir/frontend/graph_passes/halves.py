"""Concatenations that look like a rotation by half, and are none.

IREE raises ``cat([-x[..., n:], x[..., :n]], -1)`` over an ``x`` of size 2n (rotary embeddings) to one operation. It
checks what is sliced and the sizes, not offsets and steps: ``cat([-x[..., 1::2], x[..., ::2]], -1)`` gives the
rotation by half too, and silently. The negation of such a concatenation is written as a product with -1, which is not
matched.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten


def keep_slices(graph: Graph) -> None:
    """Rewrite the negations of ``graph`` that IREE would mistake."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target is _aten.cat.default:
            pieces = node.args[0]
            if isinstance(pieces, list | tuple) and len(pieces) == 2 and not _is_rotation(*pieces):
                _guard(pieces[0])


def _guard(piece: object) -> None:
    if isinstance(piece, Node) and piece.target is _aten.neg.default:
        piece.target = _aten.mul.Scalar
        piece.args = (piece.args[0], -1)


def _is_rotation(first: object, second: object) -> bool:
    """Whether two pieces are the negated second half and the first half of one tensor."""
    if not isinstance(first, Node) or first.target is not _aten.neg.default:
        return False
    upper, lower = _slice(first.args[0]), _slice(second)
    if upper is None or lower is None or upper[:3] != (lower[0], lower[1], lower[2]):
        return False
    size = lower[2]
    return size % 2 == 0 and upper[3:] == (size // 2, size, 1) and lower[3:] == (0, size // 2, 1)


def _slice(node: object) -> tuple[Node, int, int, int, int, int] | None:
    """(tensor, dimension, its size, start, end, step) of a slice."""
    if not isinstance(node, Node) or node.target is not _aten.slice.Tensor:
        return None
    args: list[Any] = [*node.args, *(0, 0, sys.maxsize, 1)[len(node.args) - 1 :]]
    whole, dim, start, end, step = args
    value = whole.meta.get("val") if isinstance(whole, Node) else None
    if not isinstance(whole, Node) or not isinstance(value, torch.Tensor):
        return None
    size = value.shape[dim]
    numbers = (dim, size, start or 0, sys.maxsize if end is None else end, step)
    if not all(isinstance(n, int) for n in numbers):
        return None
    dim, size, start, end, step = (int(n) for n in numbers)
    start, end = (n + size if n < 0 else min(n, size) for n in (start, end))
    return whole, dim % value.dim(), size, start, end, step
