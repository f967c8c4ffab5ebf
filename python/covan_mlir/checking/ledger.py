"""Is a function what its module's table says? For checks between passes, of which many ask about one table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from covan_mlir.checking import merged_values
from covan_mlir.checking.program_system import Loss, ProgramSystem
from covan_mlir.checking.reading import Reading
from covan_mlir.checking.source_system import PartCall, SourceSystem
from covan_mlir.dialects.prov_table import Table
from covan_mlir.prov import reflect, weak_bisimulation
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.model import Part
from covan_mlir.provenance.program_graph import NodeResult, ProgramGraph, Value

_NOT_BETWEEN = "which does not lie between what it reads and gives"


@dataclass(frozen=True)
class Fault:
    """One thing in a function that cannot be what the table says.

    Attributes:
        node: position of the operation in the graph; -1: the function itself.
        why: completes "the operation ...".
        parts: that it is about.
    """

    node: int
    why: str
    parts: frozenset[int]


class Ledger:
    """The parts of a table, to check functions against: what is read of them once serves all checks.

    Equal parts are twins. A part without ``args`` reads its inputs alone.
    """

    def __init__(self, table: Table) -> None:
        self._known = frozenset(table.rows)
        self._lines: dict[int, str] = {}
        for action in table.actions:
            frame = next((frame for frame in action.frames if not frame.internal), None)
            if frame is not None:
                self._lines[action.id] = f", {frame.file}:{frame.line}"
        self.parts: dict[int, Part] = {}
        self._calls: dict[int, PartCall] = {}
        first: dict[Any, int] = {}
        for row in sorted(table.parts, key=lambda row: row.id):
            args = row.args or json.dumps([[{"p": i} for i in row.inputs], []])
            operands = tuple(arguments.operands(args))
            read = [
                (kind, self.parts[name].twin if kind == "p" and isinstance(name, int) and name in self.parts else name)
                for kind, name in operands
            ]
            label = f"{row.op}{arguments.signature(args)}"
            twin = first.setdefault((label, tuple(read)), row.id)
            positions = tuple(sorted({int(name) for kind, name in operands if kind == "a"}))
            self.parts[row.id] = Part(
                row.id, row.action, row.name, row.op, row.inputs, row.types, positions, row.view, twin, args
            )
            self._calls[row.id] = PartCall(operands, label)
        self._last: tuple[ProgramGraph, tuple[int | None, ...], tuple[Fault, ...]] | None = None

    def returned(self, graph: ProgramGraph) -> tuple[int | None, ...]:
        """The parts that a function's results are said to be; None of those that say nothing."""
        return tuple(self._returned(graph, value) for value in graph.results)

    def _returned(self, graph: ProgramGraph, value: Value) -> int | None:
        if not isinstance(value, NodeResult):
            return None
        node = graph.nodes[value.node]
        stated = frozenset(node.states(value.result))
        if node.hands_on_pieces and not stated:  # a piece is what its location names
            stated = frozenset(node.evidence)
        known = stated & self.parts.keys()
        return max(known) if known else None

    def faults(self, graph: ProgramGraph, returned: Sequence[int | None]) -> tuple[Fault, ...]:
        """What of a function cannot be what the table's parts are; at most one fault for each operation.

        Args:
            returned: the part that each result is to be, or None.
        """
        # What its operations are called is not compared.
        nameless = replace(graph, nodes=tuple(replace(node, op="") for node in graph.nodes))
        key = (nameless, tuple(returned))
        if self._last is None or self._last[:2] != key:
            self._last = (*key, tuple(self._examined(nameless, key[1])))
        return self._last[2]

    def _examined(self, graph: ProgramGraph, returned: tuple[int | None, ...]) -> list[Fault]:
        results: list[Operand] = [("p", part) for part in returned if part is not None]
        asked = zip(graph.results, returned, strict=False)
        graph = replace(graph, results=tuple(value for value, part in asked if part is not None))
        source = SourceSystem(self.parts, results, calls=self._calls)
        nothing = [None] * len(graph.nodes)
        program = merged_values.read(source, graph, nothing)
        faults = self._of(program)
        if faults and program.reading.guesses:  # told of the names that operations have
            program = ProgramSystem(source, Reading(source, graph), nothing)
            program.walk()
            faults = self._of(program)
        return faults

    def _of(self, program: ProgramSystem) -> list[Fault]:
        source, graph = program.source, program.reading.graph
        verdict = weak_bisimulation(reflect(source.coalgebra()[0]).system, reflect(program.coalgebra()).system)
        faults: dict[int, Fault] = {}
        for node, named in enumerate(graph.nodes):
            if unknown := frozenset(named.evidence) - self._known:
                numbers = ", ".join(map(str, sorted(unknown)))
                why = f"has a trace that names {numbers}, which the module's table does not have"
                faults[node] = Fault(node, why, unknown)
        for loss in program.losses:
            fault = self._lost(source, loss) if loss.node >= 0 else self._not_returned(graph, loss)
            faults.setdefault(fault.node, fault)
        for node in sorted(program.read_nodes):
            if strangers := self._strangers(program, node):
                names = ", ".join(map(self.name, strangers))
                split = all(any(p in o.evidence for n, o in enumerate(graph.nodes) if n != node) for p in strangers)
                why = "of which it is not given what that reads" if split else _NOT_BETWEEN
                fault = Fault(node, f"has a trace that names {names}, {why}", frozenset(strangers))
                faults.setdefault(node, fault)
        if not verdict and not faults:
            faults[-1] = Fault(-1, f"is not what the table says: {verdict.distinction}", frozenset())
        return [faults[node] for node in sorted(faults)]

    def _lost(self, source: SourceSystem, loss: Loss) -> Fault:
        kind, name = loss.operand
        read = kind == "p" and isinstance(name, int)
        value = self.name(int(name)) if read else source.operand_name(loss.operand)
        parts = frozenset(([loss.part] if loss.part >= 0 else []) + ([int(name)] if read else []))
        reader = f" for {self.name(loss.part)}" if loss.part >= 0 else ""
        return Fault(loss.node, f"reads the value of {value}{reader}, which no operation gives it", parts)

    def _not_returned(self, graph: ProgramGraph, loss: Loss) -> Fault:
        """A value that the function was to return: about what it returns instead, if that is an operation's."""
        part = int(loss.operand[1])
        value = graph.results[-1 - loss.node]
        if isinstance(value, NodeResult):
            return Fault(
                value.node, f"is returned as the value of {self.name(part)}, which it is not", frozenset({part})
            )
        return Fault(-1, f"is to return the value of {self.name(part)}, which no operation gives", frozenset({part}))

    def _strangers(self, program: ProgramSystem, node: int) -> list[int]:
        """Parts that an operation's trace names and that do not lie between what it is given and what it gives."""
        if node < 0:
            return []
        independent = program.source.independent  # of sizes alone, too: equal ones are one in the program
        named = [p for p in program.reading.evidence(node) if not independent[p]]
        # An operation that stands for equal ones, copied to each of its readers, has the name of one of them.
        return sorted(p for p in named if not any(program.reached(node, n) for n in self._equal[self.parts[p].twin]))

    @cached_property
    def _equal(self) -> Mapping[int, Sequence[int]]:
        """By the first of them: parts that compute the same of the same."""
        equal: dict[int, list[int]] = {}
        for part in self.parts.values():
            equal.setdefault(part.twin, []).append(part.id)
        return equal

    def name(self, part: int) -> str:
        """``softmax (part 12, model.py:7)``."""
        if part not in self.parts:
            return f"part {part}"
        return f"{self.parts[part].name} (part {part}{self._lines.get(self.parts[part].action, '')})"
