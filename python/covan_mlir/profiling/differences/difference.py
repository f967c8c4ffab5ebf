"""The difference between two compilations as data: what changed of the actions, their fates, kernels and times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from covan_mlir.artifacts import machine_code
from covan_mlir.artifacts.artifact import Blob, Contents, readable
from covan_mlir.artifacts.variant import Variant
from covan_mlir.errors import InputError
from covan_mlir.profiling import views
from covan_mlir.profiling.differences import align
from covan_mlir.profiling.model import ProfileData
from covan_mlir.profiling.store import checksum
from covan_mlir.provenance.model import Action, Fate, LineageData, Site
from covan_mlir.support.typed_json import JsonObject


class Setting(JsonObject, frozen=True):
    """Something about a compilation as a whole: a version, an option, an input; empty where there is none."""

    what: str
    before: str
    after: str


class ActionChange(JsonObject, frozen=True):
    """An action that one of the models has alone, or that is called with something else.

    Attributes:
        line: of the source, ``file:line``; of a removed one in the model before.
        what: of a changed one, what of it.
    """

    name: str
    op: str
    module: str
    line: str
    change: Literal["added", "removed", "changed"]
    what: tuple[str, ...] = ()


class FateChange(JsonObject, frozen=True):
    """An action of both models of which something else became; with the step of the compiler that decided."""

    name: str
    op: str
    line: str
    before: str
    after: str


class SiteChange(JsonObject, frozen=True):
    """A kernel's site that is new, gone or another.

    Attributes:
        before, after: the site's number, and its kernel; None and empty where there is none.
        lines: of the actions that it performs.
        what: how the two differ, in words.
        time_before, time_after: nanoseconds a call; None: there is no time.
    """

    before: int | None
    after: int | None
    kernel_before: str
    kernel_after: str
    lines: tuple[str, ...]
    what: tuple[str, ...]
    time_before: float | None = None
    time_after: float | None = None


class LineTimes(JsonObject, frozen=True):
    """Nanoseconds a call of one line of the source; None: the program has no time of it.

    Attributes:
        was: the lines that it was in the model before, if others.
    """

    line: str
    was: tuple[str, ...]
    before: float | None
    after: float | None


class Difference(JsonObject, frozen=True):
    """What changed between two compilations.

    Attributes:
        same: the very same program for the very same calls.
        settings: of the compilations.
        actions, fates, sites: what changed.
        kept: how many sites are as they were.
        times: where times come from; empty if there are none.
        total: nanoseconds of a call, before and after.
        lines: times by line; most changed first.
    """

    same: bool
    settings: tuple[Setting, ...]
    actions: tuple[ActionChange, ...]
    fates: tuple[FateChange, ...]
    sites: tuple[SiteChange, ...]
    kept: int
    times: Literal["", "predicted", "profiled"] = ""
    total: tuple[float, float] | None = None
    lines: tuple[LineTimes, ...] = ()


@dataclass(frozen=True)
class Compilation:
    """One side: what an artifact holds, which of its programs, and its times, if any."""

    contents: Contents
    variant: Variant
    times: ProfileData | None = None

    @property
    def lineage(self) -> LineageData:
        """Of the program."""
        return self.variant.lineage


def difference(before: Compilation, after: Compilation, times: Literal["predicted", "profiled"]) -> Difference:
    """What changed from one compilation to the other.

    Args:
        times: what the times of the two are, where both have some.

    Raises:
        InputError: one of the programs has no lineage.
    """
    for side, name in ((before, "first"), (after, "second")):
        if not side.lineage.actions:
            raise InputError(f"the {name} program has no lineage: compile the model again with provenance")
    settings = tuple(_settings(before, after))
    pairs = align.actions(before.lineage, after.lineage)
    timed = before.times is not None and after.times is not None
    sites, kept = _sites(before, after, pairs, timed)
    return Difference(
        same=not settings and checksum(before.variant.program) == checksum(after.variant.program),
        settings=settings,
        actions=tuple(_actions(before.lineage, after.lineage, pairs)),
        fates=tuple(_fates(before.lineage, after.lineage, pairs)),
        sites=sites,
        kept=kept,
        times=times if timed else "",
        total=(before.times.total, after.times.total) if before.times and after.times else None,
        lines=tuple(_lines(before.times, after.times, pairs)) if before.times and after.times else (),
    )


def _settings(before: Compilation, after: Compilation) -> Iterator[Setting]:
    sides = (_facts(before), _facts(after))
    for what in dict.fromkeys([*sides[0], *sides[1]]):
        old, new = (side.get(what, "") for side in sides)
        if old != new:
            yield Setting(what, old, new)
    old_weights, new_weights = before.contents.weights, after.contents.weights
    shared = old_weights.keys() & new_weights.keys()
    other = [name for name in old_weights if name in shared and not _same_bytes(old_weights[name], new_weights[name])]
    if other:
        yield Setting(
            "values of outside weights", "", f"{len(other)} of {len(shared)} are others: {', '.join(other[:5])}"
        )


def _facts(side: Compilation) -> dict[str, str]:
    contents, info = side.contents, side.variant.info
    facts = {f"version of {name}": version for name, version in contents.versions.items()}
    facts |= {"target": side.variant.target, "device": contents.device}
    options: Mapping[str, Any] = info.get("options", {})
    facts |= {f"option {name}": json.dumps(value, default=str) for name, value in options.items()}
    facts["flags of IREE"] = " ".join(map(str, info.get("flags", ())))
    facts["inputs"] = ", ".join(map(readable, contents.signature.inputs))
    facts["outputs"] = ", ".join(leaf.type_string() for leaf in contents.signature.outputs)
    facts |= {f"outside weight {name}": f"{blob.dtype}{list(blob.shape)}" for name, blob in contents.weights.items()}
    return facts


def _same_bytes(old: Blob, new: Blob) -> bool:
    """Elements are compared where they are: weights are mapped, not loaded."""
    return old.shape == new.shape and np.array_equal(
        np.frombuffer(old.data, np.uint8), np.frombuffer(new.data, np.uint8)
    )


def _actions(before: LineageData, after: LineageData, pairs: Mapping[int, int]) -> Iterator[ActionChange]:
    names = views.line_names(before), views.line_names(after)
    back = {new: old for old, new in pairs.items()}
    for action in before.actions:
        if action.id not in pairs:
            yield _change(action, names[0], "removed")
    for action in after.actions:
        if action.id not in back:
            yield _change(action, names[1], "added")
        elif what := tuple(_what_changed(before.actions[back[action.id]], action)):
            yield _change(action, names[1], "changed", what)


def _change(
    action: Action, lines: Mapping[int, str], how: Literal["added", "removed", "changed"], what: tuple[str, ...] = ()
) -> ActionChange:
    return ActionChange(action.name, action.op, action.module, lines[action.id], how, what)


def _what_changed(old: Action, new: Action) -> Iterator[str]:
    if old.types != new.types:
        yield f"gives {', '.join(new.types)}, gave {', '.join(old.types)}"
    elif align.arguments_of(old) != align.arguments_of(new):
        yield "is called with other numbers" if _ops(old) == _ops(new) else "is decomposed otherwise"
    if old.module != new.module:
        yield f"is in {new.module or 'the model itself'}, was in {old.module or 'the model itself'}"


def _ops(action: Action) -> list[str]:
    return [part.op for part in action.parts]


def _fates(before: LineageData, after: LineageData, pairs: Mapping[int, int]) -> Iterator[FateChange]:
    lines = views.line_names(after)
    for old, new in sorted(pairs.items(), key=lambda pair: pair[1]):
        was, now = before.fates[old], after.fates[new]
        twin = -1 if was.twin is None else pairs.get(was.twin, -2)
        if was.kind != now.kind or twin != (-1 if now.twin is None else now.twin):
            action = after.actions[new]
            told = [_fate_text(side, fate) for side, fate in ((before, was), (after, now))]
            yield FateChange(action.name, action.op, lines[new], *told)


def _fate_text(lineage: LineageData, fate: Fate) -> str:
    twin = f" with {lineage.actions[fate.twin].name}" if fate.twin is not None else ""
    return f"{fate.kind}{twin}" + (f" ({fate.decided_by})" if fate.decided_by and fate.kind != "dispatched" else "")


def _sites(
    before: Compilation, after: Compilation, pairs: dict[int, int], timed: bool
) -> tuple[tuple[SiteChange, ...], int]:
    matched = align.sites(before.lineage, after.lineage, pairs)
    lines = views.line_names(before.lineage), views.line_names(after.lineage)
    codes = _code_sizes(before.variant), _code_sizes(after.variant)
    changes: list[SiteChange] = []

    def change(old: Site | None, new: Site | None, what: tuple[str, ...]) -> SiteChange:
        performed = [lines[1][i] for i in new.trace] if new else [lines[0][i] for i in old.trace] if old else []
        return SiteChange(
            old.id if old else None,
            new.id if new else None,
            old.kernel if old else "",
            new.kernel if new else "",
            align.common(performed),
            what,
            before.times.time(old) if timed and before.times and old else None,
            after.times.time(new) if timed and after.times and new else None,
        )

    kept = 0
    back = {new: old for old, new in matched.items()}
    for new in after.lineage.sites:
        if new.id not in back:
            changes.append(change(None, new, ("is new",)))
            continue
        old = before.lineage.sites[back[new.id]]
        if what := tuple(_other_kernel(before, after, old, new, pairs, codes)):
            changes.append(change(old, new, what))
        else:
            kept += 1
    changes += [change(old, None, ("is gone",)) for old in before.lineage.sites if old.id not in matched]
    return tuple(changes), kept


def _other_kernel(
    before: Compilation,
    after: Compilation,
    old: Site,
    new: Site,
    pairs: Mapping[int, int],
    codes: tuple[Mapping[str, int], Mapping[str, int]],
) -> Iterator[str]:
    performed = {pairs.get(i, -1 - i) for i in old.trace}
    left = [before.lineage.actions[i].name for i in old.trace if pairs.get(i, -1 - i) not in new.trace]
    joined = [after.lineage.actions[i].name for i in new.trace if i not in performed]
    if joined:
        yield f"also performs {', '.join(joined)}"
    if left:
        yield f"no longer performs {', '.join(left)}"
    if align.label(old.kernel) != align.label(new.kernel):
        yield "is another kernel"
    schedules = [
        next(
            ((record.template, record.schedule) for record in side.lineage.fusions if record.kernel == site.kernel),
            None,
        )
        for side, site in ((before, old), (after, new))
    ]
    if schedules[0] and schedules[1] and schedules[0] != schedules[1]:
        yield f"is laid out otherwise: {_schedule(schedules[0], schedules[1])}"
    sizes = codes[0].get(old.kernel), codes[1].get(new.kernel)
    if None not in sizes and sizes[0] != sizes[1]:
        yield f"has {sizes[1]:,} bytes of code, had {sizes[0]:,}"


def _schedule(old: tuple[str, Mapping[str, Any]], new: tuple[str, Mapping[str, Any]]) -> str:
    """What differs."""
    if old[0] != new[0]:
        return f"by {new[0]}, was by {old[0]}"
    keys = [key for key in dict.fromkeys([*old[1], *new[1]]) if old[1].get(key) != new[1].get(key)]
    return ", ".join(f"{key}={new[1].get(key)}, was {old[1].get(key)}" for key in keys)


def _code_sizes(variant: Variant) -> dict[str, int]:
    """Of kernels for CPUs. Addresses in code change with what stands beside it, and its length does not."""
    return {name: len(code) for name, code in machine_code.kernels(variant.program).items()}


def _lines(before: ProfileData, after: ProfileData, pairs: Mapping[int, int]) -> list[LineTimes]:
    names = views.line_names(before.lineage), views.line_names(after.lineage)
    old, new = _by_action(before), _by_action(after)
    home: dict[str, str] = {}  # lines of the model before -> where they are now
    was: dict[str, list[str]] = {}
    for a, b in pairs.items():
        home.setdefault(names[0][a], names[1][b])
        was.setdefault(names[1][b], []).append(names[0][a])
    times: dict[str, list[float | None]] = {}
    for side, (spent, line_of) in enumerate(((old, names[0]), (new, names[1]))):
        for action, time in spent.items():
            if action is None:
                line = views.NO_ACTION
            elif side == 0:
                line = (
                    names[1][pairs[action]]
                    if action in pairs
                    else home.get(line_of[action], f"{line_of[action]} (gone)")
                )
            else:
                line = line_of[action]
            row = times.setdefault(line, [None, None])
            row[side] = (row[side] or 0.0) + time
    rows = [
        LineTimes(line, align.common([name for name in was.get(line, ()) if name != line]), before_ns, after_ns)
        for line, (before_ns, after_ns) in times.items()
    ]
    outside = LineTimes(views.OUTSIDE, (), before.outside, after.outside)
    rows += [outside] if outside.before or outside.after else []
    return sorted(rows, key=lambda row: -abs((row.after or 0.0) - (row.before or 0.0)))


def _by_action(profile: ProfileData) -> dict[int | None, float]:
    """Nanoseconds a call by action; None: of sites that perform none."""
    spent: dict[int | None, float] = {}
    for site in profile.times:
        time = profile.time(site)
        shares = profile.shares(site)
        if not shares:
            spent[None] = spent.get(None, 0.0) + time
        for action, share in shares.items():
            spent[action] = spent.get(action, 0.0) + time * share
    return spent
