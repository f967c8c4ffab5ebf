"""What the calls of a graph of derivatives are for: whose gradient each computes, with respect to what.

AOTAutograd numbers the calls of the forward graph and those that differentiate them alike, and copies the module and
the call that they come from. What a gradient is with respect to, the graph says itself: the results that it leads to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from covan_mlir.frontend.actions import is_view
from covan_mlir.frontend.sources import ROLE

_SCOPE = ("L['", "G['")
_OF_A_CALL = "fwd_source_fn_stack"
_OF_A_MODULE = "fwd_nn_module_stack"

Call = tuple[str, str]
"""A call of the model: path of the module that makes it, and its name."""


def tell_roles(graph: Graph, gradients: Mapping[Node, str]) -> None:
    """Write down what each call of a graph is for, and in which module of the model it belongs.

    Args:
        gradients: the results that are gradients, and the name of what each is with respect to.
    """
    calls = [node for node in graph.nodes if node.op == "call_function"]
    results = {node: {name} for node, name in gradients.items()}
    ends: dict[Node, set[str]] = {}  # the gradients that each becomes by sums and views alone
    direct: dict[Node, set[str]] = {}  # those that it leads to without another call's work
    passes_on: dict[Node, bool] = {}  # whether it leads to gradients of other calls
    for node in reversed(calls):
        own = _call(node)
        direct[node], ends[node], passes_on[node] = set(results.get(node, ())), set(results.get(node, ())), False
        for user in node.users:
            if user not in direct:
                continue
            if _only_adds(user):
                ends[node] |= ends[user]
            if _call(user) == own:
                direct[node] |= direct[user]
                passes_on[node] |= passes_on[user]
            elif _only_adds(user) and ends[user] and not passes_on[user]:
                direct[node] |= ends[user]
            else:
                passes_on[node] = True
    for node in calls:
        node.meta["nn_module_stack"] = _modules(node)
        if is_gradient(node):
            node.meta[ROLE] = _gradient(node, direct[node], passes_on[node])


def is_gradient(node: Node) -> bool:
    """Whether a call differentiates another."""
    return bool(node.meta.get("autograd_backward"))


def _only_adds(node: Node) -> bool:
    """Whether a call gathers gradients of one tensor, or is a view of one."""
    return node.target == torch.ops.aten.add.Tensor or is_view(node)


def _call(node: Node) -> Call:
    stack = node.meta.get(_OF_A_CALL) or node.meta.get("source_fn_stack")
    return _path(node), str(stack[-1][0]) if stack else ""


def _modules(node: Node) -> Mapping[str, Any]:
    """The modules that a call stands in, by the paths that users know."""
    stack = node.meta.get("nn_module_stack") or node.meta.get(_OF_A_MODULE) or {}
    return {key: (path_in_model(str(path)), kind) for key, (path, kind) in stack.items()}


def _path(node: Node) -> str:
    stack = _modules(node)
    return str(list(stack.values())[-1][0]) if stack else ""


def path_in_model(source: str) -> str:
    """``conv1`` of TorchDynamo's ``L['self'].conv1``; ``layers.0.weight`` of
    ``L['self']._modules['layers']._modules['0']._parameters['weight']``; the name of anything else."""
    for holder in ("_modules", "_parameters", "_buffers"):
        source = source.replace(f"].{holder}['", "]['").replace(f".{holder}['", "['")
    if not source.startswith(_SCOPE):
        return source
    head, _, rest = source[3:].partition("']")
    names = rest.replace("']['", ".").replace("['", ".").replace("']", "").strip(".")
    return names if names or head in ("self", "fn") else head


def _gradient(node: Node, direct: set[str], passes_on: bool) -> str:
    path, name = _call(node)
    if not path and not name:
        return "sum of gradients" if _only_adds(node) else "gradient"
    module = list(_modules(node).values())[-1][1] if path else None
    leaf = module is not None and getattr(module, "__module__", str(module)).startswith("torch.nn.modules")
    of = path if leaf else f"{name} in {path}" if path else name
    prefix = f"{path}."
    to = [text.removeprefix(prefix) if path else text for text in sorted(direct)]
    if passes_on or not to:
        to.insert(0, "its input")
    words = to[0] if len(to) == 1 else f"{', '.join(to[:-1])} and {to[-1]}"
    return f"gradient of {of} with respect to {words}"
