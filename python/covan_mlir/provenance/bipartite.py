"""The lineage as a bipartite graph: actions, sites, and how an action stands to a site; as JSON and as Graphviz."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from covan_mlir.provenance.model import Action, Edge, LineageData, Site

_STYLES: dict[str, str] = {"performed": "solid", "folded": "dotted", "merged": "dashed", "viewed": "dashed"}


def related(lineage: LineageData, actions: Iterable[Action]) -> tuple[list[Site], list[Edge]]:
    """The sites that any of ``actions`` stands to, and those edges."""
    ids = {action.id for action in actions}
    edges = [edge for edge in lineage.edges if edge.action in ids]
    near = {edge.site for edge in edges}
    return [site for site in lineage.sites if site.id in near], edges


def graph_json(lineage: LineageData, actions: Collection[Action]) -> dict[str, Any]:
    """The graph of ``actions`` and all sites that they stand to, in networkx's node-link form.

    ``networkx.node_link_graph(value, edges="edges")`` reads it. Ids are ``action:3`` and ``site:0``.
    """
    sites, edges = related(lineage, actions)
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
            for edge in edges
        ],
    }


def dot(lineage: LineageData, actions: Collection[Action]) -> str:
    """The graph of ``actions`` and all sites that they stand to, in Graphviz's language."""
    import graphviz

    sites, edges = related(lineage, actions)
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
    for edge in edges:
        label = "" if edge.relation == "performed" else edge.relation
        graph.edge(f"action{edge.action}", f"site{edge.site}", label=label, style=_STYLES[edge.relation])
    source: str = graph.source
    return source


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
