"""What is verified: a lineage, with what all checks ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from covan_mlir.checking.source_system import PartCall, SourceSystem
from covan_mlir.checking.verdict import Counterexample
from covan_mlir.checking.words import Words
from covan_mlir.provenance import arguments

if TYPE_CHECKING:
    from covan_mlir.frontend.identity import Identities
    from covan_mlir.provenance.model import LineageData
    from covan_mlir.provenance.substitution import Substitution


class Subject:
    """A lineage that is verified.

    Attributes:
        identities: which parts give back an operand; None without torch, which runs them.
    """

    def __init__(self, lineage: LineageData) -> None:
        self.lineage = lineage
        self.words = Words(lineage)
        self.identities = operators(lineage)
        self._calls: dict[int, PartCall] = {}

    @cached_property
    def exported(self) -> Subject:
        """The model as it was exported: before substitutions, where there were any."""
        substitution = self.lineage.substitution
        if substitution is None or not substitution.steps:
            return self
        return Subject(exported(self.lineage, substitution))

    def source(self, identity: Mapping[int, int] | None = None) -> SourceSystem:
        """The source as a system; ``identity``: positions of the operands that parts give back."""
        return self._plain_source if identity is None else self._system(identity)

    @cached_property
    def _plain_source(self) -> SourceSystem:
        return self._system(None)

    def _system(self, identity: Mapping[int, int] | None) -> SourceSystem:
        label = self.identities.label if self.identities else _plain
        return SourceSystem(self.lineage.parts, self.lineage.results, identity, label, self._calls)

    def example(self, phase: str, why: str, site: int | None = None, parts: Iterable[int] = ()) -> Counterexample:
        """A counterexample about some parts."""
        kernel = "" if site is None else self.lineage.sites[site].kernel
        return Counterexample(phase, why, site, self.words.actions(list(parts)), kernel)


def exported(lineage: LineageData, substitution: Substitution) -> LineageData:
    """The ledger before substitutions: the same actions, with the parts that they had."""
    from covan_mlir.provenance.model import LineageData as Data
    from covan_mlir.provenance.model import Part

    first: dict[tuple[object, ...], int] = {}
    twins: dict[int, int] = {}
    parts: dict[int, list[Part]] = {}
    for row in substitution.parts:
        operands = arguments.operands(row.args)
        read = tuple((kind, twins.get(int(name), name) if kind == "p" else name) for kind, name in operands)
        twin = first.setdefault((row.op, arguments.signature(row.args), read), row.id)
        twins[row.id] = twin
        inputs, places = (tuple(sorted({int(n) for k, n in operands if k == kind})) for kind in "pa")
        part = Part(row.id, row.action, row.name, row.op, inputs, row.types, places, row.view, twin, row.args)
        parts.setdefault(row.action, []).append(part)
    actions = [replace(action, parts=tuple(parts.get(action.id, ()))) for action in lineage.actions]
    return Data(actions, results=substitution.results)


def operators(lineage: LineageData) -> Identities | None:
    """What the operators of a lineage do, as torch runs them; None without torch."""
    try:
        from covan_mlir.frontend.identity import Identities
    except ImportError:
        return None
    return Identities(lineage.parts)


def _plain(part: int) -> None:
    return None
