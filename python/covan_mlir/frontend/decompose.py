"""Decomposition of an exported program to the operations that torch-mlir knows."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, _trace
from torch.fx import Graph, Interpreter
from torch.utils import _pytree as pytree

from covan_mlir.errors import ExportError
from covan_mlir.frontend import frames
from covan_mlir.frontend.actions import graphs, modules
from covan_mlir.frontend.alike_calls import decompose_alike
from covan_mlir.frontend.composites import overridden_only_by_rules
from covan_mlir.frontend.dropouts import seen_as_what_they_are_given
from covan_mlir.frontend.flexible_attention import in_plain_operations
from covan_mlir.frontend.graph_passes.complements import unite_complements
from covan_mlir.frontend.graph_passes.complex_pairs import pair_complex
from covan_mlir.frontend.graph_passes.conversions import name_conversions
from covan_mlir.frontend.graph_passes.empty import fold_empty
from covan_mlir.frontend.graph_passes.equal_constants import unite_equal_constants
from covan_mlir.frontend.graph_passes.halves import keep_slices
from covan_mlir.frontend.graph_passes.means import divide_sums
from covan_mlir.frontend.graph_passes.nan_rows import ask_of_rows
from covan_mlir.frontend.graph_passes.number_functions import compute_on_tensors, drop_settled_assertions
from covan_mlir.frontend.graph_passes.pair_halves import take_halves
from covan_mlir.frontend.graph_passes.pieces import slice_pieces
from covan_mlir.frontend.graph_passes.positions import count_from_front
from covan_mlir.frontend.graph_passes.reshapes import explain_reshapes
from covan_mlir.frontend.graph_passes.rotate import rotate
from covan_mlir.frontend.graph_passes.shapes_behind import shapes_behind
from covan_mlir.frontend.graph_passes.straighten import straighten
from covan_mlir.frontend.graph_passes.uniform import fold_uniform
from covan_mlir.frontend.graph_passes.widen import widen_bytes
from covan_mlir.frontend.graph_passes.written_back import drop_written_back
from covan_mlir.frontend.numbers import read_wide, type_numbers
from covan_mlir.frontend.refusals import advice, plainly
from covan_mlir.frontend.table import table

_REGIONS = (torch.ops.higher_order.wrap_with_autocast, torch.ops.higher_order.wrap_with_set_grad_enabled)


def decompose(program: ExportedProgram) -> ExportedProgram:
    """The program in torch-mlir's operations; the given one is left as it is.

    Raises:
        ExportError: a decomposition refuses the program.
    """
    decomposed = decompose_alike(program, _by_torch) or _by_torch(program)
    constants = {
        name: value
        for name, key in decomposed.graph_signature.inputs_to_lifted_tensor_constants.items()
        if isinstance(value := decomposed.constants.get(key), torch.Tensor)
    }
    for _, graph in list(graphs(decomposed.graph)):
        rotate(graph)
    straighten(decomposed.graph, constants)  # first: what begins a loop is folded as the rest is
    for _, graph in list(graphs(decomposed.graph)):
        count_from_front(graph)
        drop_written_back(graph)
        fold_empty(graph)
        fold_uniform(graph, constants if graph is decomposed.graph else {})
        drop_settled_assertions(graph)
        compute_on_tensors(graph)
        type_numbers(graph)
        read_wide(graph)
        widen_bytes(graph)
        slice_pieces(graph)
        keep_slices(graph)
        unite_complements(graph)
        ask_of_rows(graph)
        divide_sums(graph)
        take_halves(graph)
        shapes_behind(graph)
        explain_reshapes(graph)
        name_conversions(graph)
        unite_equal_constants(graph)
        # Of types and devices that are settled, and true. What is asserted about is perhaps done again for it alone.
        for assertion in graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
            graph.erase_node(assertion)
        graph.eliminate_dead_code()  # decompositions leave nodes behind that nobody reads
    pair_complex(decomposed)
    return decomposed


def _by_torch(program: ExportedProgram) -> ExportedProgram:
    """Decomposed call by call."""
    twin = copy.copy(program)
    twin._constants = dict(program.constants)
    twin._module_call_graph = _flat_outputs(program.module_call_graph)
    twin._guards_code = []  # what calls are checked by; some ask for arguments that flat calls do not have
    with (
        _kept_constants(twin._constants),
        _node_by_node(program.graph),
        seen_as_what_they_are_given(program.graph),
        in_plain_operations(program.graph),
        overridden_only_by_rules(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree classes
        try:
            decomposed: ExportedProgram = twin.run_decompositions(dict(table()))
        except Exception as error:
            why = f"{type(error).__name__}: {plainly(str(error))}"
            raise ExportError(f"{_where(error)}the model cannot be decomposed: {why}; {advice('')}") from error
    return decomposed


def _where(error: Exception) -> str:
    """The user's line of the node that was run: torch's interpreter adds the node's stack to what it passes on."""
    innermost = next((frame for frame in frames.parse(str(error)) if not frame.internal), None)
    return f"{innermost}: " if innermost else ""


def _flat_outputs(calls: list[ModuleCallEntry]) -> list[ModuleCallEntry]:
    """The same entries, with a program that returns a flat tuple.

    Decomposing retraces the program, the building of its result included: a key-value cache concatenates empty
    tensors when it is built, and that would become part of the model.
    """
    root = calls[0]
    assert root.fqn == ""
    assert root.signature is not None
    flat = pytree.tree_structure(tuple(range(root.signature.out_spec.num_leaves)))
    return [dataclasses.replace(root, signature=dataclasses.replace(root.signature, out_spec=flat)), *calls[1:]]


@contextmanager
def _node_by_node(graph: Graph) -> Iterator[None]:
    """Have regions (under ``torch.autocast``, ``torch.no_grad``) run node by node when they are decomposed.

    Otherwise what comes of them is tied to the region, and not to the calls in it.
    """
    regions = [module for node in graph.nodes if node.target in _REGIONS for module in modules(node)]
    for module in regions:
        module.forward = Interpreter(module).run
    try:
        yield
    finally:
        for module in regions:
            del module.forward


@contextmanager
def _kept_constants(constants: dict[str, Any]) -> Iterator[None]:
    """Keep the constants that decompositions make.

    torch lifts them out of the graph, names them in the signature, and then forgets their values: a program whose
    decomposition makes one (a causal mask, a key-value cache) fails torch's own check.
    """
    name = "_materialize_and_lift_constants"
    own = getattr(_trace, name, None)
    if own is None:  # another torch: it may have been mended
        yield
        return

    def lift(*args: Any, **kwargs: Any) -> Any:
        lifted = own(*args, **kwargs)
        for key, value in lifted.items():
            if isinstance(value, torch.Tensor):
                constants.setdefault(key, value)
        return lifted

    setattr(_trace, name, lift)
    try:
        yield
    finally:
        setattr(_trace, name, own)
