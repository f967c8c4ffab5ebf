"""The lineage of a compiled program: which actions of the source model each dispatch site performs.

Words (see docs/provenance.md): an *action* is one call node of the exported graph; its *parts* are the nodes that
decompositions made of it; a *site* is one dispatch of the compiled program; a *trace* is what a site performs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

FORMAT = 1


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
    """

    id: int
    action: int
    name: str
    op: str
    inputs: tuple[int, ...]
    types: tuple[str, ...]


@dataclass(frozen=True)
class Action:
    """One call node of the exported graph, as the user's code made it.

    Attributes:
        id: position among the call nodes.
        name: node name (``softmax_1``).
        op: ``aten.softmax.int``.
        module: path of the module instance whose forward made the call (``blocks.0.attn``); empty for the root.
        frames: source frames, user's first and innermost first, then torch's own.
        types: result types, such as ``f32[8, 64]``.
        parts: the nodes that decompositions made of it; empty when it vanished in decomposition.
    """

    id: int
    name: str
    op: str
    module: str
    frames: tuple[Frame, ...]
    types: tuple[str, ...]
    parts: tuple[Part, ...] = ()

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
    """

    id: int
    kernel: str
    phase: Literal["call", "init"]
    trace: tuple[int, ...]
    parts: tuple[int, ...] = ()


class Lineage:
    """Actions and sites of one compiled program, and the relation between them."""

    def __init__(
        self,
        actions: Iterable[Action] = (),
        sites: Iterable[Site] = (),
        commands: Iterable[Iterable[int | None]] = (),
    ) -> None:
        self.actions: tuple[Action, ...] = tuple(actions)
        self.sites: tuple[Site, ...] = tuple(sites)
        self.commands: tuple[tuple[int | None, ...], ...] = tuple(tuple(row) for row in commands)
        """For each HAL command buffer, in program order, the site of each command (None: no dispatch)."""

    @cached_property
    def _sites_of(self) -> Mapping[int, tuple[Site, ...]]:
        found: dict[int, list[Site]] = {}
        for site in self.sites:
            for action in site.trace:
                found.setdefault(action, []).append(site)
        return {action: tuple(sites) for action, sites in found.items()}

    @cached_property
    def _by_name(self) -> Mapping[str, Action]:
        return {action.name: action for action in self.actions}

    @cached_property
    def parts(self) -> Mapping[int, Part]:
        """All parts by id."""
        return {part.id: part for action in self.actions for part in action.parts}

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

        Raises:
            KeyError: nothing in the model is called so; the message suggests the nearest name.
        """
        ids = {action.id for action in self.find(what)}
        return tuple(site for site in self.sites if not ids.isdisjoint(site.trace))

    def find(self, what: Action | int | str) -> tuple[Action, ...]:
        """The actions that a name, id, module path or source line stands for; see `where`."""
        if isinstance(what, Action):
            return (what,)
        if isinstance(what, int):
            if not 0 <= what < len(self.actions):
                raise KeyError(f"no action {what}: the model has {len(self.actions)}")
            return (self.actions[what],)
        if what.startswith("module:"):
            what = what.removeprefix("module:")
        elif what in self._by_name:
            return (self._by_name[what],)
        path, _, line = what.rpartition(":")
        if path and line.isdigit():
            found = tuple(a for a in self.actions if any(_at(frame, path, int(line)) for frame in a.frames))
        else:
            found = tuple(a for a in self.actions if a.module == what or a.module.startswith(what + "."))
        if not found:
            raise KeyError(f"nothing in the model is called {what!r}{self._suggest(what)}")
        return found

    def _suggest(self, what: str) -> str:
        names = {a.name for a in self.actions} | {a.module for a in self.actions} | {a.line for a in self.actions}
        near = difflib.get_close_matches(what, names - {""}, n=3, cutoff=0.5)
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

    def explain(self, what: Action | int | str | None = None) -> str:
        """Text table of the sites and what each performs; of those of ``what`` alone, if given."""
        from covan_mlir.explain import table

        return table(self, self.sites if what is None else self.where(what))

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<Lineage of {len(self.actions)} actions in {len(self.sites)} sites>"

    def to_json(self) -> dict[str, Any]:
        """Versioned JSON form (docs/artifact.md). Frames, ops and types are interned: models repeat them."""
        pool = _Pool()
        actions = [
            [
                a.name,
                pool(a.op),
                pool(a.module),
                [pool(_frame_row(f)) for f in a.frames],
                [pool(t) for t in a.types],
            ]
            for a in self.actions
        ]
        parts = [
            [p.id, p.action, p.name, pool(p.op), list(p.inputs), [pool(t) for t in p.types]]
            for a in self.actions
            for p in a.parts
        ]
        sites = [[pool(s.kernel), s.phase, list(s.trace), list(s.parts)] for s in self.sites]
        commands = [list(row) for row in self.commands]
        return {
            "format": FORMAT,
            "pool": pool.rows,
            "actions": actions,
            "parts": parts,
            "sites": sites,
            "commands": commands,
        }

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Lineage:
        pool = row["pool"]
        parts: dict[int, list[Part]] = {}
        for id_, action, name, op, inputs, types in row["parts"]:
            part = Part(id_, action, name, pool[op], tuple(inputs), tuple(pool[t] for t in types))
            parts.setdefault(action, []).append(part)
        actions = [
            Action(
                id=i,
                name=name,
                op=pool[op],
                module=pool[module],
                frames=tuple(Frame(*pool[f]) for f in frames),
                types=tuple(pool[t] for t in types),
                parts=tuple(parts.get(i, ())),
            )
            for i, (name, op, module, frames, types) in enumerate(row["actions"])
        ]
        sites = [
            Site(i, pool[kernel], phase, tuple(trace), tuple(part_ids))
            for i, (kernel, phase, trace, part_ids) in enumerate(row["sites"])
        ]
        return Lineage(actions, sites, row["commands"])


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


def _frame_row(frame: Frame) -> tuple[str, int, str, bool]:
    return (frame.file, frame.line, frame.function, frame.internal)


def _at(frame: Frame, path: str, line: int) -> bool:
    return frame.line == line and (frame.file == path or frame.file.endswith("/" + path.removeprefix("./")))
