"""Loops that are decided before each iteration, as ones that are decided ahead of the next.

    while_loop(condition, body, carried, additional)
      → while_loop(condition(carried, additional), body', carried, additional)

``body'`` returns whether to go on, and then what ``body`` does. So each operation of the condition is imported where
its node is: those of the first decision before the loop, all others at the end of the body.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend.actions import modules

_WHILE = torch.ops.higher_order.while_loop


def rotate(graph: Graph) -> None:
    """All loops of a graph, not those in functions that its operators take."""
    for node in graph.find_nodes(op="call_function", target=_WHILE):
        if isinstance(node.args[0], Node) and node.args[0].op == "get_attr":
            condition, body = modules(node)
            _rotate(node, condition, body)


def _rotate(node: Node, condition: GraphModule, body: GraphModule) -> None:
    name, function, carried, additional = node.args
    assert isinstance(name, Node)
    with node.graph.inserting_before(node):
        (first,) = inlined(condition, node.graph, [*pytree.tree_leaves(carried), *pytree.tree_leaves(additional)])
    node.args = (first, function, carried, additional)
    node.graph.erase_node(name)
    output = body.graph.output_node()
    following = pytree.tree_leaves(output.args[0])
    unchanging = body.graph.find_nodes(op="placeholder")[len(following) :]
    with body.graph.inserting_before(output):
        (again,) = inlined(condition, body.graph, [*following, *unchanging])
    output.args = ((again, *following),)


def inlined(function: GraphModule, graph: Graph, given: list[Any]) -> list[Any]:
    """The nodes of a function where others are being inserted; -> what it returns."""
    values: dict[Node, Any] = dict(zip(function.graph.find_nodes(op="placeholder"), given, strict=True))
    owner = graph.owning_module
    assert owner is not None
    for node in function.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op == "get_attr":
            name = f"{node.target}_inlined"
            while hasattr(owner, name):
                name += "_again"
            value = getattr(function, str(node.target))
            setattr(owner, name, _copied(value) if isinstance(value, GraphModule) else value)
            values[node] = graph.get_attr(name)
            continue
        args, kwargs = pytree.tree_map(
            lambda value: values[value] if isinstance(value, Node) else value, (node.args, node.kwargs)
        )
        copy = graph.call_function(node.target, args, kwargs)
        copy.meta = dict(node.meta)
        values[node] = copy
    returned = pytree.tree_leaves(function.graph.output_node().args[0])
    return [values.get(result, result) if isinstance(result, Node) else result for result in returned]


def _copied(function: GraphModule) -> GraphModule:
    """A function with nodes of its own, as are those of functions in it: what is done here is not done there."""
    graph = Graph()
    result = graph.graph_copy(function.graph, {})
    graph.output(result).meta = dict(function.graph.output_node().meta)
    names = {str(node.target) for node in function.graph.find_nodes(op="get_attr")}
    values = {name: getattr(function, name) for name in names}
    return GraphModule(
        {name: _copied(value) if isinstance(value, GraphModule) else value for name, value in values.items()}, graph
    )
