"""Numbers in the place of tensors.

Decompositions write ``sub(3.14, x)``. The importer makes float32 of such a first argument, whatever ``x`` is, and of a
size what no operation takes. Of ``x + True`` it makes what no operation takes either, or adds without a carry. Where an
operation on constant floats is given a whole number below zero, torch-mlir folds it with 2**64 more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

_scalar_tensor = torch.ops.aten.scalar_tensor.default
_convert = torch.ops.prims.convert_element_type.default
_POWERS = frozenset({torch.ops.aten.pow.Tensor_Scalar})
"""Of which whole exponents are products."""
_EXACT = 1 << 53
"""Up to here whole numbers are floats."""


def type_numbers(graph: Graph) -> None:
    """Give the numbers that stand where an operation takes a tensor the type that they are computed in."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        like = [v for n in node.all_input_nodes if isinstance(v := n.meta.get("val"), torch.Tensor)]
        if not like:
            continue
        _negatives_to_floats(node, like)
        for position, (formal, number) in enumerate(zip(node.target._schema.arguments, node.args, strict=False)):
            if isinstance(number, bool) and isinstance(formal.type, torch.TensorType | torch.NumberType):
                if like[0].dtype is not torch.bool:
                    node.update_arg(position, int(number))
                elif isinstance(formal.type, torch.TensorType):
                    node.update_arg(position, _typed(graph, node, number, like[0]))
            elif not position and isinstance(formal.type, torch.TensorType) and _is_number(number):
                node.update_arg(position, _typed(graph, node, number, like[0]))
            # In any other place the importer finds the form of the operation that takes a number.
            elif position or not isinstance(number, float) or like[0].dtype is not torch.float64:
                continue
            elif isinstance(formal.type, torch.TensorType):
                node.update_arg(position, _typed(graph, node, number, like[0]))


def _negatives_to_floats(node: Node, like: Sequence[torch.Tensor]) -> None:
    """Make floats of the whole numbers below zero that an element-wise operation on floats is given."""
    target: Any = node.target
    if torch.Tag.pointwise not in target.tags or target in _POWERS or not all(t.is_floating_point() for t in like):
        return
    formals = {formal.name: formal for formal in target._schema.arguments}
    named = dict(zip(formals, node.args, strict=False)) | dict(node.kwargs)
    for name, number in named.items():
        numeric = isinstance(formals[name].type, torch.TensorType | torch.NumberType)
        if numeric and type(number) is int and -_EXACT <= number < 0:
            if name in node.kwargs:
                node.update_kwarg(name, float(number))
            else:
                node.update_arg(list(formals).index(name), float(number))


def _is_number(value: object) -> bool:
    """Whether a node gives a size, or another number that is known when the program runs."""
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.SymInt | torch.SymFloat)


def read_wide(graph: Graph) -> None:
    """Numbers that are read from tensors of half precision are read from float32: hosts have no such number."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten._local_scalar_dense.default):
        tensor = node.args[0]
        if tensor.meta["val"].dtype in (torch.float16, torch.bfloat16):
            with graph.inserting_before(node):
                wide = graph.call_function(_convert, (tensor, torch.float32))
            _describe(wide, node, tensor.meta["val"].to(torch.float32))
            wide.meta["tensor_meta"] = tensor.meta["tensor_meta"]._replace(dtype=torch.float32)  # the importer reads it
            node.update_arg(0, wide)


def _typed(graph: Graph, node: Node, number: float | Node, like: torch.Tensor) -> Node:
    """A number as a tensor of the type in which it is computed with ``like``."""
    example = number.meta["val"] if isinstance(number, Node) else number
    whole = isinstance(example, torch.SymFloat) and not (like.is_floating_point() or like.is_complex())
    dtype = torch.get_default_dtype() if whole else like.dtype
    with graph.inserting_before(node):
        scalar = graph.call_function(_scalar_tensor, (number,), {"dtype": dtype})
    _describe(scalar, node, like.new_empty((), dtype=dtype))
    return scalar


def _describe(step: Node, node: Node, value: torch.Tensor) -> None:
    """Say of ``step`` that it belongs to the action of ``node``, and what it gives."""
    step.meta = {key: node.meta[key] for key in ("from_node", "nn_module_stack", "stack_trace") if key in node.meta}
    step.meta["val"] = value
