"""What torch itself computes of a graph of functions: numbers that tensors hold, and views whose place these are.

AOTAutograd makes a result that is a view anew from what it is of: by the calls that it knows, or, where one of these
has a number that a tensor holds, by where in memory the result begins. A program's results begin at nothing. And a
number that the backward graph needs is a result of the forward graph, but none of a program.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node

_number = torch.ops.aten._local_scalar_dense.default
_TYPES: dict[tuple[type, ...], torch.dtype] = {
    (bool, torch.SymBool): torch.bool,
    (int, torch.SymInt): torch.int64,
    (float, torch.SymFloat): torch.float64,
}


def base_of(node: Node) -> Node | None:
    """What a call gives a view of; None: it gives no view."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or len(target._schema.returns) != 1:
        return None
    shared = target._schema.returns[0].alias_info
    if shared is None or shared.is_write:
        return None
    formals = target._schema.arguments
    named = dict(zip((formal.name for formal in formals), node.args, strict=False)) | node.kwargs
    bases = [named.get(formal.name) for formal in formals if formal.alias_info is not None]
    return next((base for base in bases if isinstance(base, Node)), None)


def is_outside(node: Node) -> bool:
    """Whether a result is a number, or a view that reads numbers for where it is."""
    if not isinstance(node.meta.get("val"), Tensor):
        return True
    while (base := base_of(node)) is not None:
        if any(not isinstance(used.meta.get("val"), Tensor) for used in node.all_input_nodes):
            return True
        node = base
    return False


def taken_apart(result: Node) -> tuple[GraphModule, list[Node]]:
    """What computes a number or a view of the tensors it is read from, and these: nodes of the graph."""
    inside: list[Node] = []
    tensors: list[Node] = []

    def visit(node: Node) -> None:
        if node in inside or node in tensors:
            return
        if node.op == "placeholder" or (isinstance(node.meta.get("val"), Tensor) and base_of(node) is None):
            tensors.append(node)
            return
        for used in node.all_input_nodes:
            visit(used)
        inside.append(node)

    visit(result)
    piece = Graph()
    copies = {node: piece.placeholder(node.name) for node in tensors}
    for node in inside:
        copies[node] = piece.node_copy(node, lambda used: copies[used])
    piece.output(copies[result])
    return GraphModule(torch.nn.Module(), piece), tensors


def take_tensors_for_numbers(graph: Graph) -> None:
    """Have a graph take tensors without axes in the place of numbers."""
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        dtype = next((dtype for kinds, dtype in _TYPES.items() if isinstance(value, kinds)), None)
        if dtype is None:
            continue
        with graph.inserting_after(node):
            number = graph.call_function(_number, (node,))
        number.meta = dict(node.meta)
        node.replace_all_uses_with(number, delete_user_cb=lambda user, number=number: user is not number)
        with _mode(graph):
            node.meta = {**node.meta, "val": torch.empty((), dtype=dtype)}


def _mode(graph: Graph) -> FakeTensorMode:
    values = (node.meta.get("val") for node in graph.nodes)
    return next(value.fake_mode for value in values if isinstance(value, FakeTensor))
