"""Which call of the exported graph a node of the decomposed one comes from."""

from __future__ import annotations

from torch.fx import Graph, Node

from covan_mlir.frontend import frames
from covan_mlir.frontend.actions import graphs, op_name
from covan_mlir.provenance.model import Frame


class Origins:
    """Of the graphs of an exported program, bodies included."""

    def __init__(self, exported: Graph) -> None:
        self._nodes: dict[tuple[int, str], Node] = {
            (id(graph), node.name): node for _, graph in graphs(exported) for node in graph.nodes
        }

    def of(self, node: Node) -> Node:
        """The exported call, by torch's ``from_node`` chain; the node itself where torch does not say."""
        sources = node.meta.get("from_node") or []
        while sources:
            source = sources[-1]
            if (source.graph_id, source.name) in self._nodes:
                return self._nodes[source.graph_id, source.name]
            sources = source.from_node
        return node


def operator_name(node: Node) -> str:
    """Of a call, without overload and without the underscore of what works in place: ``index_put``."""
    words = op_name(node).split(".")
    return words[1 if len(words) > 2 else -1].rstrip("_")


def user_line(node: Node) -> Frame | None:
    """The innermost line of the user's own code that makes a call."""
    return next((frame for frame in frames.parse(node.meta.get("stack_trace")) if not frame.internal), None)
