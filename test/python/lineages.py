"""Lineages as large as asked for, and changed ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from covan_mlir.lineage import Lineage
from covan_mlir.provenance.model import Action, Fate, Frame, Part, Site


def large(nodes: int) -> Lineage:
    """Blocks of 50 actions with residuals and one value that all of them read; three actions per site."""
    frames = [Frame(f"/nowhere/model{i % 7}.py", 10 + i % 400, "forward") for i in range(2800)]
    actions, sites = [], []
    for i in range(nodes):
        inputs = tuple(sorted({0, i - 1, max(0, i - 9)})) if i else ()
        part = Part(i, i, f"mul_{i}", "aten.mul.Tensor", inputs, ("f32[8, 64]",))
        lines = (frames[i % 2800], frames[7 * i % 2800])
        actions.append(Action(i, f"mul_{i}", part.op, f"blocks.{i // 50}", lines, part.types, (part,), inputs))
    for s, first in enumerate(range(0, nodes, 3)):
        trace = tuple(range(first, min(nodes, first + 3)))
        sites.append(Site(s, f"main_dispatch_{s}", "call", trace, trace, inputs=(s - 1,) if s else ()))
    steps = [(f"step-{k}", {p: {f"op{k}": 1} for p in range(k % 5, nodes, 5)}) for k in range(12)]
    fates = [Fate("dispatched", (i // 3,), "step-11") for i in range(nodes)]
    return Lineage(actions, sites, fates=fates, part_fates=dict(enumerate(fates)), history=steps)


def edited(lineage: Lineage, *sites: Site, **changed: Any) -> Lineage:
    """The lineage with other sites in place of those with their ids, and with other fields."""
    by_id = {site.id: site for site in sites}
    fields = ("actions", "commands", "fates", "part_fates", "history", "results", "phases", "bodies", "fusions")
    kept = {name: getattr(lineage, name) for name in fields} | changed
    return Lineage(sites=[by_id.get(site.id, site) for site in lineage.sites], **kept)


def performing(lineage: Lineage, site: Site, parts: tuple[int, ...]) -> Site:
    """The site as one that performs these parts."""
    return replace(site, parts=parts, trace=tuple(sorted({lineage.parts[part].action for part in parts})))
