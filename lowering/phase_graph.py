"""Keeps the program's graph after each step, until dispatches are formed: what verification checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from covan_mlir.dialects.prov_graph import TraceGraph, functions
from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering.pipeline import State

# After this step the program's nodes are dispatches.
_LAST = "iree:global-optimization"


@dataclass
class PhaseObserver:
    """Keeps the graph of each step until dispatches are formed.

    Attributes:
        phases: (step, graph) in order.
    """

    read: TraceReader
    phases: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _done: bool = False

    def __call__(self, step: str, state: State) -> None:
        if self._done:
            return
        self._done = step == _LAST
        with state.session.context if state.session else state.module.context:
            graph = TraceGraph(self.read)
            for function in functions(state.module.operation)[:1]:
                graph.build(function)
        self.phases.append((step, graph.to_json()))
