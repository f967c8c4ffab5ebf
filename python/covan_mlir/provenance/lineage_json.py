"""The versioned JSON form of a lineage (docs/artifact.md). What models repeat is interned: frames, names, types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from covan_mlir.provenance import arguments, phases
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.model import Action, Fate, Frame, Group, LineageData, Part, Site

FORMAT = 2


def dump(lineage: LineageData) -> dict[str, Any]:
    """JSON-able form; `load` is its inverse."""
    pool = _Pool()
    return {
        "format": FORMAT,
        "actions": [_action_row(action, pool) for action in lineage.actions],
        "parts": [_part_row(part, pool) for action in lineage.actions for part in action.parts],
        "sites": [_site_row(site, pool) for site in lineage.sites],
        "commands": [list(row) for row in lineage.commands],
        "fates": [[f.kind, list(f.sites), pool(f.decided_by), f.twin] for f in lineage.fates],
        "part_fates": [
            [part, f.kind, list(f.sites), pool(f.decided_by), f.twin] for part, f in lineage.part_fates.items()
        ],
        "results": [list(result) for result in lineage.results],
        "phases": phases.dump(lineage.phases, pool),
        "history": [[pool(step), _changes(changed, pool)] for step, changed in lineage.history],
        "groups": [[group.name, group.kind, list(group.actions)] for group in lineage.groups],
        "tags": _tag_rows(lineage),
        "fusions": [record.to_json() for record in lineage.fusions],
        "pool": pool.rows,
    }


def load(row: Mapping[str, Any]) -> LineageData:
    """The lineage of a JSON form that `covan_mlir.artifacts.artifact` has checked."""
    pool = row["pool"]
    parts: dict[int, list[Part]] = {}
    for id_, action, name, op, types, view, twin, args in row["parts"]:
        kinds = tuple(pool[t] for t in types)
        reads = arguments.operands(args)
        inputs, positions = (tuple(sorted({int(i) for k, i in reads if k == kind})) for kind in "pa")
        part = Part(id_, action, name, pool[op], inputs, kinds, positions, bool(view), twin, args)
        parts.setdefault(action, []).append(part)
    return LineageData(
        actions=[
            Action(
                id=i,
                name=name,
                op=pool[op],
                module=pool[module],
                frames=tuple(Frame(*pool[f]) for f in frames),
                types=tuple(pool[t] for t in types),
                parts=tuple(parts.get(i, ())),
                inputs=tuple(inputs),
                view=bool(view),
                live=bool(live),
            )
            for i, (name, op, module, frames, types, inputs, view, live) in enumerate(row["actions"])
        ],
        sites=[
            Site(
                id=i,
                kernel=pool[kernel],
                phase=phase,
                trace=tuple(trace),
                parts=tuple(performed),
                kind=kind,
                inputs=tuple(inputs),
                views=tuple(views),
                folds=tuple(folds),
                node=node,
            )
            for i, (kernel, phase, kind, trace, performed, inputs, views, folds, node) in enumerate(row["sites"])
        ],
        commands=row["commands"],
        fates=[Fate(kind, tuple(sites), pool[step], twin) for kind, sites, step, twin in row["fates"]],
        part_fates={
            part: Fate(kind, tuple(sites), pool[step], twin) for part, kind, sites, step, twin in row["part_fates"]
        },
        history=[
            (
                pool[step],
                {part: None if names is None else {pool[n]: count for n, count in names} for part, names in changed},
            )
            for step, changed in row["history"]
        ],
        groups=[Group(name, kind, tuple(ids)) for name, kind, ids in row["groups"]],
        tags=_tags(row["tags"]),
        results=[(kind, name) for kind, name in row["results"]],
        phases=phases.load(row["phases"], pool),
        fusions=map(FusionRecord.from_json, row["fusions"]),
    )


class _Pool:
    """Interns JSON values: equal ones are stored once and named by position."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._index: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        if value not in self._index:
            self._index[value] = len(self.rows)
            self.rows.append(value)
        return self._index[value]


def _action_row(a: Action, pool: _Pool) -> list[Any]:
    return [
        a.name,
        pool(a.op),
        pool(a.module),
        [pool((f.file, f.line, f.function, f.internal)) for f in a.frames],
        [pool(t) for t in a.types],
        list(a.inputs),
        int(a.view),
        int(a.live),
    ]


def _part_row(p: Part, pool: _Pool) -> list[Any]:
    types = [pool(t) for t in p.types]
    return [p.id, p.action, p.name, pool(p.op), types, int(p.view), p.twin, p.args]


def _site_row(s: Site, pool: _Pool) -> list[Any]:
    relation = [list(s.trace), list(s.parts), list(s.inputs), list(s.views), list(s.folds)]
    return [pool(s.kernel), s.phase, s.kind, *relation, s.node]


def _tag_rows(lineage: LineageData) -> list[Any]:
    words = sorted({tag for tags in lineage.action_tags.values() for tag in tags})
    return [[tag, [action.id for action in lineage.tagged(tag)]] for tag in words]


def _tags(rows: Iterable[Any]) -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = {}
    for tag, ids in rows:
        for index in ids:
            found.setdefault(index, set()).add(tag)
    return {index: frozenset(tags) for index, tags in found.items()}


def _changes(changed: Mapping[int, Mapping[str, int] | None], pool: _Pool) -> list[Any]:
    return [
        [part, None if names is None else [[pool(name), count] for name, count in names.items()]]
        for part, names in changed.items()
    ]
