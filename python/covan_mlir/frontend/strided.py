"""Reads by strides, as the views that they are, or by indices into what is in memory."""

from __future__ import annotations

from math import prod
from typing import cast

import torch
from torch import fx
from torch._prims_common import make_contiguous_strides_for
from torch_mlir.extras.fx_as_strided import rewrite_as_strided

from covan_mlir.frontend.refusals import refused


def index_strided(graph: fx.Graph) -> None:
    """Has a graph read by views and indices what it reads by strides. It needs the storage of the example tensors.

    Raises:
        ExportError: a size or stride is known at run time only, or elements are read that the tensor does not have.
    """
    _view_whole(graph)
    before = set(graph.nodes)
    try:
        rewrite_as_strided(graph)
    except ValueError as error:
        node, *_ = graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default)  # it was at the first
        raise refused(node, str(error)) from error
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.index.Tensor):
        if node not in before:
            _unite_equal(node)


def _unite_equal(node: fx.Node) -> None:
    """Has an index read one constant in place of equal ones: compilers merge them, and what is computed of either."""
    source, indices = cast("tuple[fx.Node, list[fx.Node]]", node.args)
    first: list[fx.Node] = []
    for index in indices:
        first.append(next((other for other in first if torch.equal(other.meta["val"], index.meta["val"])), index))
    node.args = (source, first)
    for index in set(indices).difference(first):
        node.graph.erase_node(index)


def _view_whole(graph: fx.Graph) -> None:
    """``as_strided`` of a contiguous tensor, of all its elements in their order, becomes ``view``, which keeps the axes
    that indices would hide.

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
