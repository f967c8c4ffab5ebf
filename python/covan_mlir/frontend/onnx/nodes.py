"""The nodes of an ONNX model as operations of the source: names, module paths, lines of the code behind it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import onnx

from covan_mlir.frontend import frames
from covan_mlir.frontend.onnx.properties import EXPORTER, LINES, MODULE
from covan_mlir.frontend.onnx.registry import canonical
from covan_mlir.frontend.sources import SourceNode
from covan_mlir.frontend.translation.names import unique


def numbered(model: onnx.ModelProto) -> tuple[dict[int, int], list[onnx.NodeProto]]:
    """-> (place of each node by its identity, the nodes in order); those of subgraphs before the node that has them.

    Bodies of functions are no nodes of the source: the node that calls one is.
    """
    nodes = list(_nodes(model.graph))
    return {id(node): place for place, node in enumerate(nodes)}, nodes


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)
        yield node


def source_nodes(nodes: list[onnx.NodeProto], known: set[int], sizes: set[int]) -> tuple[SourceNode, ...]:
    """The operations that actions are made of.

    Args:
        known: places of nodes whose values translation computed.
        sizes: of those that tell open sizes.
    """
    taken: set[str] = set()
    writer: dict[str, int] = {}
    sources = []
    for place, node in enumerate(nodes):
        name = unique(_name(node), taken)
        properties = {entry.key: entry.value for entry in node.metadata_props}
        inputs = {writer[read] for read in node.input if read in writer}
        writer |= {written: place for written in node.output if written}
        domain = canonical(node.domain)
        sources.append(
            SourceNode(
                name=name,
                op=f"onnx.{f'{domain}.' if domain else ''}{node.op_type}",
                module=_module(node, properties),
                frames=frames.parse(properties.get(LINES) or properties.get(f"{EXPORTER}stack_trace")),
                inputs=() if place in known else tuple(sorted(inputs)),
                view=place in sizes,
            )
        )
    return tuple(sources)


def _name(node: onnx.NodeProto) -> str:
    """What the file calls a node, or its first result; dots separate functions from what is in them."""
    name = node.name or next((f"{node.op_type}_{output}" for output in node.output if output), node.op_type)
    return re.sub(r"[.\s]", "_", name)


def _module(node: onnx.NodeProto, properties: dict[str, str]) -> str:
    """The module path: as a converter of ours or PyTorch's exporter tells it, or as older exporters write it into the
    node's name."""
    if MODULE in properties:
        return properties[MODULE]
    scopes = properties.get(f"{EXPORTER}name_scopes")
    if scopes:
        try:
            names = ast.literal_eval(scopes)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            names = []
        modules = [name for name in names[:-1] if isinstance(name, str) and name]
        return modules[-1] if modules else ""
    if node.name.startswith("/"):
        return ".".join(node.name.strip("/").split("/")[:-1])
    return ""
