"""A profile as rows: by source line, as a tree of modules, or by site. What rows own adds up to the call's total."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from covan_mlir.profiling.model import By, ProfileData, Roofline, Statistics
from covan_mlir.provenance.explain import short_files, user_frame
from covan_mlir.provenance.model import Action, LineageData

OUTSIDE = "(outside of kernels)"
NO_ACTION = "(no action of the model)"
NO_LINE = "(no line of the model's source)"
MODEL = "(model)"


@dataclass
class ProfileRow:
    """One line, module or site.

    Attributes:
        name: ``model.py:12``; a module's path; ``site 7``.
        time: nanoseconds per call, of a module with those below it.
        own: those without them. Over all rows they add up to the call's total.
        estimated: how much of ``time`` is of sites shared with other rows, and was divided by estimate.
        depth: in the tree of modules.
        actions: ids of the actions performed, in source order.
        sites: ids of the sites.
        kernel, statistics, roofline: of a site.
    """

    name: str
    time: float = 0.0
    own: float = 0.0
    estimated: float = 0.0
    depth: int = 0
    actions: list[int] = field(default_factory=list)
    sites: list[int] = field(default_factory=list)
    kernel: str = ""
    statistics: Statistics | None = None
    roofline: Roofline | None = None


def rows(profile: ProfileData, by: By) -> list[ProfileRow]:
    """The rows, longest first; a module above those below it, longest of them first; time outside of kernels last.

    Raises:
        ValueError: ``by`` is none of line, module, stage and site.
    """
    makers: dict[str, Callable[[ProfileData], list[ProfileRow]]] = {
        "line": _lines,
        "module": _modules,
        "stage": _stages,
        "site": _sites,
    }
    if by not in makers:
        raise ValueError(f"by={by!r}: profiles are shown by {', '.join(makers)}")
    outside = profile.outside
    return [*makers[by](profile), ProfileRow(OUTSIDE, outside, outside)]


def lines_of(profile: ProfileData) -> dict[int, str]:
    """``file:line`` of each action; files by the shortest end of their paths that tells them apart."""
    return line_names(profile.lineage)


def line_names(lineage: LineageData) -> dict[int, str]:
    """The same of the actions of a lineage."""
    frames = {action.id: user_frame(action) for action in lineage.actions}
    short = short_files(frame.file for frame in frames.values() if frame)
    return {i: f"{short[frame.file]}:{frame.line}" if frame else NO_LINE for i, frame in frames.items()}


def _lines(profile: ProfileData) -> list[ProfileRow]:
    names = lines_of(profile)
    lines: dict[str, ProfileRow] = {}
    for site, action, time, alone in _portions(profile, lambda action: (names[action.id],)):
        name = NO_ACTION if action is None else names[action.id]
        shared = action is not None and not alone
        _add(lines.setdefault(name, ProfileRow(name)), site, action, time, time if shared else 0.0)
    for row in lines.values():
        row.own = row.time
    return sorted(lines.values(), key=lambda row: -row.time)


def _modules(profile: ProfileData) -> list[ProfileRow]:
    modules: dict[str, ProfileRow] = {}
    for site, action, time, alone in _portions(profile, lambda action: _above(action.module)):
        if action is None:
            row = modules.setdefault(NO_ACTION, ProfileRow(NO_ACTION))
            _add(row, site, None, time, 0.0)
            row.own += time
            continue
        path = _above(action.module)
        for depth, name in enumerate(path):
            row = modules.setdefault(name, ProfileRow(name or MODEL, depth=depth))
            _add(row, site, action, time, time if depth >= alone else 0.0)
        modules[path[-1]].own += time
    children: dict[str, list[str]] = {}
    for name, row in modules.items():
        if row.depth:
            children.setdefault(name.rpartition(".")[0], []).append(name)

    def tree(name: str) -> Iterator[ProfileRow]:
        yield modules[name]
        for child in sorted(children.get(name, ()), key=lambda name: -modules[name].time):
            yield from tree(child)

    roots = [name for name, row in modules.items() if not row.depth]
    return [row for name in sorted(roots, key=lambda name: -modules[name].time) for row in tree(name)]


def _stages(profile: ProfileData) -> list[ProfileRow]:
    """Of each module, longest first, what goes forward, what computes gradients, and what an optimizer does."""
    stages: dict[tuple[str, str], ProfileRow] = {}
    for site, action, time, alone in _portions(profile, lambda action: (f"{action.stage} {action.module}",)):
        key = (NO_ACTION, "") if action is None else (action.module or MODEL, action.stage)
        row = stages.setdefault(key, ProfileRow(", ".join(filter(None, key))))
        _add(row, site, action, time, time if action is not None and not alone else 0.0)
    totals: dict[str, float] = {}
    for (module, _), row in stages.items():
        row.own = row.time
        totals[module] = totals.get(module, 0.0) + row.time
    return [stages[key] for key in sorted(stages, key=lambda key: (-totals[key[0]], key[0], -stages[key].time))]


def _sites(profile: ProfileData) -> list[ProfileRow]:
    sites = []
    for index in profile.times:
        site = profile.lineage.sites[index]
        time = profile.time(index)
        row = ProfileRow(f"site {index}", time, time, actions=list(site.trace), sites=[index], kernel=site.kernel)
        row.statistics, row.roofline = profile.statistics(index), profile.roofline(index)
        sites.append(row)
    return sorted(sites, key=lambda row: -row.time)


def _above(module: str) -> tuple[str, ...]:
    """The paths of a module and of those that it is in, outermost (the model) first."""
    names = module.split(".") if module else []
    return ("", *(".".join(names[: k + 1]) for k in range(len(names))))


def _portions(
    profile: ProfileData, keys: Callable[[Action], tuple[str, ...]]
) -> Iterator[tuple[int, Action | None, float, int]]:
    """Each action's portion of each site's time, and how many of its leading keys all actions of the site have.

    A site without actions gives its whole time to None.
    """
    actions = profile.lineage.actions
    for site in profile.times:
        time = profile.time(site)
        shares = profile.shares(site)
        if not shares:
            yield site, None, time, 0
            continue
        paths = [keys(actions[i]) for i in shares]
        common = _common(paths)
        for i, share in shares.items():
            yield site, actions[i], time * share, common


def _common(paths: Iterable[tuple[str, ...]]) -> int:
    """Length of the longest common start."""
    count = 0
    for column in zip(*paths, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count


def _add(row: ProfileRow, site: int, action: Action | None, time: float, estimated: float) -> None:
    row.time += time
    row.estimated += estimated
    if site not in row.sites:
        row.sites.append(site)
    if action is not None and action.id not in row.actions:
        row.actions = sorted([*row.actions, action.id])
