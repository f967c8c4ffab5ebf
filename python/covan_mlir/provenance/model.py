"""The data of a lineage: which actions of the source model each dispatch site of a compiled program performs.

Plain data and questions to it. What is made of it (tables, drawings, JSON, trails) are functions over it in files of
their own; `covan_mlir.Lineage` offers them as methods.

Words (see docs/provenance.md): an *action* is one call node of the exported graph; its *parts* are the nodes that
decompositions made of it; a *site* is one dispatch of the compiled program; a *trace* is what a site performs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Bodies
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.phases import Phase
from covan_mlir.provenance.substitution import Substitution
from covan_mlir.provenance.words import checked

Relation = Literal["performed", "folded", "merged", "viewed"]
RELATIONS: tuple[Relation, ...] = ("performed", "folded", "merged", "viewed")
"""The strongest first."""
_OF_FATE: Mapping[str, Relation] = {
    "dispatched": "performed",
    "folded": "folded",
    "merged": "merged",
    "view": "viewed",
}
ALIASES = frozenset({"aten.alias.default", "aten.detach.default"})
"""Operators whose result is what they are given, by another name."""


@dataclass(frozen=True)
class Frame:
    """One source frame. ``internal`` marks frames inside torch itself."""

    file: str
    line: int
    function: str
    internal: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Part:
    """One node that decompositions made of an action.

    Attributes:
        id: unique among actions and parts.
        action: id of its action.
        name: name in the decomposed graph (``permute_1``).
        op: ``aten.permute.default``.
        inputs: ids of the parts whose values it reads.
        types: result types, such as ``f32[8, 64]``.
        arguments: positions of the program's arguments that it reads.
        view: its result is its input's memory, by its schema, or no tensor at all.
        twin: id of the first part that computes the same from the same; its own id if it is the first.
        args: what the operator is called with, as text (`covan_mlir.provenance.arguments`).
        also: ids of other actions whose work it does, where substitutions made it; it is a part of these, too.
    """

    id: int
    action: int
    name: str
    op: str
    inputs: tuple[int, ...]
    types: tuple[str, ...]
    arguments: tuple[int, ...] = ()
    view: bool = False
    twin: int = -1
    args: str = "[[],[]]"
    also: tuple[int, ...] = ()

    @property
    def owners(self) -> tuple[int, ...]:
        """Ids of all actions whose work it does."""
        return (self.action, *self.also)

    @property
    def sizes(self) -> bool:
        """Whether its value is a size of a tensor, known at run time only."""
        return self.op.startswith("aten.sym_")

    @property
    def alias(self) -> bool:
        """Whether it is another name of what it is given."""
        return self.op in ALIASES


TRANSLATED = ("onnx.", "stablehlo.", "chlo.", "sdy.")
"""How the names of operations begin that are no operators of torch: ``onnx.Relu``, ``stablehlo.dot_general``."""


@dataclass(frozen=True)
class Action:
    """One call node of the exported graph, as the user's code made it; or one operation of another framework's.

    Attributes:
        id: position among these.
        name: node name (``softmax_1``), behind that of the function where it is in one (``true_graph_0.softmax``).
        op: ``aten.softmax.int``, ``onnx.Softmax``.
        module: path of the module instance whose forward made the call (``blocks.0.attn``); empty for the root.
        frames: source frames, user's first and innermost first, then torch's own.
        types: result types, such as ``f32[8, 64]``.
        parts: the nodes that decompositions made of it; empty when it vanished in decomposition.
        inputs: ids of the actions whose values it reads.
        view: its result is its input's memory, by its schema, or no tensor at all.
        live: the model's results need it.
        role: what it is for, where the model's code does not say so: ``gradient of conv1 with respect to weight``.
    """

    id: int
    name: str
    op: str
    module: str
    frames: tuple[Frame, ...]
    types: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    inputs: tuple[int, ...] = ()
    view: bool = False
    live: bool = True
    role: str = ""

    @property
    def translated(self) -> bool:
        """Whether it is no operator of torch, but another framework's: what it does, its parts say."""
        return self.op.startswith(TRANSLATED)

    @property
    def body(self) -> str:
        """The function that it is in, of those that an operator such as ``torch.cond`` takes, or an empty string."""
        return self.name.rpartition(".")[0]

    @property
    def line(self) -> str:
        """``file:line`` of the innermost user frame, or an empty string."""
        return next((str(frame) for frame in self.frames if not frame.internal), "")


@dataclass(frozen=True)
class Site:
    """One dispatch of the compiled program.

    Attributes:
        id: position in the program, initialisers first.
        kernel: entry point of the executable; several sites may share one.
        phase: ``init`` (runs once, when the program is loaded) or ``call``.
        trace: ids of the actions it performs, ascending.
        parts: ids of the parts it performs, ascending.
        kind: ``dispatch`` of a kernel, or ``transfer``: a copy or fill that is a command of its own.
        inputs: ids of the sites whose results it reads.
        views: ids of parts that only change how it indexes.
        folds: ids of parts whose constant values it reads.
        node: its node in the graph of the final program (`Lineage.phases`); None for work that the compiler added
            after dispatches were formed.
    """

    id: int
    kernel: str
    phase: Literal["call", "init"]
    trace: tuple[int, ...]
    parts: tuple[int, ...] = ()
    kind: Literal["dispatch", "transfer"] = "dispatch"
    inputs: tuple[int, ...] = ()
    views: tuple[int, ...] = ()
    folds: tuple[int, ...] = ()
    node: int | None = None


Kind = Literal["dispatched", "folded", "merged", "view", "dead"]
"""Of a fate."""


@dataclass(frozen=True)
class Fate:
    """What became of an action or a part.

    Attributes:
        kind: ``dispatched``: sites compute it; ``view``: it only changed how sites index; ``folded``: its value is a
            constant, made when the program was compiled or loaded; ``merged``: its value is another's; ``dead``:
            nobody needs it.
        sites: ids of the sites that compute it; index by it; read the constant; or compute the twin.
        decided_by: the step of the pipeline that decided.
        twin: of a merged one: id of the action (or part) that has the same value.
        rewritten_by: names of the rules by which what it did was replaced before; of a part that they made, of it.
    """

    kind: Kind
    sites: tuple[int, ...]
    decided_by: str
    twin: int | None = None
    rewritten_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        rules = f"rewritten by {', '.join(self.rewritten_by)}; " if self.rewritten_by else ""
        return f"{rules}{self.kind}"


@dataclass(frozen=True, order=True)
class Edge:
    """How one action stands to one site.

    Attributes:
        action, site: ids.
        relation: ``performed``: the site computes it; ``folded``: reads its constant value; ``merged``: computes
            another action that has the same value; ``viewed``: only indexes by it. The strongest, in this order,
            when the action's parts differ.
    """

    action: int
    site: int
    relation: Relation


@dataclass(frozen=True)
class Group:
    """The actions of one call of a composite function.

    Attributes:
        name: ``attention@1``: the second call of ``attention``.
        kind: ``block``: marked by `covan_mlir.group`; ``function``: told by the actions' source frames.
        actions: ids of the actions, ascending.
    """

    name: str
    kind: Literal["block", "function"]
    actions: tuple[int, ...]

    @property
    def function(self) -> str:
        """What is called: the name without the number of the call."""
        return self.name.rpartition("@")[0]


class LineageData:
    """Actions and sites of one compiled program, and the relation between them."""

    def __init__(
        self,
        actions: Iterable[Action] = (),
        sites: Iterable[Site] = (),
        commands: Iterable[Iterable[int | None]] = (),
        fates: Iterable[Fate] = (),
        part_fates: Mapping[int, Fate] | None = None,
        history: Iterable[tuple[str, Mapping[int, Mapping[str, int] | None]]] = (),
        groups: Iterable[Group] = (),
        tags: Mapping[int, frozenset[str]] | None = None,
        results: Iterable[Operand] = (),
        phases: Iterable[Phase] = (),
        fusions: Iterable[FusionRecord] = (),
        bodies: Bodies | None = None,
        substitution: Substitution | None = None,
    ) -> None:
        self.actions: tuple[Action, ...] = tuple(actions)
        self.sites: tuple[Site, ...] = tuple(sites)
        self.fates: tuple[Fate, ...] = tuple(fates)
        """The fate of each action, by id."""
        self.part_fates: Mapping[int, Fate] = part_fates or {}
        self.history = tuple(history)
        """After each step of the compiler, what changed: per part, the operations that carry it, by count."""
        self.commands: tuple[tuple[int | None, ...], ...] = tuple(tuple(sites_run) for sites_run in commands)
        """For each HAL command buffer, in program order, the site of each command (None: no dispatch)."""
        self.results: tuple[Operand, ...] = tuple(results)
        """What the program returns, in order."""
        self.phases: tuple[Phase, ...] = tuple(phases)
        """The program after each step of the compiler, up to the final one: what `Executable.verify` checks."""
        self.groups: tuple[Group, ...] = tuple(groups)
        """Calls of composite functions, in order of their first actions."""
        self.action_tags: dict[int, frozenset[str]] = dict(tags or {})
        """The tags of each action that has any, by id."""
        self.fusions: tuple[FusionRecord, ...] = tuple(fusions)
        """What was decided about each chain of reductions, in the order in which they were looked at."""
        self.bodies: Bodies = bodies or Bodies()
        """What the nodes of the final program compute."""
        self.substitution = substitution
        """What substitutions made of the model's graph; None: nobody asked for any. The parts are those behind it."""

    @cached_property
    def _by_name(self) -> Mapping[str, Action]:
        return {action.name: action for action in self.actions}

    @cached_property
    def parts(self) -> Mapping[int, Part]:
        """All parts by id."""
        return {part.id: part for action in self.actions for part in action.parts}

    @cached_property
    def changes(self) -> Mapping[int, tuple[tuple[int, Mapping[str, int] | None], ...]]:
        """The history of each part that has any: numbers of the steps that changed it, and what carried it then."""
        changes: dict[int, list[tuple[int, Mapping[str, int] | None]]] = {}
        for index, (_, changed) in enumerate(self.history):
            for part, names in changed.items():
                changes.setdefault(part, []).append((index, names))
        return {part: tuple(steps) for part, steps in changes.items()}

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """How actions stand to sites: which they are performed by, folded into, merged in, or viewed by."""
        strongest: dict[tuple[int, int], int] = {}
        for action, site, relation in self._pairs():
            rank = RELATIONS.index(relation)
            strongest[action, site] = min(rank, strongest.get((action, site), rank))
        return tuple(Edge(action, site, RELATIONS[rank]) for (action, site), rank in sorted(strongest.items()))

    def _pairs(self) -> Iterator[tuple[int, int, Relation]]:
        owners = {id_: part.owners for id_, part in self.parts.items()}
        for site in self.sites:
            for action in site.trace:
                yield action, site.id, "performed"
            for part in site.views:
                yield from ((action, site.id, "viewed") for action in owners[part])
            for part in site.folds:
                yield from ((action, site.id, "folded") for action in owners[part])
        for part, fate in self.part_fates.items():
            if fate.kind in ("merged", "view", "folded"):  # also where nothing in a site tells, as of a twin
                for index in fate.sites:
                    yield from ((action, index, _OF_FATE[fate.kind]) for action in owners[part])
        for source, fate in zip(self.actions, self.fates, strict=False):
            if not source.parts and fate.kind in _OF_FATE:  # gone in decomposition
                for index in fate.sites:
                    yield source.id, index, _OF_FATE[fate.kind]

    def why(self, site: Site | int) -> tuple[Action, ...]:
        """The actions that a site performs, in source order.

        Raises:
            KeyError: there is no such site.
        """
        return tuple(self.actions[i] for i in self.site(site).trace)

    def where(self, what: Action | int | str) -> tuple[Site, ...]:
        """The sites that perform an action.

        Args:
            what: an action, its id, its name (``softmax_1``), a module path (``blocks.0``: all below it), or
                a source line (``model.py:12``; the file may be given by any suffix of its path). Where an action
                and a module share a name, the action is meant; ``module:blocks.0`` is always the module.
                ``group:attention`` is all calls of a group, ``group:attention@1`` the second, and ``group:`` may be
                left out when nothing else has that name. ``tag:audit:pii`` is all actions of that tag, and of the
                sites those that have it (`tags`): also those that only view, fold or share a tagged value.

        Raises:
            KeyError: nothing in the model is called so; the message suggests the nearest name.
        """
        ids = {action.id for action in self.find(what)}
        if isinstance(what, str) and what.startswith("tag:"):
            seen = {edge.site for edge in self.edges if edge.action in ids}
            return tuple(site for site in self.sites if site.id in seen)
        return tuple(site for site in self.sites if not ids.isdisjoint(site.trace))

    def find(self, what: Action | int | str) -> tuple[Action, ...]:
        """The actions that a name, id, module path, source line, group or tag stands for; see `where`."""
        if isinstance(what, Action):
            return (what,)
        if isinstance(what, int):
            if not 0 <= what < len(self.actions):
                raise KeyError(f"no action {what}: the model has {len(self.actions)}")
            return (self.actions[what],)
        actions = self._called(what)
        if not actions:
            name = what.removeprefix("module:")
            raise KeyError(f"nothing in the model is called {name!r}{self._suggest(name)}")
        return actions

    def _called(self, what: str) -> tuple[Action, ...]:
        prefix, _, rest = what.partition(":")
        path, _, line = what.rpartition(":")
        if prefix == "tag":
            return self.tagged(rest)
        if prefix == "group":
            return self._of_group(rest)
        if prefix == "module":
            return self._of_module(rest)
        if what in self._by_name:
            return (self._by_name[what],)
        if path and line.isdigit():
            return tuple(a for a in self.actions if any(_at(frame, path, int(line)) for frame in a.frames))
        return self._of_module(what) or self._of_group(what)

    def _of_module(self, path: str) -> tuple[Action, ...]:
        return tuple(a for a in self.actions if a.module == path or a.module.startswith(path + "."))

    def _of_group(self, name: str) -> tuple[Action, ...]:
        ids = {i for group in self.groups if name in (group.name, group.function) for i in group.actions}
        return tuple(action for action in self.actions if action.id in ids)

    def tag(self, what: Action | int | str, *tags: str) -> None:
        """Tag actions, in this lineage and in artifacts saved from now on.

        Raises:
            KeyError: nothing in the model is called so; the message suggests the nearest name.
            TagError: a tag is empty or not printable, or there is none.
        """
        words = checked(tags)
        for action in self.find(what):
            self.action_tags[action.id] = self.action_tags.get(action.id, frozenset()).union(words)

    def tags(self, what: Action | Part | Site | int | str, how: Iterable[Relation] | None = None) -> frozenset[str]:
        """The tags of an action (or of all that a name stands for), of the action of a part, or of a site.

        A site has the tags of the actions that it performs, whose constant values it reads, that it only indexes by,
        and that have the same value as one that it performs.

        Args:
            what: an action, part or site, or what `where` takes.
            how: of a site: the relations that count, all by default; ``["performed"]``: what it computes itself.

        Raises:
            KeyError: nothing in the model is called so; the message suggests the nearest name.
        """
        if isinstance(what, Site):
            ids = {edge.action for edge in self._edges_of.get(what.id, ()) if how is None or edge.relation in set(how)}
        elif isinstance(what, Part):
            ids = set(what.owners)
        else:
            ids = {action.id for action in self.find(what)}
        return frozenset().union(*(self.action_tags.get(i, frozenset()) for i in ids))

    def tagged(self, tag: str) -> tuple[Action, ...]:
        """The actions that have a tag; none if no action has."""
        return tuple(action for action in self.actions if tag in self.action_tags.get(action.id, ()))

    @cached_property
    def _edges_of(self) -> Mapping[int, tuple[Edge, ...]]:
        of_site: dict[int, list[Edge]] = {}
        for edge in self.edges:
            of_site.setdefault(edge.site, []).append(edge)
        return {site: tuple(edges) for site, edges in of_site.items()}

    def _suggest(self, what: str) -> str:
        groups = {group.function for group in self.groups}
        names = {a.name for a in self.actions} | {a.module for a in self.actions} | {a.line for a in self.actions}
        known, prefix = names | groups, ""
        if what.startswith("tag:"):
            known, prefix = {tag for tags in self.action_tags.values() for tag in tags}, "tag:"
        elif what.startswith("group:"):
            known, prefix = groups, "group:"
        close = difflib.get_close_matches(what.removeprefix(prefix), known - {""}, n=3, cutoff=0.5)
        near = [prefix + name for name in close]
        return f"; did you mean {' or '.join(near)}?" if near else ""

    def site(self, site: Site | int) -> Site:
        """The site of an id.

        Raises:
            KeyError: there is no such site.
        """
        index = site.id if isinstance(site, Site) else site
        if not 0 <= index < len(self.sites):
            raise KeyError(f"no site {index}: the program has {len(self.sites)}")
        return self.sites[index]

    def fate(self, what: Action | int | str) -> Fate:
        """What became of one action, given by itself, its id or its name.

        Raises:
            KeyError: there is no such action, or the name stands for several.
        """
        return self.fates[self.one(what).id]

    def one(self, what: Action | int | str) -> Action:
        """The only action that ``what`` stands for.

        Raises:
            KeyError: there is no such action, or the name stands for several.
        """
        actions = self.find(what)
        if len(actions) > 1:
            raise KeyError(
                f"{what!r} stands for {len(actions)} actions: ask for one of {[a.name for a in actions[:5]]}"
            )
        return actions[0]

    def __repr__(self) -> str:
        return f"<Lineage of {len(self.actions)} actions in {len(self.sites)} sites>"


def _at(frame: Frame, path: str, line: int) -> bool:
    return frame.line == line and (frame.file == path or frame.file.endswith("/" + path.removeprefix("./")))
