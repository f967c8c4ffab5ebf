"""The observer that gives every dispatch its identity and follows it to the HAL commands.

A dispatch is born in dispatch creation and marked there by a location, ``site:<n>``, that IREE carries along.
Executables are deduplicated later, so an executable's body names only its first instance; the marks do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering import marks
from covan_mlir.lowering.dispatch_graph import DispatchGraph, locate_payloads
from covan_mlir.lowering.pipeline import State

_BEFORE_DISPATCHES = frozenset(
    {"iree:import", "iree:input", "iree:abi", "iree:preprocessing", "iree:global-optimization"}
)
_COMMANDS = ("stream.cmd.dispatch", "stream.cmd.fill", "stream.cmd.copy")
# HAL commands that do something: what a profile counts besides, barriers, has no site.
_WORK = ("dispatch", "fill_buffer", "copy_buffer", "update_buffer")


@dataclass
class SiteRow:
    """One command of the final program that does work.

    Attributes:
        node: its node in the dispatch graph, or None for work that the compiler added later.
        kind: ``dispatch`` or ``transfer``.
        kernel: entry point of the executable; of a transfer ``fill`` or ``copy``.
        phase: ``init`` or ``call``.
        ids: parts named by the command's own location.
    """

    node: int | None
    kind: str
    kernel: str
    phase: str
    ids: list[int]


@dataclass
class SiteObserver:
    """Marks dispatches when they are formed, and lists the sites when the program's schedule is final."""

    read: TraceReader = field(default_factory=TraceReader)
    graph: dict[str, Any] = field(default_factory=dict)
    sites: list[SiteRow] = field(default_factory=list)
    commands: list[list[int | None]] = field(default_factory=list)

    def __call__(self, step: str, state: State) -> None:
        if state.session is None:
            return
        with state.session.context:
            module = state.module.operation
            if step in _BEFORE_DISPATCHES:
                locate_payloads(module, self.read)
            elif step == "iree:dispatch-creation":
                locate_payloads(module, self.read)
                graph = DispatchGraph(self.read)
                graph.build(module)
                self.graph = graph.to_json()
            elif step == "iree:stream":
                self._collect(module)
            elif step == "iree:hal":
                self._follow(module)

    def _collect(self, module: Any) -> None:
        """List the work of the scheduled program, initialisers first, and mark it with its final number."""
        rows: list[tuple[Any, SiteRow]] = []
        for function in module.regions[0].blocks[0]:
            phase = "init" if function.operation.name == "util.initializer" else "call"
            for op in marks.walk(function.operation, *_COMMANDS):
                verb = op.name.rsplit(".", 1)[-1]
                if verb == "dispatch":
                    kernel = str(op.attributes["entry_points"][0]).rsplit("@", 1)[-1].strip('"')
                else:
                    kernel = verb
                kind = "dispatch" if verb == "dispatch" else "transfer"
                ids = sorted(self.read.ids(op.location))
                rows.append((op, SiteRow(marks.mark_of(op.location), kind, kernel, phase, ids)))
        rows.sort(key=lambda row: row[1].phase == "call")  # stable: program order otherwise
        for index, (op, row) in enumerate(rows):
            self.sites.append(row)
            marks.mark(op, index)

    def _follow(self, module: Any) -> None:
        """For each command buffer, the site of each command."""
        buffers: dict[Any, list[int | None]] = {}
        for op in marks.walk(module, "hal.command_buffer."):
            verb = op.name.rsplit(".", 1)[-1]
            if verb == "create":
                buffers[op.results[0]] = []
            elif verb not in ("finalize", "device") and len(op.operands) and op.operands[0] in buffers:
                buffers[op.operands[0]].append(marks.mark_of(op.location) if verb in _WORK else None)
        self.commands = list(buffers.values())
