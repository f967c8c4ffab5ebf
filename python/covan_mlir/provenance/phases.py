"""The program as the compiler's observers saw it: one graph per phase, the last one being the final program's.

Here the graphs are put into the form that is kept: globals replaced by what is stored to them, equal graphs once. As
JSON, operations are named by their positions in a pool of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from msgspec.structs import replace

from covan_mlir.provenance.program_graph import (
    Argument,
    Constant,
    Definition,
    Global,
    How,
    NodeKind,
    NodeResult,
    ProgramGraph,
    ProgramNode,
    Unknown,
    Value,
)


@dataclass(frozen=True)
class Phase:
    """What the program was after one step of the compiler.

    Attributes:
        step: ``iree:global-optimization``; of the last phase ``program``.
    """

    step: str
    graph: ProgramGraph


PROGRAM = "program"


def settled(graph: ProgramGraph) -> ProgramGraph:
    """The graph without globals: each use of one is a use of what an initialiser stores to it, or of a constant."""

    def stored(value: Value) -> Value:
        seen: set[str] = set()
        while isinstance(value, Global) and value.name not in seen:
            seen.add(value.name)
            value = graph.globals.get(value.name, Constant())
        return Constant() if isinstance(value, Constant) else value

    nodes = tuple(replace(node, inputs=tuple(map(stored, node.inputs))) for node in graph.nodes)
    return ProgramGraph(nodes, tuple(map(stored, graph.results)))


def kept(observed: Iterable[Phase], program: ProgramGraph) -> list[Phase]:
    """The phases of one compilation; a graph that is as the one before is the same object."""
    phases: list[Phase] = []
    for phase in (*observed, Phase(PROGRAM, program)):
        graph = settled(phase.graph)
        phases.append(Phase(phase.step, phases[-1].graph if phases and graph == phases[-1].graph else graph))
    return phases


def dump(phases: Iterable[Phase], pool: Callable[[Any], int]) -> list[Any]:
    """JSON-able form: ``[[step, graph], ...]``; a graph that is the one before is null."""
    rows: list[Any] = []
    before: ProgramGraph | None = None
    for phase in phases:
        rows.append([pool(phase.step), None if phase.graph == before else _graph_row(phase.graph, pool)])
        before = phase.graph
    return rows


def load(rows: Iterable[Any], pool: Sequence[Any]) -> list[Phase]:
    """The inverse of `dump`."""
    phases: list[Phase] = []
    for step, encoded in rows:
        phases.append(Phase(pool[step], phases[-1].graph if encoded is None else _graph(encoded, pool)))
    return phases


_KINDS: tuple[NodeKind, ...] = get_args(NodeKind)
_HOW: tuple[How, ...] = get_args(How)


def _graph_row(graph: ProgramGraph, pool: Callable[[Any], int]) -> list[Any]:
    return [
        [
            [
                pool(node.op),
                _KINDS.index(node.kind) * 2 + (node.phase == "init"),
                # What is no value is left out, but where the position counts.
                [_value_row(v) for v in node.inputs if node.kind == "control" or not isinstance(v, Constant)],
                [[[_HOW.index(link.how), *link.ids] for link in definitions] for definitions in node.outputs],
                list(node.evidence),
            ]
            for node in graph.nodes
        ],
        [_value_row(value) for value in graph.results],
    ]


def _graph(encoded: Any, pool: Sequence[Any]) -> ProgramGraph:
    nodes, results = encoded
    return ProgramGraph(
        tuple(
            ProgramNode(
                kind=_KINDS[kind // 2],
                phase="init" if kind % 2 else "call",
                inputs=tuple(map(_value, inputs)),
                outputs=tuple(
                    tuple(Definition(_HOW[how], tuple(ids)) for how, *ids in definitions) for definitions in outputs
                ),
                evidence=tuple(evidence),
                op=pool[op],
            )
            for op, kind, inputs, outputs, evidence in nodes
        ),
        tuple(map(_value, results)),
    )


def _value_row(value: Value) -> int | list[int] | None:
    match value:
        case NodeResult(node, 0):
            return node
        case NodeResult(node, result):
            return [node, result]
        case Argument(position):
            return -1 - position
        case Constant():
            return []
    return None


def _value(encoded: int | list[int] | None) -> Value:
    if encoded is None:
        return Unknown()
    if isinstance(encoded, int):
        return NodeResult(encoded) if encoded >= 0 else Argument(-1 - encoded)
    return NodeResult(*encoded) if encoded else Constant()
