"""Which operators of torch stand for functions in MLIR, of those that `covan_mlir.attaching.mlir` defines."""

from __future__ import annotations

import torch

from covan_mlir.artifacts.attachment import MlirFunction
from covan_mlir.lowering.inlined import NAMESPACE

_functions: dict[str, MlirFunction] = {}
"""By name of the operator; one per function, for the life of the process."""


def stands_for(operator: str, function: MlirFunction) -> bool:
    """Note what an operator stands for; -> whether it is new."""
    if operator in _functions:
        return False
    _functions[operator] = function
    return True


def functions(graph: torch.fx.Graph) -> tuple[tuple[str, str, str], ...]:
    """The functions in MLIR that a graph calls: names of their operators, texts, and names in these."""
    names = (str(node.target).removesuffix(".default") for node in graph.nodes if node.op == "call_function")
    called = {name: _functions[name] for name in names if name in _functions}
    return tuple((name, function.text, function.name) for name, function in called.items())


def has_own(graph: torch.fx.Graph) -> bool:
    """Whether a graph calls operators that only covan knows."""
    return any(str(node.target).startswith(f"{NAMESPACE}.") for node in graph.nodes if node.op == "call_function")
