"""Complex arguments and results, as pairs of real numbers: programs take and give those, with a last axis of two.

Between them complex numbers are computed with as they are. The memory is the same, so that nothing is copied for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

_aten = torch.ops.aten
COMPLEX = "covan_complex"
"""Key in the ``meta`` of a node that gives pairs: the complex dtype that they stand for."""
_DTYPES = (torch.complex64, torch.complex128)


def pair_complex(program: ExportedProgram) -> None:
    """Have ``program`` take and give pairs, in place; its signature names the nodes that do."""
    signature = program.graph_signature
    arguments = {item.arg.name for item in signature.input_specs if item.kind is InputKind.USER_INPUT}
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in arguments and _is_complex(node):
            _take_pairs(node)
    output = program.graph.output_node()
    results = list(output.args[0])
    for place, (item, node) in enumerate(zip(signature.output_specs, results, strict=True)):
        if isinstance(node, Node) and _is_complex(node):
            results[place] = pairs = _as_pairs(node, output)
            pairs.meta[COMPLEX] = node.meta["val"].dtype
            assert isinstance(item.arg, TensorArgument)
            item.arg = TensorArgument(name=pairs.name)
    output.args = (tuple(results),)


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _DTYPES


def _take_pairs(node: Node) -> None:
    """Each reader joins the pairs itself, as a step of its own action, or takes them as they are."""
    whole = node.meta["val"]
    node.meta["val"], node.meta[COMPLEX] = torch.view_as_real(whole.resolve_conj()), whole.dtype
    node.meta.pop("tensor_meta", None)  # the importer believes it before val
    for user in list(node.users):
        if user.target is _aten.view_as_real.default:
            user.target = _aten.alias.default
        elif user.op != "output":
            joined = _derived(_aten.view_as_complex.default, node, before=user, of=user)
            user.replace_input_with(node, joined)


def _as_pairs(node: Node, output: Node) -> Node:
    """A result as pairs; a constant that is made of halves by stacking these, which compilers do ahead of time."""
    if node.target is not _aten.complex.default or not _is_constant(node):
        return _derived(_aten.view_as_real.default, node, before=output, of=node)
    halves = [_derived(_aten.unsqueeze.default, half, -1, before=output, of=node) for half in node.args]
    return _derived(_aten.cat.default, halves, -1, before=output, of=node)


def _is_constant(node: Node) -> bool:
    """Whether a node is computed of numbers alone."""
    pending, seen = [node], {node}
    while pending:
        current = pending.pop()
        if current.op == "placeholder":
            return False
        above = [above for above in current.all_input_nodes if above not in seen]
        seen.update(above)
        pending += above
    return True


def _derived(target: torch._ops.OpOverload, *args: Any, before: Node, of: Node) -> Node:
    """A call on nodes that belongs to the action of ``of``."""
    with before.graph.inserting_before(before):
        call = before.graph.call_function(target, args)
    call.meta = {key: of.meta[key] for key in ("from_node", "nn_module_stack", "stack_trace") if key in of.meta}
    values = pytree.tree_map_only(Node, lambda node: node.meta["val"].resolve_conj(), args)
    call.meta["val"] = target(*values)
    return call
