"""Complex arguments and results, as pairs of real numbers: programs take and give those, with a last axis of two.

Between them complex numbers are computed with as they are. The memory is the same, so that nothing is copied for it.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx import Node

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
            results[place] = pairs = _derived(_aten.view_as_real.default, node, before=output, of=node)
            pairs.meta[COMPLEX] = node.meta["val"].dtype
            assert isinstance(item.arg, TensorArgument)
            item.arg = TensorArgument(name=pairs.name)
    output.args = (tuple(results),)


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _DTYPES


def _take_pairs(node: Node) -> None:
    """Each reader joins the pairs itself, as a step of its own action."""
    whole = node.meta["val"]
    node.meta["val"], node.meta[COMPLEX] = torch.view_as_real(whole.resolve_conj()), whole.dtype
    node.meta.pop("tensor_meta", None)  # the importer believes it before val
    for user in list(node.users):
        if user.op != "output":
            joined = _derived(_aten.view_as_complex.default, node, before=user, of=user)
            user.replace_input_with(node, joined)


def _derived(target: torch._ops.OpOverload, node: Node, *, before: Node, of: Node) -> Node:
    """A call on ``node`` that belongs to the action of ``of``."""
    with before.graph.inserting_before(before):
        call = before.graph.call_function(target, (node,))
    call.meta = {key: of.meta[key] for key in ("from_node", "nn_module_stack", "stack_trace") if key in of.meta}
    call.meta["val"] = target(node.meta["val"].resolve_conj())
    return call
