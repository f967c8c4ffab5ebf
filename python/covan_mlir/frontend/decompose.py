"""Decomposition of an exported program to the operations that torch-mlir knows."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram, _trace
from torch_mlir.extras.fx_decomp_util import get_decomposition_table


def decompose(program: ExportedProgram) -> ExportedProgram:
    """The program in torch-mlir's operations; the given one is left as it is."""
    twin = copy.copy(program)
    twin._constants = dict(program.constants)
    with _kept_constants(twin._constants), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree classes
        decomposed = twin.run_decompositions(get_decomposition_table())
    decomposed.graph.eliminate_dead_code()  # decompositions leave nodes behind that nobody reads
    return decomposed


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
