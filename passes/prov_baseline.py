"""``prov-baseline``: what functions are before passes of ours run, for ``prov-check`` to hold them to afterwards."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.prov_baseline import write_baseline
from covan_mlir.dialects.prov_graph import TraceGraph, functions
from covan_mlir.dialects.prov_locations import TraceReader


@dataclass(frozen=True)
class ProvBaseline:
    """Writes down the graph of each function, its operations and their traces, as an attribute of the function.

    Passes of others know nothing of traces. What they left that cannot be told is no fault of those that follow, and
    which part each result is must not change any more: ``prov-check`` looks both up here.

    Before::

        func.func @main(%x: f32) -> f32 {

    After::

        func.func @main(%x: f32) -> f32 attributes {prov.baseline = "[[[\\22dispatch\\22,...]]]"} {
    """

    name: ClassVar[str] = "prov-baseline"
    op_name: ClassVar[str | None] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            trace = TraceGraph(TraceReader())
            trace.build(function)
            write_baseline(function, trace.graph)
