"""A lineage as a notebook shows it."""

from __future__ import annotations

from collections import Counter

from covan_mlir.provenance.explain import counts, short_files, unperformed, user_frame
from covan_mlir.provenance.model import LineageData
from covan_mlir.support.fragments import folded, paragraph, table, whole


def fragment(lineage: LineageData) -> str:
    """Each site with the actions that it performs; then what became of those that none performs."""
    return whole("lineage", [paragraph(counts(lineage), strong=True), sites(lineage), _others(lineage)])


def sites(lineage: LineageData) -> str:
    """The table of sites."""
    short = short_files(frame.file for action in lineage.actions for frame in action.frames if not frame.internal)
    rows = []
    for site in lineage.sites:
        performed = []
        for action in lineage.why(site):
            frame = user_frame(action)
            performed.append(f"{action.name}{f' {short[frame.file]}:{frame.line}' if frame else ''}")
        tags = ", ".join(sorted(lineage.tags(site)))
        rows.append([f"{site.id}", site.phase, site.kernel, "\n".join(performed), tags])
    return table(("site", "phase", "kernel", "performs", "tags"), rows)


def _others(lineage: LineageData) -> str:
    rest = unperformed(lineage)
    if not rest or not lineage.fates:
        return ""
    kinds = Counter(lineage.fates[action.id].kind for action in rest)
    rows = [
        [action.name, action.op, lineage.fates[action.id].kind, lineage.fates[action.id].decided_by] for action in rest
    ]
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return folded(f"performed by no site: {told}", table(("action", "operation", "fate", "decided by"), rows))
