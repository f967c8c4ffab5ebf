"""The way of an action through the compiler, step by step, and of a site back to its actions.

Built from what the lineage holds: the decomposition, the history (`covan_mlir.lowering.history`), and the fates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.provenance.fates import DECOMPOSE, SUBSTITUTE
from covan_mlir.provenance.model import Action, Fate, LineageData, Part, Site

# They carry an action's location but do nothing of it: regions that hold its operations, and changes of type system.
_CARRIERS = ("flow.dispatch.region", "flow.dispatch.workgroups", "torch_c.")
_NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True)
class Link:
    """One step of the compiler that changed something.

    Attributes:
        step: the phase or pass, or ``decompose``.
        before, after: operations and how many of each, before and after the step. Empty: none of its own is left, as
            when it was fused into another.
        end: of the link at which it ends: what it ended as, in words.
    """

    step: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    end: str = ""

    def __str__(self) -> str:
        return f"{_operations(self.before)} → {self.end or _operations(self.after)}"


@dataclass(frozen=True)
class Trail:
    """What became of an action, or what a site was made of.

    Attributes:
        of: the action or the site.
        links: of an action in the order of the steps; of a site from the last step back to the first.
        sites: where the trail of an action ends; of a site, itself.
        actions: where the trail of a site ends; of an action, itself.
        fate: of an action.
    """

    of: Action | Site
    links: tuple[Link, ...]
    sites: tuple[Site, ...]
    actions: tuple[Action, ...]
    fate: Fate | None = None

    def __str__(self) -> str:
        lines: list[tuple[str, str]]
        if isinstance(self.of, Action):
            where = f"  {self.of.line}" if self.of.line else ""
            head = f"{self.of.name}: {_short(self.of.op)}{where}"
            lines = [(link.step, str(link)) for link in self.links]
        else:
            head = _site(self.of)
            lines = [
                (link.step, f"{link.end or _operations(link.after)} ← {_operations(link.before)}")
                for link in self.links
            ]
            lines.append(("actions", ", ".join(action.name for action in self.actions) or "none of the model"))
        width = max((len(step) for step, _ in lines), default=0)
        return "\n".join([head, *(f"  {step.ljust(width)}  {text}" for step, text in lines)]) + "\n"


def of_action(lineage: LineageData, action: Action) -> Trail:
    """The trail of an action: its decomposition first, its fate last."""
    fate = lineage.fates[action.id]
    sites = tuple(lineage.sites[i] for i in fate.sites)
    start: Mapping[str, int] = {_short(action.op): 1}
    links, start = _substituted(lineage, action, start)
    links += _links(lineage, start, action.parts)
    links = _ended(links, start, fate.decided_by, _end(lineage, action, fate, sites))
    return Trail(action, tuple(links), sites, (action,), fate)


def _substituted(
    lineage: LineageData, action: Action, start: Mapping[str, int]
) -> tuple[list[Link], Mapping[str, int]]:
    """What rules made of an action's parts, after its decomposition; and what it was then."""
    substitution = lineage.substitution
    steps = [step for step in substitution.steps if action.id in step.actions] if substitution is not None else []
    if substitution is None or not steps:
        return [], start
    exported = _sum({_short(part.op): 1} for part in substitution.parts if part.action == action.id)
    links = [] if exported == start else [Link(DECOMPOSE, start, exported)]
    after = _sum({_short(part.op): 1} for part in action.parts)
    assumed = {rule.name for rule in substitution.rules if rule.assumed}
    names = {other.id: other.name for other in lineage.actions}
    for step in steps:
        others = [names[other] for other in step.actions if other != action.id]
        certificate = "assumed, not proved" if step.rule in assumed else "proved for all sizes"
        beside = f", with {', '.join(others)}" if others else ""
        end = f"{_operations(after)}{beside}; {certificate}" if step is steps[-1] else f"{certificate}{beside}"
        links.append(Link(f"{SUBSTITUTE}/{step.rule}", exported, after if step is steps[-1] else exported, end))
    return links, after


def of_site(lineage: LineageData, site: Site) -> Trail:
    """The trail of a site, backwards: what it performs, taken together.

    Of a part that several sites share, all operations are counted.
    """
    actions = lineage.why(site)
    links: list[Link] = []
    if actions:
        start = _sum({_short(action.op): 1} for action in actions)
        links = _links(lineage, start, [lineage.parts[i] for i in site.parts])
        links = _ended(links, start, lineage.history[-1][0] if lineage.history else DECOMPOSE, f"site {site.id}")
    return Trail(site, tuple(reversed(links)), (site,), actions)


def _links(lineage: LineageData, start: Mapping[str, int], parts: Sequence[Part]) -> list[Link]:
    """What changed ``start`` and then the parts it was made into."""
    links: list[Link] = []
    now = {part.id: {_short(part.op): 1} for part in parts}
    total: Mapping[str, int] = _sum(now.values())
    if start != total:
        links.append(Link(DECOMPOSE, start, total))
    steps: dict[int, dict[int, Mapping[str, int]]] = {}
    if lineage.history:  # the first entry has all that there are
        steps[0] = dict.fromkeys(now, _NOTHING)
    for part in now:
        for index, names in lineage.changes.get(part, ()):
            steps.setdefault(index, {})[part] = names or _NOTHING
    for index in sorted(steps):
        for part, names in steps[index].items():
            now[part] = _own(names)
        before, total = total, _sum(now.values())
        if before != total:
            links.append(Link(lineage.history[index][0], before, total))
    return links


def _ended(links: Sequence[Link], start: Mapping[str, int], step: str, end: str) -> list[Link]:
    """With ``step`` as the last link: what else it did is part of how it ended."""
    *others, last = links or [Link(step, start, start)]
    if last.step == step:
        return [*others, Link(step, last.before, _NOTHING, end)]
    return [*others, last, Link(step, last.after, _NOTHING, end)]


def _own(names: Mapping[str, int]) -> dict[str, int]:
    return _sum({_short(name): count} for name, count in names.items() if not name.startswith(_CARRIERS))


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for names in counts:
        for name, count in names.items():
            total[name] = total.get(name, 0) + count
    return total


def _short(name: str) -> str:
    """One name for an operation of torch, as the graph and as the torch dialect have it: ``aten.relu``."""
    return name.removeprefix("torch.").removesuffix(".default")


def _operations(names: Mapping[str, int]) -> str:
    return " + ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items()) or "none of its own"


def _site(site: Site) -> str:
    return f"site {site.id} ({site.phase}, {site.kernel})"


def _end(lineage: LineageData, action: Action, fate: Fate, sites: Sequence[Site]) -> str:
    among = f" {_numbers(sites)}" if sites else ""
    match fate.kind:
        case "dispatched":
            performing = [site for site in sites if action.id in site.trace]
            texts = [
                f"{'one of ' + str(len(site.trace)) + ' actions' if len(site.trace) > 1 else 'the only action'}"
                f" of {_site(site)}"
                for site in performing
            ]
            other = [site for site in sites if action.id not in site.trace]
            return "; ".join([*texts, f"seen or read by {_numbers(other)}"] if other else texts)
        case "view":
            return f"view: only how{among or ' others'} index{'es' if len(sites) == 1 else ''}"
        case "folded":
            return f"folded: a constant{' of' + among if among else ''}"
        case "merged":
            twin = f" of {lineage.actions[fate.twin].name}" if fate.twin is not None else ""
            return f"merged: the value{twin}{',' + among if among else ''}"
        case "dead":
            return "dead: no result needs it"


def _numbers(sites: Sequence[Site]) -> str:
    return f"site{'' if len(sites) == 1 else 's'} {', '.join(str(site.id) for site in sites)}"
