"""Graphs inside of graphs: what nodes hold, and which names they read from outside."""

from __future__ import annotations

import onnx


def subgraphs(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    return ([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []) + list(attribute.graphs)


def free_names(graph: onnx.GraphProto) -> set[str]:
    """Names that a graph reads from outside."""
    bound = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    free: set[str] = set()
    for node in graph.node:
        read = {name for name in node.input if name}
        for attribute in node.attribute:
            for inner in subgraphs(attribute):
                read |= free_names(inner)
        free |= read - bound
        bound |= set(node.output)
    return free | ({value.name for value in graph.output} - bound)


def reads(graph: onnx.GraphProto, name: str) -> bool:
    """Whether a node of a graph, or of one inside of it, reads an input of it, or it gives that back."""
    inner = onnx.GraphProto(node=graph.node, output=graph.output)
    return name in free_names(inner)
