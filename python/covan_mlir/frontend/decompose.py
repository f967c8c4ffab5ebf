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
from torch.utils import _pytree as pytree

from covan_mlir.errors import ExportError
from covan_mlir.frontend.graph_passes.complements import unite_complements
from covan_mlir.frontend.graph_passes.empty import fold_empty
from covan_mlir.frontend.graph_passes.halves import keep_slices
from covan_mlir.frontend.graph_passes.pieces import slice_pieces
from covan_mlir.frontend.graph_passes.positions import count_from_front
from covan_mlir.frontend.graph_passes.reshapes import explain_reshapes
from covan_mlir.frontend.graph_passes.uniform import fold_uniform
from covan_mlir.frontend.graph_passes.widen import widen_bytes
from covan_mlir.frontend.numbers import type_numbers
from covan_mlir.frontend.table import table


def decompose(program: ExportedProgram) -> ExportedProgram:
    """The program in torch-mlir's operations; the given one is left as it is.

    Raises:
        ExportError: a decomposition refuses the program.
    """
    twin = copy.copy(program)
    twin._constants = dict(program.constants)
    twin._module_call_graph = _flat_outputs(program.module_call_graph)
    with _kept_constants(twin._constants), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree classes
        try:
            decomposed: ExportedProgram = twin.run_decompositions(dict(table()))
        except Exception as error:
            raise ExportError(f"the model cannot be decomposed: {type(error).__name__}: {error}") from error
    count_from_front(decomposed.graph)
    fold_empty(decomposed.graph)
    fold_uniform(decomposed.graph)
    type_numbers(decomposed.graph)
    widen_bytes(decomposed.graph)
    slice_pieces(decomposed.graph)
    keep_slices(decomposed.graph)
    unite_complements(decomposed.graph)
    explain_reshapes(decomposed.graph)
    decomposed.graph.eliminate_dead_code()  # decompositions leave nodes behind that nobody reads
    return decomposed


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
