"""The lineage as a bipartite graph: actions, sites, and how an action stands to a site; as JSON and as Graphviz."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from covan_mlir.lineage import Action, Lineage, Site

Relation = Literal["performed", "folded", "merged", "viewed"]
RELATIONS: tuple[Relation, ...] = ("performed", "folded", "merged", "viewed")
"""The strongest first."""

_OF_FATE: dict[str, Relation] = {"dispatched": "performed", "folded": "folded", "merged": "merged", "view": "viewed"}
_STYLES: dict[str, str] = {"performed": "solid", "folded": "dotted", "merged": "dashed", "viewed": "dashed"}


@dataclass(frozen=True, order=True)
class Edge:
    """How one action stands to one site.

    Attributes:
        action, site: ids.
        relation: ``performed``: the site computes it; ``folded``: reads its constant value; ``merged``: computes
            another action that has the same value; ``viewed``: only indexes by it. The strongest, in this order,
            when the action's parts differ.
    """

    action: int
    site: int
    relation: Relation


def edges(lineage: Lineage) -> tuple[Edge, ...]:
    """All edges, by action, then site."""
    strongest: dict[tuple[int, int], int] = {}
    for action, site, relation in _pairs(lineage):
        rank = RELATIONS.index(relation)
        strongest[action, site] = min(rank, strongest.get((action, site), rank))
    return tuple(Edge(action, site, RELATIONS[rank]) for (action, site), rank in sorted(strongest.items()))


def _pairs(lineage: Lineage) -> Iterator[tuple[int, int, Relation]]:
    owner = {part: row.action for part, row in lineage.parts.items()}
    for site in lineage.sites:
        for action in site.trace:
            yield action, site.id, "performed"
        for part in site.views:
            yield owner[part], site.id, "viewed"
        for part in site.folds:
            yield owner[part], site.id, "folded"
    for part, fate in lineage.part_fates.items():
        if fate.kind in ("merged", "view", "folded"):  # also where nothing in a site tells, as of a twin
            for index in fate.sites:
                yield owner[part], index, _OF_FATE[fate.kind]
    for row, fate in zip(lineage.actions, lineage.fates, strict=False):
        if not row.parts and fate.kind in _OF_FATE:  # gone in decomposition
            for index in fate.sites:
                yield row.id, index, _OF_FATE[fate.kind]


def related(lineage: Lineage, actions: Iterable[Action]) -> tuple[list[Site], list[Edge]]:
    """The sites that any of ``actions`` stands to, and those edges."""
    ids = {action.id for action in actions}
    found = [edge for edge in lineage.edges if edge.action in ids]
    wanted = {edge.site for edge in found}
    return [site for site in lineage.sites if site.id in wanted], found


def graph_json(lineage: Lineage, actions: Collection[Action]) -> dict[str, Any]:
    """The graph of ``actions`` and all sites that they stand to, in networkx's node-link form.

    ``networkx.node_link_graph(value, edges="edges")`` reads it. Ids are ``action:3`` and ``site:0``.
    """
    sites, found = related(lineage, actions)
    kinds = {action.id: lineage.fates[action.id].kind for action in actions} if lineage.fates else {}
    return {
        "directed": True,
        "multigraph": False,
        "graph": {},
        "nodes": [
            *(
                {
                    "id": f"action:{action.id}",
                    "kind": "action",
                    "name": action.name,
                    "op": action.op,
                    "module": action.module,
                    "line": action.line,
                    "fate": kinds.get(action.id),
                    "tags": sorted(lineage.tags(action)),
                }
                for action in actions
            ),
            *(
                {
                    "id": f"site:{site.id}",
                    "kind": "site",
                    "kernel": site.kernel,
                    "phase": site.phase,
                    "tags": sorted(lineage.tags(site)),
                }
                for site in sites
            ),
        ],
        "edges": [
            {"source": f"action:{edge.action}", "target": f"site:{edge.site}", "relation": edge.relation}
            for edge in found
        ],
    }


def dot(lineage: Lineage, actions: Collection[Action]) -> str:
    """The graph of ``actions`` and all sites that they stand to, in Graphviz's language."""
    import graphviz

    sites, found = related(lineage, actions)
    graph = graphviz.Digraph("lineage", graph_attr={"rankdir": "LR"}, node_attr={"fontname": "Helvetica"})

    def node(id_: str, *lines: str, **attributes: str) -> None:
        graph.node(id_, r"\n".join(graphviz.escape(_printable(line)) for line in lines if line), **attributes)

    for action in actions:
        tags = ", ".join(sorted(lineage.tags(action)))
        node(
            f"action{action.id}", action.name, action.op.removesuffix(".default"), action.module, tags, shape="ellipse"
        )
    for site in sites:
        tags = ", ".join(sorted(lineage.tags(site)))
        node(f"site{site.id}", f"site {site.id}", site.kernel, tags, shape="box")
    for edge in found:
        label = "" if edge.relation == "performed" else edge.relation
        graph.edge(f"action{edge.action}", f"site{edge.site}", label=label, style=_STYLES[edge.relation])
    source: str = graph.source
    return source


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
