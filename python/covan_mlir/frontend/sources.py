"""Operations of a model whose exported calls are not its own operations: nodes of ONNX graphs, for example.

A frontend that translates puts a list of them into the exported graph, and the place in this list into the metadata of
each call. Then actions are these, and their calls' parts are theirs (`covan_mlir.frontend.actions`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from covan_mlir.provenance.model import Frame

NODE = "covan.node"
"""Key of a call's place, among what is kept of annotations (`torch.fx.traceback.annotate`)."""
SOURCES = "covan.sources"
"""Key of the list in the metadata of the graph's module."""
ROLE = "covan.role"
"""Key of what a call is for, in a call's metadata: ``gradient of conv1 with respect to weight``."""


@dataclass(frozen=True)
class SourceNode:
    """One operation of the source model.

    Attributes:
        name: unique in the model.
        op: ``onnx.Conv``, ``com.microsoft.FusedMatMul``.
        module: path of the module that it stands in (``encoder.layer.0``), or an empty string.
        frames: lines of the code that the model comes from, innermost first.
        inputs: places of the nodes whose values it reads; none, if translation computed its value.
        view: without calls: it only tells sizes.
    """

    name: str
    op: str
    module: str = ""
    frames: tuple[Frame, ...] = ()
    inputs: tuple[int, ...] = ()
    view: bool = False


def sources(graph: torch.fx.Graph) -> tuple[SourceNode, ...]:
    """The operations behind a graph's calls; none: the calls are the operations."""
    owner = graph.owning_module
    return tuple(owner.meta.get(SOURCES, ())) if owner is not None else ()


def place(node: Node) -> int | None:
    """Of a call: which operation it is of."""
    value = (node.meta.get("custom") or {}).get(NODE)
    return value if isinstance(value, int) else None


def remember(graph: torch.fx.Graph, nodes: tuple[SourceNode, ...]) -> None:
    """Say which operations are behind a graph's calls; each call has the module path and the lines of its own."""
    owner = graph.owning_module
    assert owner is not None
    owner.meta[SOURCES] = nodes
    for module in owner.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op != "call_function":
                continue
            at = place(node)
            source = nodes[at] if at is not None else None
            lines = [] if source is None else source.frames[::-1]
            node.meta["stack_trace"] = "\n".join(f'File "{f.file}", line {f.line}, in {f.function}' for f in lines)
            node.meta["nn_module_stack"] = {source.module: (source.module, source.op)} if source is not None else {}
