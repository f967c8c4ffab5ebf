"""What is verified: a lineage, with what all checks ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from covan_mlir.checking.source_system import PartCall, SourceSystem
from covan_mlir.checking.verdict import Counterexample
from covan_mlir.checking.words import Words

if TYPE_CHECKING:
    from covan_mlir.frontend.identity import Identities
    from covan_mlir.provenance.model import LineageData


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


def operators(lineage: LineageData) -> Identities | None:
    """What the operators of a lineage do, as torch runs them; None without torch."""
    try:
        from covan_mlir.frontend.identity import Identities
    except ImportError:
        return None
    return Identities(lineage.parts)


def _plain(part: int) -> None:
    return None
