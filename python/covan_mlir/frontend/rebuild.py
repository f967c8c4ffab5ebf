"""Exported programs made of others: a copy of the graph that may be changed, what of it can be a result, and a program
around it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputSpec
from torch.fx import GraphModule, Node

from covan_mlir.frontend.dtypes import NAMES


def copied(program: ExportedProgram) -> GraphModule:
    """A copy of the program's graph with the same names of nodes."""
    module: GraphModule = copy.deepcopy(program.graph_module)
    for old, new in zip(program.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # copying renames what is called as a builtin is, such as "input"
    return module


def varying(program: ExportedProgram) -> set[str]:
    """Names of the nodes whose values depend on the arguments of a call, or on random numbers."""
    inputs = program.graph_signature.input_specs
    given = {getattr(spec.arg, "name", "") for spec in inputs if spec.kind is InputKind.USER_INPUT}
    dependent: set[str] = set()
    for node in program.graph.nodes:
        if (
            node.name in given
            or any(read.name in dependent for read in node.all_input_nodes)
            or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        ):
            dependent.add(node.name)
    return dependent


def observable(node: Node) -> bool:
    """Whether a node's value can be a result: a dense tensor of a type that programs return."""
    value = node.meta.get("val")
    return (
        node.op == "call_function"
        and isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.dtype in NAMES
        and not value.dtype.is_complex
    )


def mutates(graph: torch.fx.Graph) -> bool:
    """Whether some call writes to its arguments."""
    return any(isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable for n in graph.nodes)


def program_of(
    program: ExportedProgram,
    module: GraphModule,
    outputs: Sequence[OutputSpec],
    out_spec: Any,
    *,
    inputs: Sequence[InputSpec] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> ExportedProgram:
    """The program with another graph, and what goes with it.

    Args:
        outputs: one per result of the graph.
        out_spec: structure of the user's results.
        inputs: one per placeholder, if they are others than the program's.
        constants: beside the program's.
    """
    module.recompile()
    root, *calls = program.module_call_graph
    assert root.signature is not None
    # Without the names of results, which torch leaves out as well: decompositions rename them, and its check fails.
    signature = dataclasses.replace(root.signature, outputs=[], out_spec=out_spec)
    specs = dataclasses.replace(program.graph_signature, output_specs=list(outputs))
    if inputs is not None:
        specs = dataclasses.replace(specs, input_specs=list(inputs))
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=specs,
        state_dict=program.state_dict,
        range_constraints=dict(program.range_constraints),
        module_call_graph=[dataclasses.replace(root, signature=signature), *calls],
        example_inputs=program.example_inputs,
        constants={**program.constants, **(constants or {})},
        verifiers=program.verifiers,
    )
