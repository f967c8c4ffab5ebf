"""The operators of a compiled program: what each is, which site runs it, and what of the model it performs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.kir.operators import Operator
from covan_mlir.kir.recognition import operator_of
from covan_mlir.provenance.attached import attached_in
from covan_mlir.provenance.fusion import FusionRecord, LeftOverRecord
from covan_mlir.provenance.model import Action, LineageData, Site


@dataclass(frozen=True)
class PlacedOperator:
    """One site, and an operator that it runs.

    Attributes:
        site: that runs it.
        operator: what it computes, in words of integers and what they stand for.
        chain: its formula: with `covan_mlir.kir.interpretation.interpret`, what it computes of given inputs.
        actions: what it performs, in source order; attached operators among them are tagged ``attached``.
        kernel: the site is its kernel; otherwise, another compiler made the site of it, perhaps with others.
    """

    site: Site
    operator: Operator
    chain: Chain
    actions: tuple[Action, ...]
    kernel: bool = True

    @property
    def attached(self) -> tuple[str, ...]:
        """The plain names of the attached operators (docs/attaching.md) that are a part of it."""
        return attached_in(action.module for action in self.actions)


def operator_in(record: FusionRecord) -> tuple[Chain, Operator] | None:
    """What a chain is that was found; None of operations that are no chain."""
    if not record.source:
        return None
    chain = chain_json.load(record.source)
    return chain, operator_of(chain)


def operators(lineage: LineageData) -> tuple[PlacedOperator, ...]:
    """The operators of a program, site by site, in its order; sites that another compiler made of several have them
    all. What it computes once, as it compiles or as the program is loaded, is none."""
    known = {record.kernel: operator_in(record) for record in lineage.fusions if record.kernel}
    placed = []
    for site in lineage.sites:
        operator = known.get(site.kernel)
        if operator is not None:
            placed.append(PlacedOperator(site, operator[1], operator[0], lineage.why(site)))
    for record in lineage.left_over:
        placed += _left_over(lineage, record, [site for site in lineage.sites if site.kernel not in known])
    return tuple(sorted(placed, key=lambda one: one.site.id))


def _left_over(lineage: LineageData, record: LeftOverRecord, sites: Sequence[Site]) -> Iterator[PlacedOperator]:
    """An operator that no kernel was written for, at the sites that perform most of it."""
    parts = {*record.parts}
    chain = chain_json.load(record.source)
    owners = {owner for part in record.parts if (known := lineage.parts.get(part)) for owner in known.owners}
    actions = tuple(lineage.actions[i] for i in sorted(owners))
    performed = [len(parts & {*site.parts}) for site in sites]
    most = max(performed, default=0)
    for site, number in zip(sites, performed, strict=True):
        if number == most > 0:
            yield PlacedOperator(site, operator_of(chain), chain, actions, kernel=False)
