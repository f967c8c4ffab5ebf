"""The versioned JSON form of a lineage (docs/artifact.md). What models repeat is interned: frames, names, types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from covan_mlir.provenance import arguments, phases
from covan_mlir.provenance.lineage_schema import (
    FORMAT,
    LINEAGE,
    StoredFate,
    StoredLineage,
    StoredPart,
    StoredPartFate,
    StoredTag,
    check,
)
from covan_mlir.provenance.model import Action, Fate, Frame, Group, LineageData, Part, Site
from covan_mlir.provenance.pool import Pool
from covan_mlir.support.typed_json import convert, decode, dumps


def write(lineage: LineageData) -> bytes:
    """The JSON text, checked as a reader would.

    Raises:
        SchemaError: the lineage could not be read back.
    """
    data = dumps(dump(lineage))
    check(decode(data, StoredLineage, LINEAGE))
    return data


def read(data: bytes) -> LineageData:
    """The inverse of `write`.

    Raises:
        SchemaError: it is no lineage of this version, or has indices that point at nothing.
    """
    stored = decode(data, StoredLineage, LINEAGE)
    check(stored)
    return _lineage(stored)


def dump(lineage: LineageData) -> dict[str, Any]:
    """JSON-able form; `load` is its inverse."""
    pool: Pool[Any] = Pool()
    return {
        "format": FORMAT,
        "actions": [_action(action, pool) for action in lineage.actions],
        "parts": [_part(part, pool) for part in lineage.parts.values()],
        "sites": [_site(site, pool) for site in lineage.sites],
        "commands": [list(sites) for sites in lineage.commands],
        "fates": [_fate_row(f, pool) for f in lineage.fates],
        "part_fates": [
            [part, f.kind, list(f.sites), pool(f.decided_by), f.twin] for part, f in lineage.part_fates.items()
        ],
        "results": [list(result) for result in lineage.results],
        "phases": phases.dump(lineage.phases, pool),
        "history": [[pool(step), _changes(changed, pool)] for step, changed in lineage.history],
        "groups": [[group.name, group.kind, list(group.actions)] for group in lineage.groups],
        "tags": _stored_tags(lineage),
        "bodies": to_builtins(lineage.bodies),
        "fusions": [record.to_json() for record in lineage.fusions],
        "substitution": None if lineage.substitution is None else lineage.substitution.to_json(),
        "pool": pool.values,
    }


def load(value: Mapping[str, Any]) -> LineageData:
    """The inverse of `dump`.

    Raises:
        SchemaError: the value is of another form.
    """
    return _lineage(convert(value, StoredLineage, LINEAGE))


def _lineage(stored: StoredLineage) -> LineageData:
    pool: Any = stored.pool  # of texts, but where frames are meant
    parts: dict[int, list[Part]] = {}
    for part in stored.parts:
        loaded = _loaded_part(part, pool)
        for action in loaded.owners:
            parts.setdefault(action, []).append(loaded)
    return LineageData(
        actions=[
            Action(
                id=i,
                name=action.name,
                op=pool[action.op],
                module=pool[action.module],
                frames=tuple(Frame(*pool[frame]) for frame in action.frames),
                types=tuple(pool[text] for text in action.types),
                parts=tuple(parts.get(i, ())),
                inputs=tuple(action.inputs),
                view=bool(action.view),
                live=bool(action.live),
                role=pool[action.role],
            )
            for i, action in enumerate(stored.actions)
        ],
        sites=[
            Site(
                id=i,
                kernel=pool[site.kernel],
                phase=site.phase,
                trace=tuple(site.trace),
                parts=tuple(site.parts),
                kind=site.kind,
                inputs=tuple(site.inputs),
                views=tuple(site.views),
                folds=tuple(site.folds),
                node=site.node,
            )
            for i, site in enumerate(stored.sites)
        ],
        commands=stored.commands,
        fates=[_fate(fate, pool) for fate in stored.fates],
        part_fates={fate.part: _fate(fate, pool) for fate in stored.part_fates},
        history=[
            (
                pool[step],
                {
                    part: None if operations is None else {pool[name]: count for name, count in operations}
                    for part, operations in changes
                },
            )
            for step, changes in stored.history
        ],
        groups=[Group(name, kind, tuple(ids)) for name, kind, ids in stored.groups],
        tags=_tags(stored.tags),
        results=stored.results,
        phases=phases.load(stored.phases, pool),
        fusions=stored.fusions,
        bodies=stored.bodies,
        substitution=stored.substitution,
    )


def _loaded_part(part: StoredPart, pool: Sequence[str]) -> Part:
    reads = arguments.operands(part.arguments)
    inputs, positions = (tuple(sorted({int(i) for k, i in reads if k == kind})) for kind in "pa")
    types = tuple(pool[text] for text in part.types)
    return Part(
        part.id,
        part.action,
        part.name,
        pool[part.op],
        inputs,
        types,
        positions,
        bool(part.view),
        part.twin,
        part.arguments,
        tuple(part.also),
    )


def _fate(fate: StoredFate | StoredPartFate, pool: Sequence[str]) -> Fate:
    rules = tuple(pool[rule] for rule in fate.rewritten_by) if isinstance(fate, StoredFate) else ()
    return Fate(fate.kind, tuple(fate.sites), pool[fate.decided_by], fate.twin, rules)


def _fate_row(fate: Fate, pool: Pool[Any]) -> list[Any]:
    rules = [pool(rule) for rule in fate.rewritten_by]
    return [fate.kind, list(fate.sites), pool(fate.decided_by), fate.twin, rules]


def _tags(stored: Iterable[StoredTag]) -> dict[int, frozenset[str]]:
    tags: dict[int, set[str]] = {}
    for tag, ids in stored:
        for index in ids:
            tags.setdefault(index, set()).add(tag)
    return {index: frozenset(words) for index, words in tags.items()}


def _action(a: Action, pool: Pool[Any]) -> list[Any]:
    return [
        a.name,
        pool(a.op),
        pool(a.module),
        [pool((f.file, f.line, f.function, f.internal)) for f in a.frames],
        [pool(t) for t in a.types],
        list(a.inputs),
        int(a.view),
        int(a.live),
        pool(a.role),
    ]


def _part(p: Part, pool: Pool[Any]) -> list[Any]:
    types = [pool(t) for t in p.types]
    return [p.id, p.action, p.name, pool(p.op), types, int(p.view), p.twin, p.args, list(p.also)]


def _site(s: Site, pool: Pool[Any]) -> list[Any]:
    relation = [list(s.trace), list(s.parts), list(s.inputs), list(s.views), list(s.folds)]
    return [pool(s.kernel), s.phase, s.kind, *relation, s.node]


def _stored_tags(lineage: LineageData) -> list[Any]:
    words = sorted({tag for tags in lineage.action_tags.values() for tag in tags})
    return [[tag, [action.id for action in lineage.tagged(tag)]] for tag in words]


def _changes(changed: Mapping[int, Mapping[str, int] | None], pool: Pool[Any]) -> list[Any]:
    return [
        [part, None if names is None else [[pool(name), count] for name, count in names.items()]]
        for part, names in changed.items()
    ]
