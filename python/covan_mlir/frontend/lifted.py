"""Constants in the functions that operators take, given to these from outside.

``torch.tensor(1.5)`` in a branch or in the body of a loop stays an attribute of the function there, which torch's own
decompositions refuse. In a program itself torch makes such an input of the program; here it becomes one, too, and an
operand of the operator.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend.actions import bodies, modules
from covan_mlir.frontend.rebuild import copied, program_of

_TAKERS = tuple(getattr(torch.ops.higher_order, name) for name in ("cond", "while_loop", "scan", "map_impl"))
"""Operators whose last argument is what their functions are given beside all else."""


def lift_constants(program: ExportedProgram) -> ExportedProgram:
    """The program with what its functions hold as inputs of its own; the same one where they hold nothing."""
    if not any(True for node in program.graph.nodes for body in _functions(node) for _ in _held(body)):
        return program
    module = copied(program)
    for node in list(module.graph.nodes):
        _lift(node)
    inputs = list(program.graph_signature.input_specs)
    first = next((k for k, spec in enumerate(inputs) if spec.kind is InputKind.USER_INPUT), len(inputs))
    placeholders = module.graph.find_nodes(op="placeholder")
    values: dict[str, torch.Tensor] = {}
    for count, attribute in enumerate(list(_held(module))):
        name = f"lifted_function_tensor_{count}"
        value = operator.attrgetter(str(attribute.target))(module)
        before = placeholders[first] if first < len(placeholders) else next(iter(module.graph.nodes))
        with module.graph.inserting_before(before):
            placeholder = module.graph.placeholder(name)
        placeholder.meta["val"] = attribute.meta["val"]
        attribute.replace_all_uses_with(placeholder)
        _erase(attribute)
        values[name] = value
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(placeholder.name), name, None)
        inputs.insert(first + count, spec)
    root = program.module_call_graph[0].signature
    assert root is not None
    outputs = program.graph_signature.output_specs
    return program_of(program, module, outputs, root.out_spec, inputs=inputs, constants=values)


def _functions(node: Node) -> list[GraphModule]:
    return modules(node) if node.op == "call_function" and node.target in _TAKERS else []


def _held(function: GraphModule) -> Iterator[Node]:
    """The tensors that a function, or one in it, holds."""
    for node in function.graph.nodes:
        if node.op == "get_attr" and isinstance(operator.attrgetter(str(node.target))(function), torch.Tensor):
            yield node
        for inner in _functions(node):
            yield from _held(inner)


def _lift(node: Node) -> None:
    """Have the functions of an operator be given what they hold."""
    for function in _functions(node):
        for inner in list(function.graph.nodes):
            _lift(inner)
    owner = node.graph.owning_module
    assert owner is not None
    for function in _functions(node):
        for attribute in list(_held(function)):
            value = operator.attrgetter(str(attribute.target))(function)
            operands = pytree.tree_leaves(node.args[-1])
            name = f"{node.name}_tensor_{len(operands)}"
            owner.register_buffer(name, value, persistent=False)
            with node.graph.inserting_before(node):
                outside = node.graph.get_attr(name)
            outside.meta["val"] = _fake(node, value)
            for body in bodies(node):
                parameter = _parameter(body, name, outside.meta["val"])
                if body is function.graph:
                    attribute.replace_all_uses_with(parameter)
            _erase(attribute)
            given = [*operands, outside]
            node.args = (*node.args[:-1], given if isinstance(node.args[-1], list) else tuple(given))
        function.recompile()


def _erase(attribute: Node) -> None:
    """Have a function hold a tensor no more, if nothing else in it is that one."""
    owner, name = attribute.graph.owning_module, str(attribute.target)
    assert owner is not None
    attribute.graph.erase_node(attribute)
    if not any(str(node.target) == name for node in owner.graph.find_nodes(op="get_attr")):
        delattr(owner, name)


def _parameter(body: Graph, name: str, value: Any) -> Node:
    """One more of a function, behind all others."""
    last = body.find_nodes(op="placeholder")
    with body.inserting_after(last[-1]) if last else body.inserting_before(next(iter(body.nodes))):
        given = body.placeholder(name)
    given.meta["val"] = value
    return given


def _fake(node: Node, value: torch.Tensor) -> Any:
    """A tensor as the values of a graph are."""
    known = (n.meta.get("val") for n in node.graph.nodes)
    example = next((v for v in known if isinstance(v, torch._subclasses.FakeTensor)), None)
    return value if example is None else example.fake_mode.from_tensor(value)
