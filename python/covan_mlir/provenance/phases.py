"""The program as the compiler's observers saw it: one graph per phase, the last one being the final program's.

A graph has rows for its nodes as `covan_mlir.lowering.dispatch_graph` describes them. Here they are put into the form
that is kept: globals replaced by what is stored to them, operations by name, equal graphs once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Graph = Mapping[str, Any]


class Phase(NamedTuple):
    """What the program was after one step of the compiler.

    Attributes:
        step: ``iree:global-optimization``; of the last phase ``program``.
        graph: nodes and results.
    """

    step: str
    graph: Graph


PROGRAM = "program"


def settled(graph: Graph) -> Graph:
    """The graph without globals: each use of one is a use of what an initialiser stores to it, or of a constant."""

    def value(row: Sequence[Any]) -> Sequence[Any]:
        seen = set()
        while row[0] == "global" and row[1] not in seen:
            seen.add(row[1])
            row = graph["globals"].get(row[1], {}).get("value") or ["const", []]
        return row if row[0] != "const" else ["const", []]

    nodes = [{**node, "inputs": [value(row) for row in node["inputs"]]} for node in graph["nodes"]]
    return {"nodes": nodes, "globals": {}, "results": [value(row) for row in graph["results"]]}


def kept(graphs: Iterable[tuple[str, Graph]], program: Graph) -> list[Phase]:
    """The phases of one compilation; a graph that is as the one before is the same object."""
    phases: list[Phase] = []
    for step, graph in (*graphs, (PROGRAM, program)):
        new = settled(graph)
        phases.append(Phase(step, phases[-1].graph if phases and new == phases[-1].graph else new))
    return phases


def dump(phases: Iterable[Phase], pool: Callable[[Any], int]) -> list[Any]:
    """JSON-able form: ``[[step, graph], ...]``; a graph that is the one before is null."""
    rows: list[Any] = []
    before: Graph | None = None
    for step, graph in phases:
        rows.append([pool(step), None if graph == before else _graph_row(graph, pool)])
        before = graph
    return rows


def load(rows: Iterable[Any], pool: Sequence[Any]) -> list[Phase]:
    """The inverse of `dump`."""
    phases: list[Phase] = []
    for step, row in rows:
        phases.append(Phase(pool[step], phases[-1].graph if row is None else _graph(row, pool)))
    return phases


_KINDS = ("dispatch", "transfer")
_HOW = ("compute", "move", "view", "input")


def _graph_row(graph: Graph, pool: Callable[[Any], int]) -> list[Any]:
    return [
        [
            [
                pool(node.get("op", "")),
                _KINDS.index(node["kind"]) * 2 + (node["phase"] == "init"),
                [_value_row(value) for value in node["inputs"] if value[0] != "const"],
                [[[_HOW.index(how), *ids] for how, ids in chain] for chain in node["outputs"]],
                list(node["evidence"]),
            ]
            for node in graph["nodes"]
        ],
        [_value_row(value) for value in graph["results"]],
    ]


def _graph(row: Any, pool: Sequence[Any]) -> Graph:
    nodes, results = row
    return {
        "nodes": [
            {
                "op": pool[op],
                "kind": _KINDS[kind // 2],
                "phase": "init" if kind % 2 else "call",
                "inputs": [_value(value) for value in inputs],
                "outputs": [[[_HOW[how], ids] for how, *ids in chain] for chain in outputs],
                "evidence": evidence,
            }
            for op, kind, inputs, outputs, evidence in nodes
        ],
        "globals": {},
        "results": [_value(value) for value in results],
    }


def _value_row(value: Sequence[Any]) -> Any:
    match value:
        case ["node", node, 0]:
            return node
        case ["node", node, number]:
            return [node, number]
        case ["arg", position]:
            return -1 - position
        case ["const", _]:
            return []
    return None


def _value(row: Any) -> list[Any]:
    if isinstance(row, int):
        return ["node", row, 0] if row >= 0 else ["arg", -1 - row]
    if row is None:
        return ["unknown"]
    return ["node", *row] if row else ["const", []]
