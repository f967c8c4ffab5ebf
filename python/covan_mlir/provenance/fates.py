"""What became of every action: it has a fate, always."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from covan_mlir.provenance import control
from covan_mlir.provenance.arguments import operands
from covan_mlir.provenance.model import Action, Fate, Kind, Part, Site
from covan_mlir.provenance.observed import Changes
from covan_mlir.provenance.relation import KeptOperands, Source
from covan_mlir.provenance.substitution import Substitution

DECOMPOSE = "decompose"
_ORDER: tuple[Kind, ...] = ("dispatched", "folded", "merged", "view", "dead")


def part_fates(
    source: Source,
    sites: Sequence[Site],
    results: Sequence[int],
    history: Sequence[tuple[str, Changes]],
    identity: KeptOperands,
) -> dict[int, Fate]:
    """The fate of every part.

    Args:
        sites: with what they perform, view and fold.
        results: parts that the program returns.
        history: see `covan_mlir.lowering.history`.
        identity: whether a part gives back one of its operands, and which.
    """
    performed = _sites((site.id, site.parts) for site in sites)
    viewed = _sites((site.id, site.views) for site in sites)
    folded = _sites((site.id, site.folds) for site in sites)
    live = live_parts(source.parts, results)
    kept = {
        index: position
        for index in live - performed.keys()
        if not source.parts[index].view
        and not source.constant[index]
        and (position := identity.kept(index)) is not None
    }
    needed = live_parts(source.parts, results, kept) if kept else live
    gone = vanished(history, source.parts)
    last = history[-1][0] if history else ""
    fates: dict[int, Fate] = {}
    following: dict[int, Sequence[int]] = {}
    for index in sorted(source.parts):
        part = source.parts[index]
        at = gone.get(index, last)
        if index not in live:
            fates[index] = Fate("dead", (), at)
        elif index in performed:
            fates[index] = Fate("dispatched", performed[index], last)
        elif source.constant[index] and not part.view and index in folded:
            # Before twins: equal constants are read where each is needed, not where the first one is.
            fates[index] = Fate("folded", folded[index], at)
        elif part.twin != index and fates[part.twin].kind != "dead":
            fates[index] = Fate("merged", fates[part.twin].sites, at, part.twin)
            following |= {index: (part.twin,)} if not fates[index].sites else {}
        elif source.constant[index] and not part.view:
            fates[index] = Fate("folded", (), at)
        elif index in kept and (given := _given_back(part, kept[index])) is not None:
            fates[index] = Fate("merged", viewed.get(index) or fates[given].sites, at, given)
            following |= {index: (given,)} if index not in viewed else {}
        elif not part.view and index not in needed and index not in viewed and index not in folded:
            fates[index] = Fate("dead", (), at)
        else:  # also what others now write straight to its place
            seen = {*viewed.get(index, ()), *folded.get(index, ())}
            following |= {index: part.inputs} if not seen else {}
            fates[index] = Fate("view", tuple(sorted(seen)) or _where(fates, part.inputs), at)
    _follow(following, _placed_at_readers(source, fates), fates)
    return fates


def _given_back(part: Part, position: int) -> int | None:
    """The part whose value a part gives back; None when it is an argument's or a weight's."""
    kind, name = operands(part.args)[position]
    return int(name) if kind == "p" else None


def _placed_at_readers(source: Source, fates: dict[int, Fate]) -> dict[int, list[int]]:
    """Place what no site is known to read or to index by where its readers are; -> these parts, and their readers.

    A constant that became part of another constant, or a view of one, stands in no dispatch of its own.
    """
    readers: dict[int, list[int]] = {}
    placed: dict[int, list[int]] = {}
    for index in sorted(source.parts, reverse=True):
        fate = fates[index]
        if not fate.sites and fate.kind in ("folded", "view", "merged"):
            fates[index] = replace(fate, sites=_where(fates, readers.get(index, ())))
            if fate.kind != "merged":
                placed[index] = readers.get(index, [])
        if fate.kind != "dead":
            for i in source.parts[index].inputs:
                readers.setdefault(i, []).append(index)
    return placed


def _follow(
    following: Mapping[int, Sequence[int]], placed: Mapping[int, Sequence[int]], fates: dict[int, Fate]
) -> None:
    """What is where what it reads is, is also where that was found at its readers: values that go round in a loop are
    read by what is computed before them. What is where its readers are follows these in turn."""
    moving = sorted({*following, *placed})
    for _ in moving:  # what only goes round would follow itself for ever
        before = [fates[index].sites for index in moving]
        for index in moving:
            sites = _where(fates, following.get(index, ())) or _where(fates, placed.get(index, ()))
            fates[index] = replace(fates[index], sites=sites or fates[index].sites)
        if [fates[index].sites for index in moving] == before:
            break


def _where(fates: Mapping[int, Fate], parts: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({site for part in parts for site in fates[part].sites}))


SUBSTITUTE = "superoptimise"


def action_fates(
    actions: Sequence[Action], fates: Mapping[int, Fate], substitution: Substitution | None = None
) -> list[Fate]:
    """The fate of each action: the strongest of its parts', with the sites of all.

    Args:
        substitution: what was rewritten before.
    """
    owner = {part.id: part.action for action in actions for part in action.parts}
    rules: dict[int, dict[str, None]] = {}
    for step in substitution.steps if substitution is not None else ():
        for action_id in step.actions:
            rules.setdefault(action_id, {})[step.rule] = None
    of_actions: list[Fate] = []
    for action in actions:
        fate = _of_parts(action.parts, fates, owner) if action.parts else _without_parts(action, of_actions)
        if action.id in rules:
            decided = fate.decided_by if action.parts else SUBSTITUTE
            fate = replace(fate, decided_by=decided, rewritten_by=tuple(rules[action.id]))
        of_actions.append(fate)
    return of_actions


def _of_parts(parts: Sequence[Part], fates: Mapping[int, Fate], owner: Mapping[int, int]) -> Fate:
    kind = min((fates[p.id].kind for p in parts), key=_ORDER.index)
    leading = [fates[p.id] for p in parts if fates[p.id].kind == kind]
    sites = tuple(sorted({site for p in parts for site in fates[p.id].sites}))
    twin = owner.get(leading[0].twin) if kind == "merged" and leading[0].twin is not None else None
    return Fate(kind, sites, leading[-1].decided_by, twin)


def _without_parts(action: Action, before: Sequence[Fate]) -> Fate:
    """Decomposition found nothing to do: the action gives back what it is given, translation knew its value, or
    nobody needs it."""
    if not action.live:
        return Fate("dead", (), DECOMPOSE)
    source = next(iter(action.inputs), None)
    sites = before[source].sites if source is not None else ()
    if source is None and not action.view and action.translated:
        return Fate("folded", (), DECOMPOSE)
    if action.view or source is None:
        return Fate("view", sites, DECOMPOSE)
    return Fate("merged", sites, DECOMPOSE, source)


def live_parts(parts: Mapping[int, Part], results: Iterable[int], kept: Mapping[int, int] | None = None) -> set[int]:
    """Parts that the program's results need.

    Args:
        kept: of parts that give back an operand, its position: they need no other one.
    """
    needed: set[int] = set()
    stack = list(results)
    while stack:
        part = stack.pop()
        if part not in needed:
            needed.add(part)
            if kept is not None and part in kept:
                given = _given_back(parts[part], kept[part])
                stack += [] if given is None else [given]
                continue
            stack.extend(parts[part].inputs)
            after = control.following(parts[part])
            if after is not None and after[0] == "p":
                stack.append(int(after[1]))
    return needed


def vanished(history: Sequence[tuple[str, Changes]], parts: Iterable[int]) -> dict[int, str]:
    """The step after which no operation carried a part any more, for those of ``parts`` that vanished."""
    gone: dict[int, str] = dict.fromkeys(parts, history[0][0]) if history else {}
    for step, changed in history:
        for part, names in changed.items():
            if names is None:
                gone[part] = step
            else:
                gone.pop(part, None)
    return gone


def _sites(parts_of: Iterable[tuple[int, Iterable[int]]]) -> dict[int, tuple[int, ...]]:
    """The sites of each part, ascending, given the parts of each site."""
    sites: dict[int, set[int]] = {}
    for site, parts in parts_of:
        for part in parts:
            sites.setdefault(part, set()).add(site)
    return {part: tuple(sorted(ids)) for part, ids in sites.items()}
