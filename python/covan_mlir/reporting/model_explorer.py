"""A lineage as graphs for Google's Model Explorer (pip package ``ai-edge-model-explorer``).

The form is that of its ``graph_builder.GraphCollection``, which it opens as a ``.json`` file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from covan_mlir.provenance.model import Action, LineageData, Relation, Site

_COLOURS = {"view": "#d0d7de", "folded": "#aceebb", "merged": "#ecd8ff", "dead": "#ffcecb"}
_SAID: dict[Relation, str] = {
    "performed": "performs",
    "viewed": "indexes by",
    "folded": "reads constants of",
    "merged": "shares values with",
}


def collection(lineage: LineageData, label: str = "covan") -> dict[str, Any]:
    """Two graphs: ``source``, whose actions are in layers by module, and ``program``, the sites.

    Each action names its sites and each site its actions, in their attributes.
    """
    performing: dict[int, list[Site]] = {}
    related: dict[int, dict[Relation, list[str]]] = {}
    for edge in lineage.edges:
        related.setdefault(edge.site, {}).setdefault(edge.relation, []).append(lineage.actions[edge.action].name)
        if edge.relation == "performed":
            performing.setdefault(edge.action, []).append(lineage.sites[edge.site])
    actions = [_action(lineage, action, performing.get(action.id, [])) for action in lineage.actions]
    sites = [_site(lineage, site, related.get(site.id, {})) for site in lineage.sites]
    return {
        "label": label,
        "graphs": [
            {"id": "source", "nodes": actions},
            {"id": "program", "nodes": sites},
        ],
        "graphSorting": "name_desc",
    }


def _action(lineage: LineageData, action: Action, sites: Iterable[Site]) -> dict[str, Any]:
    fate = lineage.fates[action.id] if lineage.fates else None
    attributes = [
        ("name", action.name),
        ("module", action.module),
        ("for", action.role),
        ("line", action.line),
        ("fate", f"{fate.kind}, by {fate.decided_by}" if fate else ""),
        ("same value as", lineage.actions[fate.twin].name if fate and fate.twin is not None else ""),
        ("sites", ", ".join(f"{site.id} ({site.kernel})" for site in sites)),
        ("tags", ", ".join(sorted(lineage.tags(action)))),
    ]
    node: dict[str, Any] = {
        "id": f"action:{action.id}",
        "label": action.op.removesuffix(".default"),
        "namespace": action.module.replace(".", "/"),
        "attrs": _attributes(attributes),
        "incomingEdges": _edges("action", action.inputs),
        "outputsMetadata": [
            {"id": str(index), "attrs": [{"key": "__tensor_tag", "value": action.name}, {"key": "type", "value": kind}]}
            for index, kind in enumerate(action.types)
        ],
    }
    if fate and fate.kind in _COLOURS:
        node["style"] = {"backgroundColor": _COLOURS[fate.kind]}
    return node


def _site(lineage: LineageData, site: Site, related: dict[Relation, list[str]]) -> dict[str, Any]:
    attributes = [
        ("site", str(site.id)),
        ("kind", site.kind),
        *((_SAID[relation], ", ".join(names)) for relation, names in related.items()),
        ("tags", ", ".join(sorted(lineage.tags(site)))),
    ]
    return {
        "id": f"site:{site.id}",
        "label": site.kernel,
        "namespace": "init" if site.phase == "init" else "",
        "attrs": _attributes(attributes),
        "incomingEdges": _edges("site", site.inputs),
    }


def _attributes(rows: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in rows if value]


def _edges(kind: str, inputs: Iterable[int]) -> list[dict[str, str]]:
    return [
        {"sourceNodeId": f"{kind}:{source}", "sourceNodeOutputId": "0", "targetNodeInputId": str(index)}
        for index, source in enumerate(inputs)
    ]
