"""What a function was before passes of ours ran, as far as traces go: what ``prov-check`` holds it to afterwards.

``prov.baseline``, an attribute of the function, is its graph of operations and traces, as JSON.
"""

from __future__ import annotations

import msgspec
from torch_mlir import ir

from covan_mlir.provenance.program_graph import ProgramGraph

_BASELINE = "prov.baseline"


def write_baseline(function: ir.Operation, graph: ProgramGraph) -> None:
    """Writes down what a function is, in place of what was written down before."""
    function.attributes[_BASELINE] = ir.StringAttr.get(msgspec.json.encode(graph).decode(), function.context)


def read_baseline(function: ir.Operation) -> ProgramGraph | None:
    """What was written down; None of a function that has nothing.

    Raises:
        ValueError: it is no graph; the message says where it is wrong.
    """
    if _BASELINE not in function.attributes:
        return None
    return msgspec.json.decode(function.attributes[_BASELINE].value, type=ProgramGraph)


def erase_baseline(function: ir.Operation) -> None:
    """Takes off what was written down."""
    if _BASELINE in function.attributes:
        del function.attributes[_BASELINE]
