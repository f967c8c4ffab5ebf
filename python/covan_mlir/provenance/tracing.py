"""From what the compiler's observers saw to a lineage: sites with exact traces, and a fate for every action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Held
from covan_mlir.provenance.fates import action_fates, part_fates
from covan_mlir.provenance.fusion import FusionRecord, LeftOverRecord
from covan_mlir.provenance.joins import named
from covan_mlir.provenance.merged import supplemented
from covan_mlir.provenance.model import Action, Group, LineageData, Site
from covan_mlir.provenance.observed import Observed, SiteCommand
from covan_mlir.provenance.phases import Phase, kept, settled
from covan_mlir.provenance.program_graph import NodeResult, ProgramGraph
from covan_mlir.provenance.relation import KeptOperands, Region, Source
from covan_mlir.provenance.substitution import Substitution


@dataclass(frozen=True)
class SourceProgram:
    """What was imported.

    Attributes:
        actions: the ledger.
        results: what the program returns, in order.
        identity: whether a part gives back one of its operands, and which.
        weights: what some weights hold; see `covan_mlir.provenance.bodies.Bodies`.
        groups, tags: see `Lineage`.
        substitution: what substitutions made of the model's graph; actions and results are those behind it.
    """

    actions: tuple[Action, ...]
    results: Sequence[Operand]
    identity: KeptOperands
    weights: Mapping[str, Held] = field(default_factory=dict)
    groups: Sequence[Group] = ()
    tags: Mapping[int, frozenset[str]] = field(default_factory=dict)
    substitution: Substitution | None = None


def trace_program(
    program: SourceProgram,
    observed: Observed,
    fusions: Sequence[FusionRecord] = (),
    left_over: Sequence[LeftOverRecord] = (),
) -> LineageData:
    """The lineage of one compilation.

    Args:
        fusions: what was decided about chains of reductions.
        left_over: operators that no kernel was written for.
    """
    parts = {part.id: part for action in program.actions for part in action.parts}
    source = Source(parts)
    program_graph = named(source, observed.graph, program.identity)
    graph, regions = supplemented(source, program_graph, program.results, program.identity)
    commands = _adopted(observed.commands, graph)
    sites_of: dict[int, list[int]] = {}
    for index, command in enumerate(commands):
        if command.node is not None:
            sites_of.setdefault(command.node, []).append(index)
    placed = frozenset[int]().union(*(regions[node].performed for node in sites_of))
    final = settled(graph)
    sites = [_site(index, command, source, regions, final, sites_of, placed) for index, command in enumerate(commands)]
    returned = [int(name) for kind, name in program.results if kind == "p"]
    fates = part_fates(source, sites, returned, observed.history, program.identity)
    return LineageData(
        actions=program.actions,
        sites=sites,
        commands=observed.buffers,
        fates=action_fates(program.actions, fates, program.substitution),
        part_fates=fates,
        history=observed.history,
        groups=program.groups,
        tags=program.tags,
        results=program.results,
        phases=kept([_named(source, phase, program.identity) for phase in observed.phases], graph),
        fusions=fusions,
        left_over=left_over,
        bodies=structs.replace(observed.bodies, weights=dict(program.weights)),
        substitution=program.substitution,
    )


def _named(source: Source, phase: Phase, identity: KeptOperands) -> Phase:
    return replace(phase, graph=named(source, phase.graph, identity))


def _adopted(commands: Sequence[SiteCommand], graph: ProgramGraph) -> list[SiteCommand]:
    """Copies and fills lose their marks where the compiler makes them anew, as commands or kernels of its own: they
    belong to the moves with their location that have no command, in order, if there are as many."""
    taken = {command.node for command in commands}
    free: dict[tuple[str, frozenset[int]], list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if index not in taken and node.kind == "transfer":
            free.setdefault((node.phase, frozenset(node.evidence)), []).append(index)
    lost: dict[tuple[str, frozenset[int]], list[int]] = {}
    for index, command in enumerate(commands):
        if command.node is None and command.ids:
            lost.setdefault((command.phase, frozenset(command.ids)), []).append(index)
    adopted = list(commands)
    for key, indices in lost.items():
        same = free.get(key, [])
        nodes = same * len(indices) if len(same) == 1 else same
        if len(nodes) == len(indices):
            for index, position in zip(indices, nodes, strict=True):
                adopted[index] = replace(commands[index], node=position)
    return adopted


def _site(
    index: int,
    command: SiteCommand,
    source: Source,
    regions: Sequence[Region],
    graph: ProgramGraph,
    sites_of: Mapping[int, Sequence[int]],
    placed: frozenset[int],
) -> Site:
    parts = source.parts
    node = command.node
    # Work that the compiler added after dispatch creation is known by its location only, which is that of all who need
    # it: a constant that it fills in is data, and what others perform it only gets the memory ready for.
    named = set(command.ids) & parts.keys()
    data = {part for part in named if source.constant[part]}
    views = {part for part in named if parts[part].view}
    region = regions[node] if node is not None else Region(performed=named - data - views - placed, folded=data)
    return Site(
        id=index,
        kernel=command.kernel,
        phase=command.phase,
        # In the order of their parts: where rules shared work, an action may be done by a part of a later one.
        trace=tuple(dict.fromkeys(action for part in sorted(region.performed) for action in parts[part].owners)),
        parts=tuple(sorted(region.performed)),
        kind=command.kind,
        inputs=read_sites(graph, node, sites_of) if node is not None else (),
        views=tuple(sorted(region.viewed)),
        folds=tuple(sorted(region.folded)),
        node=node,
    )


def read_sites(graph: ProgramGraph, node: int, sites_of: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """The sites whose results a node of a settled graph reads: also through moves that became part of how it is read.

    What a later node gives is what it gave at the call before: state.
    """
    sites: set[int] = set()
    seen: set[int] = set()
    stack = [node]
    while stack:
        for value in graph.nodes[stack.pop()].inputs:
            if isinstance(value, NodeResult) and value.node < node and value.node not in seen:
                seen.add(value.node)
                sites.update(sites_of.get(value.node, ()))
                if not sites_of.get(value.node):
                    stack.append(value.node)
    return tuple(sorted(sites))
