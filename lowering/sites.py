"""Observers that give every dispatch site its identity and find out what it performs.

A site is born in dispatch creation and marked there by a location, ``site:<n>``, that IREE carries to the HAL commands.
Executables are deduplicated later, so an executable's body names only its first instance; the marks do not.

What a site performs is read from the locations of the operations that compute in it, then completed along the
data flow of the source graph (`complete`). This is an approximation: see docs/provenance.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering.pipeline import State

_MARK = "site:"

# Operations that say nothing about what is computed: their locations name whoever made them, often another action's.
_SILENT = frozenset(
    {
        "arith.constant",
        "linalg.yield",
        "linalg.index",
        "linalg.fill",
        "tensor.empty",
        "tensor.dim",
        "flow.return",
        "flow.dispatch.workgroups",
        "flow.dispatch.tie_shape",
        "scf.yield",
        "affine.apply",
    }
)
_SILENT_DIALECTS = ("iree_tensor_ext.", "util.", "hal.")


@dataclass
class SiteRow:
    """One dispatch command of the final program."""

    kernel: str
    phase: str
    parts: list[int]


@dataclass
class SiteObserver:
    """Marks sites after dispatch creation, and collects them when the program's schedule and commands are final.

    Attributes:
        inputs: for each part id, the ids of the parts that it reads.
    """

    inputs: Mapping[int, Sequence[int]]
    sites: list[SiteRow] = field(default_factory=list)
    commands: list[list[int | None]] = field(default_factory=list)
    _evidence: dict[int, frozenset[int]] = field(default_factory=dict)
    _read: TraceReader = field(default_factory=TraceReader)

    def __call__(self, step: str, state: State) -> None:
        if state.session is None:
            return
        match step:
            case "iree:dispatch-creation":
                with state.session.context:
                    self._locate_payloads(state.module.operation)
                    self._mark(state.module.operation)
            case "iree:import" | "iree:input" | "iree:preprocessing" | "iree:global-optimization":
                with state.session.context:
                    self._locate_payloads(state.module.operation)
            case "iree:stream":
                with state.session.context:
                    self._collect(state.module.operation)
            case "iree:hal":
                with state.session.context:
                    self._follow(state.module.operation)

    def _locate_payloads(self, module: Any) -> None:
        """Give the bodies of named operations the operation's location.

        A body is invisible until a pass turns the operation into a generic one and fuses it; built by a C++ region
        builder, it has no location of its own, and the action would be lost with the name.
        """
        for op in _walk(module, "linalg."):
            if op.name in _SILENT:
                continue
            for region in op.regions:
                for inner in region.blocks[0]:
                    if not self._read.ids(inner.operation.location):
                        inner.operation.location = op.location

    def _mark(self, module: Any) -> None:
        for index, op in enumerate(_walk(module, "flow.dispatch.workgroups")):
            self._evidence[index] = self._performed(op)
            op.location = ir.Location.name(f"{_MARK}{index}", op.location)

    def _performed(self, dispatch: Any) -> frozenset[int]:
        """Ids in the locations of the operations that compute inside a dispatch."""
        computing: set[int] = set()
        moving: set[int] = set()
        loud: list[Any] = []

        def visit(op: Any) -> Any:
            name = op.name
            if name not in _SILENT and not name.startswith(_SILENT_DIALECTS):
                loud.append(op)
            return ir.WalkResult.ADVANCE

        dispatch.walk(visit)
        for op in loud:
            ids = self._read.ids(op.location)
            if op.name == "linalg.generic":
                # Its payload speaks for itself; a generic that only moves data has none.
                payload = any(inner.operation.name not in _SILENT for inner in op.regions[0].blocks[0])
                (moving if payload else computing).update(ids)
            elif op.name.startswith("tensor."):
                moving.update(ids)
            else:
                computing.update(ids)
        return frozenset(computing or moving or self._read.ids(dispatch.location))

    def _collect(self, module: Any) -> None:
        rows: list[tuple[Any, SiteRow, int | None]] = []
        for function in module.regions[0].blocks[0]:
            phase = "init" if function.operation.name == "util.initializer" else "call"
            for op in _walk(function.operation, "stream.cmd.dispatch"):
                mark = _mark_of(op.location)
                kernel = str(op.attributes["entry_points"][0]).rsplit("@", 1)[-1].strip('"')
                parts = self._evidence[mark] if mark is not None else self._read.ids(op.location)
                rows.append((op, SiteRow(kernel, phase, sorted(parts)), mark))
        rows.sort(key=lambda row: row[1].phase == "call")  # stable: initialisers first, else program order
        completed = complete([frozenset(row.parts) for _, row, _ in rows], self.inputs)
        for index, ((op, row, _), parts) in enumerate(zip(rows, completed, strict=True)):
            row.parts = sorted(parts)
            self.sites.append(row)
            op.location = ir.Location.name(f"{_MARK}{index}", op.location)

    def _follow(self, module: Any) -> None:
        buffers: dict[Any, list[int | None]] = {}
        for op in _walk(module, "hal.command_buffer."):
            verb = op.name.rsplit(".", 1)[-1]
            if verb == "create":
                buffers[op.results[0]] = []
            elif verb not in ("finalize", "device") and op.operands and op.operands[0] in buffers:
                buffers[op.operands[0]].append(_mark_of(op.location) if verb.startswith("dispatch") else None)
        self.commands = list(buffers.values())


def complete(evidence: Sequence[frozenset[int]], inputs: Mapping[int, Sequence[int]]) -> list[frozenset[int]]:
    """Add to each site the parts that no location names but that lie between parts it performs.

    A part without evidence anywhere (a view, a multiplication by one that was folded) belongs to the sites found both
    among its nearest performed producers and among its nearest performed consumers.

    Args:
        evidence: parts named by locations, per site.
        inputs: the parts that each part reads; ids ascend along the data flow.
    """
    sites_of: dict[int, set[int]] = {}
    for site, parts in enumerate(evidence):
        for part in parts:
            sites_of.setdefault(part, set()).add(site)
    above: dict[int, set[int]] = {}
    below: dict[int, set[int]] = {}
    for part in sorted(inputs):
        above[part] = sites_of.get(part) or _union(above[i] for i in inputs[part] if i in above)
    for part in sorted(inputs, reverse=True):
        down = sites_of.get(part) or below.get(part, set())
        below[part] = down
        for i in inputs[part]:
            below.setdefault(i, set()).update(down)
    completed = [set(parts) for parts in evidence]
    for part in inputs:
        if part not in sites_of:
            for site in above[part] & below[part]:
                completed[site].add(part)
    return [frozenset(parts) for parts in completed]


def _union(sets: Iterable[set[int]]) -> set[int]:
    return set().union(*sets)


def _walk(root: Any, prefix: str) -> list[Any]:
    """Operations whose name starts with ``prefix``, in program order."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith(prefix):
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return found


def _mark_of(location: Any) -> int | None:
    """The outermost site mark of a location."""
    while True:
        kind = type(location).__name__
        if kind == "NameLoc":
            if location.name_str.startswith(_MARK):
                return int(location.name_str.removeprefix(_MARK))
            location = location.child_loc
        elif kind == "FusedLoc":
            marks = [m for m in map(_mark_of, location.locations) if m is not None]
            return marks[0] if marks else None
        elif kind == "CallSiteLoc":
            location = location.callee
        else:
            return None
