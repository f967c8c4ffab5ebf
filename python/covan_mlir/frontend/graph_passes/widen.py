"""8-bit integer arithmetic in 32 bits.

torch-mlir's lowering crashes on several operations over 8-bit integers (a product with a number, matrix products,
a full maximum) and sorts booleans as signed bits. Computed in 32 bits and cut back, the results are the same: integer
arithmetic modulo 2^8 is arithmetic modulo 2^32, cut; order and division are exact.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from covan_mlir.frontend.graph_passes.casts import convert

_BYTES = (torch.int8, torch.uint8)
_aten = torch.ops.aten
_ORDER = {_aten.sort, _aten.topk, _aten.argmax, _aten.argmin, _aten.kthvalue, _aten.median}
_REDUCTIONS = {_aten.max, _aten.min, _aten.amax, _aten.amin, _aten.prod, _aten.sum, _aten.cumsum, _aten.cumprod}
_PRODUCTS = {_aten.mm, _aten.bmm, _aten.addmm, _aten.baddbmm, _aten.convolution, _aten.mv, _aten.dot}


def widen_bytes(graph: Graph) -> None:
    """Rewrite the arithmetic of ``graph`` on 8-bit integers, and the ordering of booleans, to int32 and back."""
    for node in list(graph.nodes):
        narrow = _narrow_types(node)
        if narrow and any(_dtype(n) in narrow for n in node.all_input_nodes):
            _widen(graph, node, narrow)


def _narrow_types(node: Node) -> tuple[torch.dtype, ...]:
    """The element types that ``node`` cannot be left to compute in."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return ()
    packet = node.target.overloadpacket
    if packet in _ORDER:
        return (*_BYTES, torch.bool)
    if packet in _REDUCTIONS or packet in _PRODUCTS:
        return _BYTES
    casts = packet in (_aten.clone, _aten._to_copy, torch.ops.prims.convert_element_type)
    return _BYTES if torch.Tag.pointwise in node.target.tags and not casts else ()


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _widen(graph: Graph, node: Node, narrow: tuple[torch.dtype, ...]) -> None:
    wide: dict[Node, Node] = {}
    dtype = _wide_type(node, narrow)
    with graph.inserting_before(node):
        for operand in node.all_input_nodes:
            if _dtype(operand) in narrow:
                wide[operand] = convert(graph, operand, dtype, node)
    for operand, replacement in wide.items():
        node.replace_input_with(operand, replacement)
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        _narrow_again(graph, node, narrow)
        return
    _forget_metadata(node)
    node.meta["val"] = tuple(_wider(v, narrow) for v in value)
    for user in list(node.users):
        assert user.target is operator.getitem, user.target
        _narrow_again(graph, user, narrow)


def _wide_type(node: Node, narrow: tuple[torch.dtype, ...]) -> torch.dtype:
    """What narrow operands become: what torch's promotion makes of them, where another operand is wider."""
    result, target = _dtype(node), node.target
    promoted = isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
    return torch.int32 if result is None or not promoted or result in (torch.bool, *narrow) else result


def _narrow_again(graph: Graph, node: Node, narrow: tuple[torch.dtype, ...]) -> None:
    dtype = _dtype(node)
    if dtype not in narrow:
        return
    node.meta["val"] = _wider(node.meta["val"], narrow)
    _forget_metadata(node)
    users = list(node.users)
    with graph.inserting_after(node):
        back = convert(graph, node, dtype, node)
    for user in users:
        user.replace_input_with(node, back)


def _wider(value: Any, narrow: tuple[torch.dtype, ...]) -> Any:
    return value.to(torch.int32) if isinstance(value, torch.Tensor) and value.dtype in narrow else value


def _forget_metadata(node: Node) -> None:
    # The importer believes tensor_meta before val.
    node.meta.pop("tensor_meta", None)
