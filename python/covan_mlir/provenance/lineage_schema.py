"""The lineage of a program as it is stored (docs/artifact.md): rows with columns; texts and frames are named by their
index in a pool, parts by their ids, actions and sites by their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from covan_mlir.provenance.bodies import Bodies, malformed
from covan_mlir.provenance.control import CARRIED
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.model import Kind
from covan_mlir.provenance.substitution import Substitution
from covan_mlir.provenance.words import is_group, is_tag
from covan_mlir.support.typed_json import JsonObject, Natural, decode, fail, repeated, short

FORMAT = 5
LINEAGE = "lineage.json"

Flag = Literal[0, 1]
Text = Natural
"""Position of a text in the pool."""


class StoredFrame(NamedTuple):
    """A source frame, in the pool."""

    file: str
    line: int
    function: str
    internal: bool


class StoredAction(NamedTuple):
    """An action; its id is its position."""

    name: str
    op: Text
    module: Text
    frames: list[Natural]
    types: list[Text]
    inputs: list[Natural]
    view: Flag
    live: Flag
    role: Text


class StoredPart(NamedTuple):
    """A part of an action; ``arguments`` is JSON in a text (`covan_mlir.provenance.arguments`), ``also`` are further
    actions that it is a part of."""

    id: Natural
    action: Natural
    name: str
    op: Text
    types: list[Text]
    view: Flag
    twin: int
    arguments: str
    also: list[Natural]


class StoredSite(NamedTuple):
    """A site; its id is its position, its node one of the last phase."""

    kernel: Text
    phase: Literal["call", "init"]
    kind: Literal["dispatch", "transfer"]
    trace: list[Natural]
    parts: list[Natural]
    inputs: list[Natural]
    views: list[Natural]
    folds: list[Natural]
    node: Natural | None


class StoredFate(NamedTuple):
    """The fate of an action, by position."""

    kind: Kind
    sites: list[Natural]
    decided_by: Text
    twin: Natural | None
    rewritten_by: list[Text]


class StoredPartFate(NamedTuple):
    """The fate of a part."""

    part: Natural
    kind: Kind
    sites: list[Natural]
    decided_by: Text
    twin: Natural | None


class StoredCount(NamedTuple):
    """How many operations of a name carry a part."""

    operation: Text
    number: Natural


class StoredChange(NamedTuple):
    """What carries a part after a step of the compiler; None: nothing does."""

    part: Natural
    operations: list[StoredCount] | None


class StoredStep(NamedTuple):
    """What a step of the compiler changed."""

    step: Text
    changes: list[StoredChange]


Value = int | list[Natural] | None
"""The only or first result of a node; ``-1 - i``: argument i; ``[node, result]``; ``[]``: a constant; None: unknown."""


class StoredNode(NamedTuple):
    """A node of a phase's graph; see `covan_mlir.provenance.phases`."""

    operation: Text
    kind: Literal[0, 1, 2, 3, 4, 5]
    inputs: list[Value]
    outputs: list[list[Annotated[list[Natural], msgspec.Meta(min_length=1)]]]
    evidence: list[Natural]


class StoredGraph(NamedTuple):
    """The program after a step."""

    nodes: list[StoredNode]
    results: list[Value]


class StoredPhase(NamedTuple):
    """A step and the program after it; None: the one before."""

    step: Text
    graph: StoredGraph | None


class StoredGroup(NamedTuple):
    """A call of a composite function."""

    name: str
    kind: Literal["block", "function"]
    actions: list[Natural]


class StoredTag(NamedTuple):
    """A tag and the actions that have it."""

    tag: str
    actions: list[Natural]


class StoredLineage(JsonObject, frozen=True):
    """``lineage.json``."""

    format: int
    actions: list[StoredAction]
    parts: list[StoredPart]
    sites: list[StoredSite]
    commands: list[list[Natural | None]]
    fates: list[StoredFate]
    part_fates: list[StoredPartFate]
    results: list[tuple[Literal["p", "a", "w"], int | str]]
    phases: list[StoredPhase]
    history: list[StoredStep]
    groups: list[StoredGroup]
    tags: list[StoredTag]
    bodies: Bodies
    fusions: list[FusionRecord]
    substitution: Substitution | None
    pool: list[str | StoredFrame]


def check(lineage: StoredLineage) -> None:
    """Raises `SchemaError` unless a lineage has the format of this version and its indices all point at something."""
    if lineage.format != FORMAT:
        fail(f"is {lineage.format}, not {FORMAT}", LINEAGE, "$.format")
    _Check(lineage).run()


class _Check:
    """What there is for indices to point at, and where they do."""

    def __init__(self, lineage: StoredLineage) -> None:
        self.lineage = lineage
        self.texts = frozenset(i for i, item in enumerate(lineage.pool) if isinstance(item, str))
        self.frames = range(len(lineage.pool))
        self.actions, self.sites = range(len(lineage.actions)), range(len(lineage.sites))
        self.parts = frozenset(part.id for part in lineage.parts)

    def run(self) -> None:
        """Raises `SchemaError` for the first index that points at nothing."""
        self._source()
        self._program()
        self._history()
        self._phases()

    def _source(self) -> None:
        frames = frozenset(self.frames) - self.texts
        for index, action in enumerate(self.lineage.actions):
            self._texts((action.op, action.module, action.role, *action.types), "actions", index)
            self._all(action.frames, frames, "a source frame", "actions", index)
            self._all(action.inputs, self.actions, "an action", "actions", index)
        if len(self.parts) != len(self.lineage.parts):
            fail("two of them have one id", LINEAGE, "$.parts")
        before: set[int] = set()
        for index, part in sorted(enumerate(self.lineage.parts), key=lambda item: item[1].id):
            self._texts((part.op, *part.types), "parts", index)
            self._all((part.action, *part.also), self.actions, "an action", "parts", index)
            later = self.parts if self.lineage.pool[part.op] == CARRIED else before
            _check_arguments(part.arguments, before, later, f"$.parts[{index}]")
            before.add(part.id)
            if part.twin != -1:
                self._all((part.twin,), before, "a part before", "parts", index)
        for index, group in enumerate(self.lineage.groups):
            self._all(group.actions, self.actions, "an action", "groups", index)
            name, _, number = group.name.rpartition("@")
            if not is_group(name) or not (number.isascii() and number.isdigit()):
                fail(f"{short(group.name)} is no call's name, such as 'attention@0'", LINEAGE, f"$.groups[{index}]")
        for index, (tag, actions) in enumerate(self.lineage.tags):
            self._all(actions, self.actions, "an action", "tags", index)
            if not is_tag(tag):
                fail(f"the tag {short(tag)} is not printable", LINEAGE, f"$.tags[{index}]")
        for key, names in (("groups", self.lineage.groups), ("tags", self.lineage.tags)):
            if (name := repeated(named[0] for named in names)) is not None:
                fail(f"two of them are called {short(name)}", LINEAGE, f"$.{key}")

    def _program(self) -> None:
        for index, site in enumerate(self.lineage.sites):
            self._texts((site.kernel,), "sites", index)
            self._all(site.trace, self.actions, "an action", "sites", index)
            self._all(site.inputs, self.sites, "a site", "sites", index)
            self._all((*site.parts, *site.views, *site.folds), self.parts, "a part", "sites", index)
        for index, commands in enumerate(self.lineage.commands):
            self._all((site for site in commands if site is not None), self.sites, "a site", "commands", index)
        if len(self.lineage.fates) not in (0, len(self.actions)):
            fail(f"there are {len(self.lineage.fates)} for {len(self.actions)} actions", LINEAGE, "$.fates")
        for index, fate in enumerate(self.lineage.fates):
            self._fate(fate, self.actions, "an action", "fates", index)
            self._texts(fate.rewritten_by, "fates", index)
        for index, part_fate in enumerate(self.lineage.part_fates):
            self._all((part_fate.part,), self.parts, "a part", "part_fates", index)
            self._fate(part_fate, self.parts, "a part", "part_fates", index)
        for index, (kind, name) in enumerate(self.lineage.results):
            _check_operand({kind: name}, self.parts, f"$.results[{index}]")
        if self.lineage.substitution is not None:
            self._substitution(self.lineage.substitution)
        for index, fusion in enumerate(self.lineage.fusions):
            self._all(fusion.parts, self.parts, "a part", "fusions", index)

    def _substitution(self, substitution: Substitution) -> None:
        before: set[int] = set()
        for index, part in enumerate(substitution.parts):
            place = f"substitution.parts[{index}]"
            self._all((part.action,), self.actions, "an action", place, index)
            _check_arguments(part.args, before, before, f"$.{place}")
            before.add(part.id)
        for index, step in enumerate(substitution.steps):
            self._all(step.actions, self.actions, "an action", "substitution.steps", index)
            if step.rule not in {rule.name for rule in substitution.rules}:
                fail(f"there is no rule {short(step.rule)}", LINEAGE, f"$.substitution.steps[{index}]")
        for index, (kind, name) in enumerate(substitution.results):
            _check_operand({kind: name}, before, f"$.substitution.results[{index}]")

    def _fate(self, fate: StoredFate | StoredPartFate, twins: Any, what: str, section: str, index: int) -> None:
        self._all(fate.sites, self.sites, "a site", section, index)
        self._texts((fate.decided_by,), section, index)
        if fate.twin is not None:
            self._all((fate.twin,), twins, what, section, index)

    def _history(self) -> None:
        for index, (step, changes) in enumerate(self.lineage.history):
            self._texts((step,), "history", index)
            operations = chain.from_iterable(change.operations or () for change in changes)
            self._texts({operation for operation, _ in operations}, "history", index)

    def _phases(self) -> None:
        graph: StoredGraph | None = None
        for index, phase in enumerate(self.lineage.phases):
            self._texts((phase.step,), "phases", index)
            if phase.graph is None and graph is None:
                fail("there is no graph before it", LINEAGE, f"$.phases[{index}]")
            if phase.graph is not None:
                graph = phase.graph
                self._graph(graph, index)
        nodes = range(len(graph.nodes) if graph else 0)
        if wrong := malformed(self.lineage.bodies, len(nodes)):
            fail(wrong, LINEAGE, "$.bodies")
        for index, site in enumerate(self.lineage.sites):
            if site.node is not None:
                self._all((site.node,), nodes, "a node of the program", "sites", index)

    def _graph(self, graph: StoredGraph, index: int) -> None:
        self._texts({node.operation for node in graph.nodes}, "phases", index)
        results = [len(node.outputs) for node in graph.nodes]
        for value in chain(chain.from_iterable(node.inputs for node in graph.nodes), graph.results):
            if value is None or value == [] or (isinstance(value, int) and value < 0):
                continue
            node, *result = value if isinstance(value, list) else (value, 0)
            if node >= len(results) or len(result) != 1 or result[0] >= results[node]:
                fail(f"{short(value)} is no value of a node", LINEAGE, f"$.phases[{index}]")
        for links in chain.from_iterable(node.outputs for node in graph.nodes):
            if any(how > 3 for how, *_ in links):
                fail(f"{short(links)} has an unknown kind of link", LINEAGE, f"$.phases[{index}]")

    def _texts(self, indices: Iterable[int], section: str, index: int) -> None:
        self._all(indices, self.texts, "a text", section, index)

    @staticmethod
    def _all(indices: Iterable[int], known: Set[int] | range, what: str, section: str, index: int) -> None:
        for value in indices:
            if value not in known:
                fail(f"{value} is not the index of {what}", LINEAGE, f"$.{section}[{index}]")


# --- what an operator is called with


class _Arguments(NamedTuple):
    positional: list[Any]
    named: list[tuple[str, Any]]


def _check_arguments(text: str, parts: Set[int], later: Set[int], path: str) -> None:
    """Raises `SchemaError` unless these are arguments (`covan_mlir.provenance.arguments`) that read only ``parts``, and
    in the next iteration of a loop only ``later``."""
    positional, named = decode(text, _Arguments, f"{LINEAGE} {path}")
    stack = [*positional, *(value for _, value in named)]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            following = value["n"] if set(value) == {"n"} else None
            if isinstance(following, dict):
                _check_operand(following, later, path)
            else:
                _check_operand(value, parts, path)


def _check_operand(operand: Mapping[str, Any], parts: Set[int], path: str) -> None:
    kind = next(iter(operand), "")
    known = kind in _OPERANDS and not operand.keys() - {kind, "of", "like"} and isinstance(operand.get("of", ""), str)
    known = known and ("like" not in operand or (kind == "r" and _is_outside(operand["like"])))
    if not known or not _OPERANDS[kind](operand[kind]):
        fail(f"{short(operand)} is no argument", LINEAGE, path)
    if kind == "p" and operand["p"] not in parts:
        fail(f"{operand['p']} is not the index of a part", LINEAGE, path)


def _is_natural(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_outside(value: Any) -> bool:
    """Whether this is an argument or a weight."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, name),) = value.items()
    return kind in ("a", "w") and _OPERANDS[kind](name)


def _is_slice(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(bound) in (int, type(None)) for bound in value)


_OPERANDS: Mapping[str, Callable[[Any], bool]] = {
    "p": _is_natural,
    "a": _is_natural,
    "w": _is_text,
    "t": _is_text,
    "f": lambda value: value in ("inf", "-inf", "nan"),
    "d": _is_text,
    "s": _is_slice,
    "r": _is_text,
    "n": lambda value: value is None or type(value) in (bool, int, float, str),
}
