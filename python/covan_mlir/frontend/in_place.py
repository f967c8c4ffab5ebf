"""Calls that write to a tensor which nobody reads in another way later: their result is what is read."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node

from covan_mlir.frontend.actions import writes

aten = torch.ops.aten

_DROPOUT = (aten.dropout_.default, aten.feature_dropout_.default, aten.alpha_dropout_.default)


def writes_nothing(call: Node) -> bool:
    """Whether a call that could write gives back what it is given, every element as it was."""
    return call.target is aten.detach_.default or (call.target in _DROPOUT and call.args[2:] == (False,))


Written = Mapping[Node, tuple[OpOverload, frozenset[Node]]]
"""By call that writes something: the operation that gives the new value, and the nodes that have it from then on."""


class WrittenElsewhere(Exception):
    """A call writes to what is read in another way later: an argument, a weight, what is a view or has one."""


def functional_calls(graph: Graph) -> Written:
    """The calls of a graph that write, as calls that give.

    Which nodes share memory is read from the storage of the example tensors.

    Raises:
        WrittenElsewhere: some call cannot be put so.
    """
    sharing: dict[int, set[Node]] = {}
    position = {node: index for index, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        value = node.meta.get("val")
        for element in value if isinstance(value, list | tuple) else (value,):
            if isinstance(element, FakeTensor) and element.layout is torch.strided:
                sharing.setdefault(element.untyped_storage()._cdata, set()).add(node)
    calls: dict[Node, tuple[OpOverload, frozenset[Node]]] = {}
    for node in graph.nodes:
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable and not writes_nothing(node):
            written = [read for read in node.all_input_nodes if writes(node, read)]
            operation = _functional(node.target)
            if len(written) != 1 or operation is None:
                raise WrittenElsewhere(node.name)
            own = written[0].meta["val"]
            before = {other for other in sharing[own.untyped_storage()._cdata] if position[other] < position[node]}
            same = {other for other in before if _is_very(other, own)}
            read_later = any(position[user] > position[node] for other in before - same for user in other.users)
            if read_later or any(other.op != "call_function" for other in before) or not _gives(operation, node, own):
                raise WrittenElsewhere(node.name)
            calls[node] = operation, frozenset(same)
    return calls


def _functional(operation: OpOverload) -> OpOverload | None:
    """The operation that gives what ``operation`` writes to its first argument."""
    namespace, _, name = operation._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None) if name.endswith("_") else None
    overload = getattr(packet, operation._overloadname, None)
    if not isinstance(overload, OpOverload) or overload._schema.is_mutable:
        return None
    if any(result.alias_info is not None for result in overload._schema.returns):
        return None  # what it changes is how a tensor is seen: other views stay as they are
    names = [[argument.name for argument in op._schema.arguments[1:]] for op in (operation, overload)]
    return overload if names[0] == names[1] else None


def _is_very(node: Node, own: FakeTensor) -> bool:
    """Whether a node, which shares memory with ``own``, has the same elements of it in the same places."""
    value = node.meta["val"]
    return isinstance(value, FakeTensor) and _seen(value) == _seen(own)


def _seen(value: FakeTensor) -> tuple[object, ...]:
    return value.dtype, value.shape, value.stride(), value.storage_offset(), value.is_conj(), value.is_neg()


def _gives(operation: OpOverload, call: Node, own: FakeTensor) -> bool:
    """Whether an operation gives a tensor like ``own``: writing keeps type and shape where the operation would not."""
    args, kwargs = torch.fx.node.map_arg((call.args, call.kwargs), lambda node: node.meta["val"])
    with own.fake_mode, torch.no_grad():
        result = operation(*args, **kwargs)
    return isinstance(result, torch.Tensor) and (result.dtype, result.shape) == (own.dtype, own.shape)
