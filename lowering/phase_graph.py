"""Keeps the program's graph after each step, until dispatches are formed: what verification checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from covan_mlir.dialects.prov_graph import TraceGraph, functions
from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering.pipeline import PipelineState
from covan_mlir.provenance.phases import Phase

# After this step the program's nodes are dispatches.
_LAST = "iree:global-optimization"


@dataclass
class PhaseObserver:
    """Keeps the graph of each step, in order, until dispatches are formed."""

    read: TraceReader
    phases: list[Phase] = field(default_factory=list)
    _done: bool = False

    def __call__(self, step: str, state: PipelineState) -> None:
        if self._done:
            return
        self._done = step == _LAST
        with state.session.context if state.session else state.module.context:
            trace = TraceGraph(self.read, payloads=True)
            for function in functions(state.module.operation)[:1]:
                trace.build(function)
        self.phases.append(Phase(step, trace.graph))
