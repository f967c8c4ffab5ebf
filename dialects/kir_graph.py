"""The graph of operators in a function of either compiler, and that graph as text, which functions carry along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from torch_mlir import ir

from covan_mlir.kir.graph import Graph, OperatorNode

FROZEN = "kir.frozen"
"""Attribute of a function: the graph of its operators, from which on nothing changes it any more."""
LEFT_OVER = "kir.left_over"
"""Attribute of a function: the operators that no kernel is written for, as JSON."""
Label = Callable[[Any], str | None]
"""What can be told of an operation that is an operator; None of another one."""
_SIZES = frozenset({"tensor.dim", "flow.tensor.dim", "memref.dim"})


def operator_graph(function: Any, label: Label) -> Graph:
    """The graph of operators in a function."""
    reader = _Reader(label)
    for region in function.regions:
        reader.region(region, frozenset())
    return tuple(reader.nodes)


def freeze(function: ir.Operation, graph: Graph) -> None:
    """Has a function carry a graph along."""
    function.attributes[FROZEN] = ir.StringAttr.get(msgspec.json.encode(graph).decode(), function.context)


def frozen(function: ir.Operation) -> Graph | None:
    """The graph that a function carries along."""
    if FROZEN not in function.attributes:
        return None
    return msgspec.json.decode(ir.StringAttr(function.attributes[FROZEN]).value, type=Graph)


def result_types(op: Any) -> str:
    """What can be told of an operator as well as of the call that it becomes."""
    return ", ".join(str(result.type) for result in op.results)


class _Reader:
    """Follows values: each comes from some operators, the last ones on its way."""

    def __init__(self, label: Label) -> None:
        self.nodes: list[OperatorNode] = []
        self._label = label
        self._sources: dict[Any, frozenset[int]] = {}

    def region(self, region: Any, given: frozenset[int]) -> frozenset[int]:
        """-> the operators that what a region hands on comes from."""
        handed: frozenset[int] = frozenset()
        for block in region:
            for argument in block.arguments:
                self._sources[argument] = given
            operations = [view.operation for view in block]
            for op in operations:
                self._operation(op)
            if operations:
                handed |= self._read(operations[-1])
        return handed

    def _read(self, op: Any) -> frozenset[int]:
        return frozenset().union(*(self._sources.get(operand, frozenset()) for operand in op.operands))

    def _operation(self, op: Any) -> None:
        if op.name in _SIZES:
            return
        sources = self._read(op)
        label = self._label(op)
        if label is not None:
            self.nodes.append(OperatorNode(label, tuple(sorted(sources))))
            sources = frozenset([len(self.nodes) - 1])
        else:
            for region in op.regions:
                sources |= self.region(region, sources)
        for result in op.results:
            self._sources[result] = sources
