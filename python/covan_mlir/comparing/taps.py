"""The exported program with some of its tensors as results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend.rebuild import copied, mutates, program_of


def tapped(
    program: ExportedProgram, names: Sequence[str], *, keep: bool = True, strides: Mapping[str, int] | None = None
) -> ExportedProgram:
    """The program with the values of nodes as results, a flat tuple; the given program is left as it is.

    Args:
        names: of `observable` nodes.
        keep: return the program's own results as well, before the others. Without, all that the taps do not need is
            dead code; what the program writes to buffers and arguments is not.
        strides: of nodes that are too large: only every n-th element along the longest dimension is returned.
    """
    module = copied(program)
    graph = module.graph
    by_name = {node.name: node for node in graph.nodes}
    # A tensor that is written to later is returned as it was when it was made.
    copies = mutates(graph)
    taps = [_sampled(by_name[name], (strides or {}).get(name, 1), copies) for name in names]
    output = graph.output_node()
    returned: Any = output.args[0]
    results: list[Any] = list(returned)
    specs = list(program.graph_signature.output_specs)
    if not keep:
        kept = [pair for pair in zip(results, specs, strict=True) if pair[1].kind not in (OutputKind.USER_OUTPUT,)]
        results, specs = [pair[0] for pair in kept], [pair[1] for pair in kept]
    results += taps
    specs += [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=node.name), None) for node in taps]
    output.args = (tuple(results),)
    user = sum(spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT) for spec in specs)
    return program_of(program, module, specs, pytree.tree_structure(tuple(range(user))))


def _sampled(node: Node, stride: int, copies: bool) -> Node:
    graph, value = node.graph, node.meta["val"]
    sample = node
    with graph.inserting_after(node):
        if stride > 1:
            axis = longest(value.shape)
            arguments = (node, axis, 0, torch.iinfo(torch.int64).max, stride)
            sample = graph.call_function(torch.ops.aten.slice.Tensor, arguments)
            sample.meta = dict(node.meta) | {"val": torch.ops.aten.slice.Tensor(value, *arguments[1:])}
    if copies:
        with graph.inserting_after(sample):
            copied = graph.call_function(torch.ops.aten.clone.default, (sample,))
        copied.meta = dict(node.meta) | {"val": torch.ops.aten.clone.default(sample.meta["val"])}
        sample = copied
    return sample


def longest(shape: Sequence[int]) -> int:
    """The dimension along which a tensor is sampled."""
    sizes = [int(size) for size in shape]
    return sizes.index(max(sizes))
