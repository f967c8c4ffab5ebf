"""What a report holds, as JSON values: the lineage, its layout, source lines, times and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from covan_mlir.errors import InputError
from covan_mlir.provenance import explain_substitution, trail
from covan_mlir.provenance.explain import counts, short_files
from covan_mlir.provenance.explain_fusion import actions_of
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.model import Action, LineageData, Site
from covan_mlir.provenance.pool import Pool
from covan_mlir.reporting.layout import GraphLayout, layered
from covan_mlir.reporting.sources import Listing


def content(
    lineage: LineageData,
    listing: Listing,
    *,
    seconds: Mapping[int, float] | None = None,
    errors: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """All that the page shows.

    Args:
        seconds: of each site that was timed.
        errors: of each action that was compared; infinities and NaN are errors like others.

    Raises:
        InputError: times or errors are of another program.
    """
    _check(seconds, "the profile", "site", len(lineage.sites))
    _check(errors, "the comparison", "action", len(lineage.actions))
    for site, value in (seconds or {}).items():
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"the profile gives site {site} a time of {value} s")
    links: Pool[tuple[str, str]] = Pool()
    short = short_files(f.file for action in lineage.actions for f in action.frames if not f.internal)
    return {
        "counts": counts(lineage),
        "files": [[file.short, file.path, file.note] for file in listing.files],
        "rows": [[row.file, row.line, row.text] for row in listing.rows],
        "actions": [_action(lineage, action, listing, short, links) for action in lineage.actions],
        "sites": [_site(lineage, site, links) for site in lineage.sites],
        "edges": [[edge.action, edge.site, edge.relation] for edge in lineage.edges],
        "fusions": [_fusion(lineage, record) for record in lineage.fusions],
        "substitutions": _substitutions(lineage),
        "source": _layout(layered([action.inputs for action in lineage.actions])),
        "program": _layout(layered([site.inputs for site in lineage.sites])),
        "seconds": None if seconds is None else [_number(seconds.get(site.id)) for site in lineage.sites],
        "errors": None if errors is None else [_number(errors.get(action.id)) for action in lineage.actions],
        "links": links.values,
    }


def _action(
    lineage: LineageData,
    action: Action,
    listing: Listing,
    short: Mapping[str, str],
    link: Callable[[tuple[str, str]], int],
) -> dict[str, Any]:
    fate = lineage.fates[action.id] if lineage.fates else None
    chain = trail.of_action(lineage, action).links if fate else ()
    return {
        "name": action.name,
        "op": action.op.removesuffix(".default"),
        "module": action.module,
        "role": action.role,
        "types": list(action.types),
        "inputs": sorted(set(action.inputs)),
        "rows": listing.of(action),
        "frames": [f"{short[f.file]}:{f.line} in {f.function}" for f in action.frames if not f.internal],
        "parts": [f"{part.name} ({part.op.removesuffix('.default')})" for part in action.parts],
        "tags": sorted(lineage.action_tags.get(action.id, ())),
        "fate": fate.kind if fate else "",
        "rewritten": list(fate.rewritten_by) if fate else [],
        "by": fate.decided_by if fate else "",
        "twin": fate.twin if fate else None,
        "links": [link((step.step, str(step))) for step in chain],
    }


def _site(lineage: LineageData, site: Site, link: Callable[[tuple[str, str]], int]) -> dict[str, Any]:
    chain = trail.of_site(lineage, site).links if lineage.fates else ()
    return {
        "kernel": site.kernel,
        "phase": site.phase,
        "kind": site.kind,
        "inputs": sorted(set(site.inputs)),
        "tags": sorted(lineage.tags(site)),
        "links": [link((step.step, str(step))) for step in reversed(chain)],
    }


def _substitutions(lineage: LineageData) -> dict[str, Any] | None:
    """Each step with its rule's text, and the operations that went and came; None where there are none."""
    done = lineage.substitution
    if done is None or not done.steps:
        return None
    texts = {rule.name: rule.text for rule in done.rules}
    gone, new = explain_substitution.changed(lineage, done)
    return {
        "head": explain_substitution.text(lineage).splitlines()[0],
        "steps": [[step.rule, list(step.actions), texts[step.rule]] for step in done.steps],
        "gone": gone,
        "new": new,
    }


def _fusion(lineage: LineageData, record: FusionRecord) -> dict[str, Any]:
    return {
        "what": record.what,
        "kernel": record.kernel,
        "reason": record.reason,
        "actions": [action.id for action in actions_of(lineage, record)],
        "chain": list(record.chain),
        "sweeps": [[list(sweep.axes), sweep.why, list(sweep.lines)] for sweep in record.sweeps],
        "certificates": [
            [certificate.claim, certificate.result, "\n".join(map(str, certificate.proofs))]
            for certificate in record.certificates
        ],
        "refusals": list(record.refusals),
        "guards": list(record.guards),
        "schedule": {key: str(value) for key, value in record.schedule.items()},
        "seconds": record.seconds,
    }


def _layout(layout: GraphLayout) -> dict[str, Any]:
    return {"x": layout.x, "layer": layout.layer, "lanes": layout.lanes}


def _number(value: float | None) -> float | str | None:
    """JSON has no infinities and no NaN: these are words."""
    return value if value is None or math.isfinite(value) else str(value)


def _check(values: Iterable[int] | None, what: str, kind: str, count: int) -> None:
    for index in values or ():
        if not 0 <= index < count:
            raise InputError(f"{what} is of another program: it knows {kind} {index}, this one has {count} {kind}s")
