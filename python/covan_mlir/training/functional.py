"""A captured model as a graph of functions of tensors, those that it holds among its arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch.export.graph_signature import InputKind
from torch.fx import GraphModule

from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.rebuild import copied


@dataclass(frozen=True)
class Functional:
    """A model's graph.

    Attributes:
        module: takes ``arguments``.
        arguments: what the model holds, and behind that example arguments.
        names: of these, without the path of the model in what was captured.
        held: how many of them the model holds.
        same: of names that stand for one tensor, the one that is among ``names``.
    """

    module: GraphModule
    arguments: tuple[Any, ...]
    names: tuple[str, ...]
    held: int
    same: dict[str, str]


def functional(captured: Capture, path: str, learned: Collection[str], examples: Sequence[Any]) -> Functional:
    """The graph of a captured module.

    Args:
        path: what the names of the user's own begin with in what was captured: ``model.``.
        learned: names of the parameters that require gradients.
        examples: of its arguments, flat.
    """
    program = captured.program
    module = copied(program)
    first: dict[int, tuple[str, Any]] = {}
    arguments: list[Any] = []
    names: list[str] = []
    same: dict[str, str] = {}
    rest = iter(examples)
    specs = zip(program.graph_signature.input_specs, module.graph.find_nodes(op="placeholder"), strict=True)
    for spec, node in specs:
        if spec.kind is InputKind.USER_INPUT:
            names.append(node.name)
            arguments.append(next(rest))
            continue
        name = str(spec.target).removeprefix(path)
        tensor = captured.state(str(spec.target))
        if id(tensor) in first:  # tied: one argument for all of its names
            same[name], other = first[id(tensor)]
            node.replace_all_uses_with(other)
            module.graph.erase_node(node)
            continue
        first[id(tensor)] = name, node
        same[name] = name
        names.append(name)
        own = tensor.detach().clone()
        arguments.append(own.requires_grad_() if name in learned else own)
    for node in module.graph.nodes:
        if node.op == "call_function":
            node.meta["source_fn_stack"] = [(node.name, node.target)]
            stack = node.meta.get("nn_module_stack") or {}
            node.meta["nn_module_stack"] = {
                key: (at.removeprefix(path), kind) for key, (at, kind) in stack.items() if at.startswith(path)
            }
    module.recompile()
    return Functional(module, tuple(arguments), tuple(names), len(same.keys() & set(names)), same)
