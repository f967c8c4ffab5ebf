"""What substitutions made of a model's graph before it was compiled: data of a lineage.

A model has two graphs then. The *source* graph is the one that was exported and decomposed: its parts, and what it
returns. The parts of a lineage's actions are those of the *substituted* graph, which is what was compiled. Steps lead
from one to the other, each by a rule, and say where it was applied.

A place in a graph is text: ``p16``, ``a0`` and ``w:fc.weight`` are the values of a source part, an argument and a
weight, ``s3.1`` is the second result of step 3, all of them as they are when the steps before are done; ``p16/0/1`` is
the second operand of the first operand of what a part computes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from covan_mlir.support.typed_json import Amount, JsonObject, Natural


class SourcePart(JsonObject, frozen=True):
    """A part of the source graph; see `covan_mlir.provenance.model.Part`."""

    id: Natural
    action: Natural
    name: str
    op: str
    types: tuple[str, ...]
    view: bool
    args: str


class Rewrite(JsonObject, frozen=True):
    """A rule, applied at one place.

    Attributes:
        rule: its name.
        backward: what stands behind ``to`` was replaced by what stands behind ``from``.
        results: places of what was replaced, one for each result of the rule.
        bindings: places of its tensors, by name.
        sizes: its sizes, by name.
        actions: ids of the actions that did what was replaced.
    """

    rule: str
    results: tuple[str, ...]
    bindings: Mapping[str, str]
    sizes: Mapping[str, int]
    actions: tuple[Natural, ...]
    backward: bool = False


class AppliedRule(JsonObject, frozen=True):
    """A rule that was applied, as a file of rules has it (docs/superoptimiser.md)."""

    name: str
    text: str
    assumed: bool = False


class Substitution(JsonObject, frozen=True):
    """All of a program.

    Attributes:
        rules: those that were applied, each once.
        steps: in their order.
        parts: of the source graph.
        results: what the source graph returns.
        before, after: predicted seconds of a call, of what rules know of both graphs.
        states: how many programs were gone on with.
        costed: of how many the time was predicted.
        finished: whether the search ended by itself, and not by its time limit.
        seconds: that it took.
    """

    rules: tuple[AppliedRule, ...] = ()
    steps: tuple[Rewrite, ...] = ()
    parts: tuple[SourcePart, ...] = ()
    results: tuple[tuple[str, int | str], ...] = ()
    before: Amount = 0.0
    after: Amount = 0.0
    states: Natural = 0
    costed: Natural = 0
    finished: bool = True
    seconds: Amount = 0.0


class SubstitutedPart(JsonObject, frozen=True):
    """A part of the substituted graph, as the compiler's process tells of it.

    Attributes:
        actions: ids of all actions whose work it does, ascending.
    """

    id: Natural
    actions: tuple[Natural, ...]
    name: str
    op: str
    types: tuple[str, ...]
    view: bool
    args: str


class SubstitutedGraph(JsonObject, frozen=True):
    """What the compiler's process compiled instead of what it was given.

    Attributes:
        parts: in an order in which each reads only parts before it.
        results: what it returns.
    """

    substitution: Substitution
    parts: tuple[SubstitutedPart, ...] = ()
    results: tuple[tuple[str, int | str], ...] = msgspec.field(default_factory=tuple)
