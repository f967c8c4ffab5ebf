"""Strided reads that read everything in order: a view says that, and keeps the axes that an index list would hide."""

from __future__ import annotations

from math import prod

import torch
from torch import fx
from torch._prims_common import make_contiguous_strides_for


def view_whole(graph: fx.Graph) -> None:
    """``as_strided`` of a contiguous tensor, of all its elements in their order, becomes ``view``.

    torch's decomposition of ``group_norm`` writes the reshape of its factors so.
    """
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default):
        source, size, stride, *rest = node.args
        held = source.meta["val"]
        offset = rest[0] if rest else node.kwargs.get("storage_offset")
        sizes = [*size, *stride, *held.shape]
        if not all(isinstance(number, int) for number in sizes) or not held.is_contiguous():
            continue
        whole = prod(size) == held.numel() and tuple(stride) == make_contiguous_strides_for(size)
        if whole and offset in (None, held.storage_offset()):
            node.target = torch.ops.aten.view.default
            node.args, node.kwargs = (source, size), {}
