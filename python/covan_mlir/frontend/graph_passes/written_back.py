"""What is written back to where it was read from: ``x[1:] += y`` adds in place, and then assigns the slice to itself.

Without aliases that is a second slice of the result, copied into the slice of the result. The compilers below know
that nothing changes by it, from one dialect to the next in another place, and names of what is written get lost.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten
_VIEWS = {_aten.slice.Tensor, _aten.select.int, _aten.permute.default, _aten.unsqueeze.default, _aten.squeeze.dim}
_SAME = {_aten.alias.default, _aten.clone.default, _aten.expand.default, _aten.view.default}
"""To the shape and type that was there they change nothing."""


def drop_written_back(graph: Graph) -> None:
    """Make whole slices, which are views, of tensors that a slice of their own is written into."""
    for node in graph.nodes:
        if node.target is not _aten.slice_scatter.default:
            continue
        base, written, *place = node.args
        read = uncopied(written)
        if read.target is _aten.slice.Tensor and _same((base, *place), read.args):
            node.target, node.args = _aten.slice.Tensor, (base, 0, 0, sys.maxsize, 1)


def uncopied(value: Any) -> Any:
    """What has the elements of a value: a copy into a tensor of the same type and shape has those of what is copied,
    a whole slice those of its base, and so has a view or a clone of that shape."""
    while isinstance(value, Node):
        if value.target is _aten.copy.default and _kind(value.args[0]) == _kind(value.args[1]) is not None:
            value = value.args[1]
        elif _is_whole(value):
            value = value.args[0]
        else:
            return value
    return value


def _is_whole(node: Node) -> bool:
    if node.target is _aten.slice.Tensor:
        return bool(node.args[1:] == (0, 0, sys.maxsize, 1))
    return node.target in _SAME and _kind(node) == _kind(node.args[0]) is not None


def _kind(value: Any) -> Any:
    example = value.meta.get("val") if isinstance(value, Node) else None
    return (example.dtype, tuple(example.shape)) if isinstance(example, torch.Tensor) else None


def _same(one: Any, other: Any) -> bool:
    """Whether values are one, or the same views of one."""
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    one, other = uncopied(one), uncopied(other)
    if not isinstance(one, Node) or not isinstance(other, Node):
        return type(one) is type(other) and bool(one == other)
    if one is other:
        return True
    alike = one.target in _VIEWS and one.target is other.target and one.kwargs == other.kwargs
    return alike and _same(one.args, other.args)
