"""Dropout outside of training gives back the very tensor that it is given, and `native_dropout` a copy of it.

torch.export takes it the other way round. Its decompositions take what dropout gives for another tensor: who writes to
either would not be seen by who reads the other. And while it runs a model, `native_dropout` gives back what it is
given: who reads that afterwards is said to read the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.overrides import TorchFunctionMode

from covan_mlir.frontend.actions import is_view, writes

aten = torch.ops.aten

_COPYING = (torch.native_dropout, aten.native_dropout, aten.native_dropout.default)
_DROPOUT = (aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default)


def written_through(graph: Graph) -> list[Node]:
    """The dropouts outside of training of which the result, or what they are given, is written to."""
    idle = [node for node in graph.nodes if node.target in _DROPOUT and node.args[2:] == (False,)]
    memory: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while node in memory:
            node = memory[node]
        return node

    written: list[Node] = []
    for node in graph.nodes if idle else ():
        if node.op != "call_function" or not node.all_input_nodes:
            continue
        mutable = isinstance(node.target, OpOverload) and node.target._schema.is_mutable
        targets = [read for read in node.all_input_nodes if mutable and writes(node, read)]
        written += targets
        if targets or node in idle or is_view(node):
            memory[node] = targets[0] if targets else node.all_input_nodes[0]
    touched = {root(node) for node in written}
    return [node for node in idle if root(node) in touched]


@contextmanager
def seen_as_what_they_are_given(graph: Graph) -> Iterator[None]:
    """Have these stand for what they are given while a graph is decomposed."""
    nodes = written_through(graph)
    before = [(node.target, node.args, node.kwargs) for node in nodes]
    for node in nodes:
        node.target, node.args, node.kwargs = aten.alias.default, node.args[:1], {}
    try:
        yield
    finally:
        for node, (target, args, kwargs) in zip(nodes, before, strict=True):
            node.target, node.args, node.kwargs = target, args, kwargs


class OfCopies(TorchFunctionMode):
    """While active, `native_dropout` outside of training is called with a copy, which it may give back."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See torch."""
        given = dict(zip(("input", "p", "train"), args, strict=False)) | (kwargs or {})
        if func in _COPYING and given.get("train") is False:
            return func(**given | {"input": given["input"].clone()})
        return func(*args, **(kwargs or {}))
