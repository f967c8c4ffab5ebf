"""The observer that gives every dispatch its identity and follows it to the HAL commands.

A dispatch is born in dispatch creation and marked there by a location, ``site:<n>``, that IREE carries along.
Executables are deduplicated later, so an executable's body names only its first instance; the marks do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import iree.compiler.ir as ir
from msgspec.structs import replace

from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering import marks
from covan_mlir.lowering.bodies import read_bodies
from covan_mlir.lowering.dispatch_graph import Paddings, locate_payloads, read_graph, read_paddings
from covan_mlir.lowering.kernels.chain_body import KernelBody
from covan_mlir.lowering.pipeline import PipelineState
from covan_mlir.provenance.bodies import Bodies
from covan_mlir.provenance.observed import SiteCommand
from covan_mlir.provenance.program_graph import NodePhase, ProgramGraph, SiteKind

_BEFORE_DISPATCHES = frozenset(
    {"iree:import", "iree:input", "iree:abi", "iree:preprocessing", "iree:global-optimization"}
)
_COMMANDS = ("stream.cmd.dispatch", "stream.cmd.fill", "stream.cmd.copy")
# HAL commands that do something: what a profile counts besides, barriers, has no site.
_WORK = ("dispatch", "fill_buffer", "copy_buffer", "update_buffer")


def entry_point(dispatch: Any) -> str:
    """The name of the kernel that a dispatch runs."""
    return str(dispatch.attributes["entry_points"][0]).rsplit("@", 1)[-1].strip('"')


@dataclass
class SiteObserver:
    """Marks dispatches when they are formed, and lists the sites when the program's schedule is final.

    Attributes:
        kernels: what kernels of our own compute, by the symbol of each of their dispatches.
        graph, bodies, commands, buffers: see `Observed`.
    """

    read: TraceReader = field(default_factory=TraceReader)
    kernels: Mapping[str, KernelBody] = field(default_factory=dict)
    graph: ProgramGraph = field(default_factory=ProgramGraph)
    bodies: Bodies = field(default_factory=Bodies)
    commands: tuple[SiteCommand, ...] = ()
    buffers: tuple[tuple[int | None, ...], ...] = ()
    _paddings: Paddings = field(default_factory=dict)

    def __call__(self, step: str, state: PipelineState) -> None:
        if state.session is None:
            return
        with state.session.context:
            module = state.module.operation
            if step in _BEFORE_DISPATCHES:
                locate_payloads(module, self.read)
                self._paddings = read_paddings(module, self.read)
            elif step == "iree:dispatch-creation":
                locate_payloads(module, self.read)
                self.graph, value = read_graph(module, self.read, self._paddings)
                self.bodies = read_bodies(state.module, len(self.graph.nodes), self.kernels, value)
            elif step == "iree:flow":
                # A copy that the compiler makes of a global, to write into it, gets the location of the load: that of
                # whoever was the first to read what is stored there.
                for load in marks.walk(module, "util.global.load"):
                    load.location = ir.Location.unknown()
                self.graph = self._named(module)
            elif step == "iree:stream":
                self._collect(module)
            elif step == "iree:hal":
                self._follow(module)

    def _named(self, module: Any) -> ProgramGraph:
        """The graph with what each dispatch runs, as it was called when its work was outlined."""
        nodes = list(self.graph.nodes)
        for op in marks.walk(module, "flow.dispatch"):
            index = marks.mark_of(op.location)
            # A copy of what is to be put somewhere else is at the node that puts it there, and is none of its own.
            if index is not None and "entry_points" in op.attributes and nodes[index].kind == "dispatch":
                nodes[index] = replace(nodes[index], op=entry_point(op))
        return replace(self.graph, nodes=tuple(nodes))

    def _collect(self, module: Any) -> None:
        """List the work of the scheduled program, initialisers first, and mark it with its final number."""
        work: list[tuple[Any, SiteCommand]] = []
        for function in module.regions[0].blocks[0]:
            phase: NodePhase = "init" if function.operation.name == "util.initializer" else "call"
            for op in marks.walk(function.operation, *_COMMANDS):
                verb = op.name.rsplit(".", 1)[-1]
                kernel = entry_point(op) if verb == "dispatch" else verb
                kind: SiteKind = "dispatch" if verb == "dispatch" else "transfer"
                ids = tuple(sorted(self.read.ids(op.location)))
                work.append((op, SiteCommand(marks.mark_of(op.location), kind, kernel, phase, ids)))
        work.sort(key=lambda pair: pair[1].phase == "call")  # stable: program order otherwise
        for index, (op, _) in enumerate(work):
            marks.mark(op, index)
        self.commands = tuple(command for _, command in work)

    def _follow(self, module: Any) -> None:
        """For each command buffer, the site of each command."""
        buffers: dict[Any, list[int | None]] = {}
        for op in marks.walk(module, "hal.command_buffer."):
            verb = op.name.rsplit(".", 1)[-1]
            if verb == "create":
                buffers[op.results[0]] = []
            elif verb not in ("finalize", "device") and len(op.operands) and op.operands[0] in buffers:
                buffers[op.operands[0]].append(marks.mark_of(op.location) if verb in _WORK else None)
        self.buffers = tuple(map(tuple, buffers.values()))
