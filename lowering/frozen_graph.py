"""Watches that kernels stay one to one with the operators that the program was made of (``kir-freeze``).

Until dispatches are formed, the graph of kernels is compared, step by step: who reads whose results. From then on each
dispatch has a number (`covan_mlir.lowering.marks`), and every kernel's must be there once in the schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.dialects.kir_graph import operator_graph
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.kir.graph import Graph, difference
from covan_mlir.lowering import marks
from covan_mlir.lowering.kernels.called import calls, dispatches
from covan_mlir.lowering.kernels.chain_body import KernelBody
from covan_mlir.lowering.pipeline import PipelineState
from covan_mlir.lowering.sites import SiteObserver, entry_point

_FIRST, _LAST, _SCHEDULED = "fred-kernels", "iree:dispatch-creation", "iree:stream"


@dataclass
class FrozenGraph:
    """Compares the kernels of a program with its operators after each step.

    Attributes:
        sites: the observer that numbers dispatches, which comes before this one.
        broken: the first step after which they are not one to one, and how; empty: they always were.
    """

    sites: SiteObserver
    broken: str = ""
    _graph: Graph = ()
    _numbers: Counter[int | None] = field(default_factory=Counter)

    def __call__(self, step: str, state: PipelineState) -> None:
        if self.broken:
            return
        with state.session.context if state.session else state.module.context:
            root = state.module.operation
            if step == _FIRST:
                self._graph = self._read(root)
            elif self._graph and step == _SCHEDULED:
                self._compare(step, self._scheduled())
            elif self._graph and not self._numbers:
                self._compare(step, difference(self._graph, self._read(root)))
                if step == _LAST:
                    self._numbers = self._numbered(root)

    def _read(self, root: Any) -> Graph:
        """The graph of kernels, which are called at first, and dispatched then."""
        (function, *_) = functions(root)
        called, dispatched = calls(root), dispatches(_last(self.sites.kernels))
        return operator_graph(function, lambda op: called(op) or dispatched(op))

    def _compare(self, step: str, said: str) -> None:
        if said:
            self.broken = f"after {step}: {said}"

    def _numbered(self, root: Any) -> Counter[int | None]:
        last = _last(self.sites.kernels)
        ours = [op for op in marks.walk(root, "flow.dispatch") if "entry_points" in op.attributes]
        return Counter(marks.mark_of(op.location) for op in ours if entry_point(op) in last)

    def _scheduled(self) -> str:
        now = Counter(command.node for command in self.sites.commands if command.node in self._numbers)
        strange = [number for number in self._numbers if now[number] != self._numbers[number]]
        return f"{len(strange)} kernels are not dispatched as often as before" if strange else ""


def _last(kernels: Mapping[str, KernelBody]) -> dict[str, str]:
    """Kernels by the symbol of the dispatch that gives their results."""
    return {body.last: body.kernel for body in kernels.values()}
