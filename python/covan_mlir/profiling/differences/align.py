"""Which action and which site of one program is which of another: by what they are, never by numbers or lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from difflib import SequenceMatcher

from covan_mlir.provenance import arguments
from covan_mlir.provenance.model import Action, LineageData, Site

_NUMBERED = re.compile(r"^.*?(?:\$async)?_?dispatch_\d+_?")


def actions(before: LineageData, after: LineageData) -> dict[int, int]:
    """Ids of actions that are the same one, or one that was changed.

    In order of the source: first those that call the same with the same in the same module, then, between these, those
    with another type, in another module, and at last what is left, wherever it was moved.
    """
    pairs: dict[int, int] = {}
    keys: list[Callable[[Action], Hashable]] = [_call, _place, lambda action: action.op]
    gaps = [(list(before.actions), list(after.actions))]
    for key in keys:
        rest: list[tuple[list[Action], list[Action]]] = []
        for old, new in gaps:
            matcher = SequenceMatcher(None, [*map(key, old)], [*map(key, new)], autojunk=False)
            for how, i, i_end, j, j_end in matcher.get_opcodes():
                if how == "equal":
                    pairs |= {a.id: b.id for a, b in zip(old[i:i_end], new[j:j_end], strict=True)}
                else:
                    rest.append((old[i:i_end], new[j:j_end]))
        gaps = rest
    left = [action for old, _ in gaps for action in old]
    moved: dict[Hashable, list[Action]] = {}
    for action in (action for _, new in gaps for action in new):
        moved.setdefault(_place(action), []).append(action)
    for action in left:
        if same := moved.get(_place(action)):
            pairs[action.id] = same.pop(0).id
    return pairs


def _call(action: Action) -> Hashable:
    return action.op, action.module, action.types, arguments_of(action)


def _place(action: Action) -> Hashable:
    return action.op, action.module


def arguments_of(action: Action) -> tuple[tuple[str, str], ...]:
    """What an action is called with beside values of the graph: of each of its parts, operator and arguments."""
    return tuple((part.op, arguments.signature(part.args)) for part in action.parts)


def sites(before: LineageData, after: LineageData, pairs: dict[int, int]) -> dict[int, int]:
    """Ids of sites that perform the same actions, or most of them.

    Args:
        pairs: of actions.
    """
    matched: dict[int, int] = {}
    traces = {site.id: frozenset(pairs.get(i, -1 - i) for i in site.trace) for site in before.sites}
    waiting: dict[Hashable, list[Site]] = {}
    for site in after.sites:
        waiting.setdefault(_alike(site, frozenset(site.trace)), []).append(site)
    for site in before.sites:
        if same := waiting.get(_alike(site, traces[site.id])):
            matched[site.id] = same.pop(0).id
    free = {site.id: frozenset(site.trace) for left in waiting.values() for site in left if site.trace}
    performers: dict[int, set[int]] = {}
    for index, trace in free.items():
        for action in trace:
            performers.setdefault(action, set()).add(index)
    for site in before.sites:
        trace = traces[site.id]
        if site.id in matched or not trace:
            continue
        near = {index for action in trace for index in performers.get(action, ()) if index in free}
        same_phase = [index for index in near if after.sites[index].phase == site.phase]
        if same_phase:
            best = max(same_phase, key=lambda index: (_overlap(trace, free[index]), -index))
            matched[site.id] = best
            del free[best]
    return matched


def _alike(site: Site, trace: frozenset[int]) -> Hashable:
    """Of sites without actions (copies, fills) the kernel says which is which."""
    return site.phase, site.kind, trace or label(site.kernel)


def _overlap(a: frozenset[int], b: frozenset[int]) -> float:
    return len(a & b) / len(a | b)


def label(kernel: str) -> str:
    """A kernel's name without the number of its dispatch, which changes with what stands before it."""
    return _NUMBERED.sub("", kernel)


def common(names: Sequence[str]) -> tuple[str, ...]:
    """Without repetitions, in order."""
    return tuple(dict.fromkeys(names))
