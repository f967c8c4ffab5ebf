"""``prov-check``: is a function what its module's table says, as its traces tell?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec.structs import replace
from torch_mlir import ir

from covan_mlir.checking.program_system import Claim, Loss, ProgramSystem
from covan_mlir.checking.source_system import SourceSystem
from covan_mlir.dialects.prov import has_table, read_table
from covan_mlir.dialects.prov_graph import TraceGraph, functions
from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.dialects.prov_table import PartRow
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.prov import reflect, weak_bisimulation
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.model import Part
from covan_mlir.provenance.program_graph import NodeResult, ProgramGraph, Value
from covan_mlir.provenance.relation import Source, relate


@dataclass(frozen=True)
class ProvCheck:
    """Checks every function against the table: weak bisimulation of the two action-reflected graphs, up to the traces.

    What an operation performs is what lies, in the table's graph of parts, between the states of its operands and those
    of its results; traces only say which state a result is. So an operation that lost its trace passes for a piece of
    those around it. Fails with an error at each operation that reads a value which is not there, or whose trace names
    what does not lie between its states.

    Before, where the table says that part 3, abs, reads part 2::

        %e = math.exp %x : f32 loc("prov:1:exp")
        %n = arith.negf %e : f32 loc("prov:2:neg")
        %c = math.cos %n : f32 loc("prov:4:cos")
        %a = math.absf %c : f32 loc("prov:3:abs")

    After: the same, and the error ``'math.absf' op reads the value of neg (part 2) for abs (part 3), which no operation
    gives it``.
    """

    name: ClassVar[str] = "prov-check"
    op_name: ClassVar[str | None] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        if not has_table(op):
            raise PassFailure("the module has no prov.table: there is nothing to check it against")
        parts = _parts(read_table(op).parts)
        wrong = sum(_check(function, parts) for function in functions(op))
        if wrong:
            raise PassFailure(f"{wrong} operation{'s' if wrong > 1 else ''} of the module {_DIFFERS}")


_DIFFERS = "cannot be what the table's parts are"


def _parts(rows: Iterable[PartRow]) -> dict[int, Part]:
    """The table's parts; equal ones are twins."""
    parts: dict[int, Part] = {}
    first: dict[Any, int] = {}
    waiting = sorted(rows, key=lambda row: row.id)
    for row in waiting:
        args = row.args or json.dumps([[{"p": i} for i in row.inputs], []])
        read = [(kind, parts[name].twin if kind == "p" and name in parts else name) for kind, name in _read(args)]
        twin = first.setdefault((row.op, arguments.signature(args), tuple(read)), row.id)
        positions = tuple(sorted({int(name) for kind, name in _read(args) if kind == "a"}))
        parts[row.id] = Part(
            row.id, row.action, row.name, row.op, row.inputs, row.types, positions, row.view, twin, args
        )
    return parts


def _read(args: str) -> list[Operand]:
    return arguments.operands(args)


def _check(function: ir.Operation, parts: Mapping[int, Part]) -> int:
    """Reports what is wrong with a function; returns how many operations it is about."""
    reader = TraceReader()
    trace = TraceGraph(reader)
    trace.build(function)
    if any(op.name.startswith("prov.") for op in trace.operations):
        raise PassFailure("the module is reflected: project it first (prov-project)", function.location)
    graph = trace.graph
    regions = relate(Source(parts), graph, lambda part: False)
    claims = [Claim(tuple(sorted(r.performed)), frozenset(r.viewed), frozenset(r.folded)) for r in regions]
    results = [_returned(graph, value, parts) for value in graph.results]
    source = SourceSystem(parts, [result for result in results if result is not None])
    kept = tuple(value for value, result in zip(graph.results, results, strict=True) if result is not None)
    program = ProgramSystem(source, replace(graph, results=kept), claims)
    right, _ = program.coalgebra()
    left, _ = source.coalgebra(program.aside)
    verdict = weak_bisimulation(reflect(left).system, reflect(right).system)
    faults: dict[int, str] = {}
    for loss in program.losses:
        faults.setdefault(loss.node, _lost(source, loss))
    for node, region in enumerate(regions):
        if region.strangers:
            names = ", ".join(_named(parts[part]) for part in sorted(region.strangers))
            faults.setdefault(
                node, f"has a trace that names {names}, which does not lie between what it reads and gives"
            )
    for node, why in sorted(faults.items()):
        place = trace.operations[node] if node >= 0 else function
        place.location.emit_error(f"'{place.name}' op {why}")
    if not verdict and not faults:
        function.location.emit_error(f"'{function.name}' op is not what the table says: {verdict.distinction}")
    return len(faults) or int(not verdict)


def _returned(graph: ProgramGraph, value: Value, parts: Mapping[int, Part]) -> Operand | None:
    """The source state that a returned value is said to be."""
    if not isinstance(value, NodeResult):
        return None
    known = graph.nodes[value.node].states(value.result) & parts.keys()
    return ("p", max(known)) if known else None


def _lost(source: SourceSystem, loss: Loss) -> str:
    kind, name = loss.operand
    value = _named(source.parts[name]) if kind == "p" and isinstance(name, int) else source.operand_name(loss.operand)
    reader = f" for {_named(source.parts[loss.part])}" if loss.part >= 0 else ""
    return f"reads the value of {value}{reader}, which no operation gives it"


def _named(part: Part) -> str:
    return f"{part.name} (part {part.id})"
