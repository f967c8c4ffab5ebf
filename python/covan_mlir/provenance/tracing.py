"""From what the compiler's observers saw to a lineage: sites with exact traces, and a fate for every action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.fates import action_fates, live_parts, part_fates
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.merged import supplemented
from covan_mlir.provenance.model import Action, Group, LineageData, Site
from covan_mlir.provenance.phases import Graph, kept
from covan_mlir.provenance.relation import Region, Source

History = Sequence[tuple[str, Mapping[int, Mapping[str, int] | None]]]


def trace_program(
    actions: tuple[Action, ...],
    results: Sequence[Operand],
    identity: Callable[[int], bool],
    graph: Mapping[str, Any],
    commands: Sequence[Mapping[str, Any]],
    buffers: Sequence[Sequence[int | None]],
    history: History,
    groups: Sequence[Group] = (),
    tags: Mapping[int, frozenset[str]] | None = None,
    phases: Sequence[tuple[str, Graph]] = (),
    fusions: Sequence[FusionRecord] = (),
) -> LineageData:
    """The lineage of one compilation.

    Args:
        results: what the program returns, in order.
        identity: whether a part gives back one of its inputs.
        graph: the program after dispatch creation (`covan_mlir.lowering.dispatch_graph`).
        commands: the work of the final program in order (`covan_mlir.lowering.sites.SiteRow`).
        buffers: per command buffer, the site of each command.
        history: which operations carried each part after each step (`covan_mlir.lowering.history`).
        groups, tags: see `Lineage`.
        phases: the graphs of the steps before dispatches were formed (`covan_mlir.lowering.phase_graph`).
        fusions: what was decided about chains of reductions.
    """
    parts = {part.id: part for action in actions for part in action.parts}
    source = Source(parts)
    graph, regions = supplemented(source, graph, results, identity)
    commands = _adopted(commands, graph)
    sites_of: dict[int, list[int]] = {}
    for index, row in enumerate(commands):
        if row["node"] is not None:
            sites_of.setdefault(row["node"], []).append(index)
    sites = [_site(index, row, source, regions, graph, sites_of) for index, row in enumerate(commands)]
    returned = [int(name) for kind, name in results if kind == "p"]
    fates = part_fates(source, sites, live_parts(parts, returned), history, identity)
    return LineageData(
        actions=actions,
        sites=sites,
        commands=buffers,
        fates=action_fates(actions, fates),
        part_fates=fates,
        history=history,
        groups=groups,
        tags=tags,
        results=results,
        phases=kept(phases, graph),
        fusions=fusions,
    )


def _adopted(commands: Sequence[Mapping[str, Any]], graph: Graph) -> list[Mapping[str, Any]]:
    """Copies and fills lose their marks where the compiler makes them anew, as commands or kernels of its own: one
    belongs to the only move with its location that has no command."""
    taken = {row["node"] for row in commands}
    free: dict[tuple[str, frozenset[int]], list[int]] = {}
    for index, node in enumerate(graph["nodes"]):
        if index not in taken and node["kind"] == "transfer":
            free.setdefault((node["phase"], frozenset(node["evidence"])), []).append(index)
    found: list[Mapping[str, Any]] = []
    for row in commands:
        if row["node"] is None and row["ids"]:
            same = free.get((row["phase"], frozenset(row["ids"])), [])
            row = {**row, "node": same[0]} if len(same) == 1 else row
        found.append(row)
    return found


def _site(
    index: int,
    row: Mapping[str, Any],
    source: Source,
    regions: Sequence[Region],
    graph: Mapping[str, Any],
    sites_of: Mapping[int, Sequence[int]],
) -> Site:
    parts = source.parts
    node = row["node"]
    # Work that the compiler added after dispatch creation is known by its location only; a constant that it fills in
    # is data.
    named = set(row["ids"]) & parts.keys()
    data = {part for part in named if source.constant[part]}
    region = regions[node] if node is not None else Region(performed=named - data, folded=data)
    return Site(
        id=index,
        kernel=row["kernel"],
        phase=row["phase"],
        trace=tuple(sorted({parts[part].action for part in region.performed})),
        parts=tuple(sorted(region.performed)),
        kind=row["kind"],
        inputs=read_sites(graph, node, sites_of) if node is not None else (),
        views=tuple(sorted(region.viewed)),
        folds=tuple(sorted(region.folded)),
        node=node,
    )


def read_sites(graph: Graph, node: int, sites_of: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """The sites whose results a node reads: also through moves that became part of how it is read."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [node]
    while stack:
        for kind, *rest in graph["nodes"][stack.pop()]["inputs"]:
            if kind == "node" and rest[0] not in seen:
                seen.add(rest[0])
                found.update(sites_of.get(rest[0], ()))
                if not sites_of.get(rest[0]):
                    stack.append(rest[0])
    return tuple(sorted(found))
