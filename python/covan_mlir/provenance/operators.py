"""The operators of a compiled program: what each kernel of covan's is, and what of the model it performs."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.kir.operators import Operator
from covan_mlir.kir.recognition import operator_of
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.model import Action, LineageData, Site


@dataclass(frozen=True)
class PlacedOperator:
    """One site that runs a kernel of covan's.

    Attributes:
        site: that runs it.
        operator: what it computes, in words of integers and what they stand for.
        chain: its formula: with `covan_mlir.kir.interpretation.interpret`, what it computes of given inputs.
        actions: what it performs, in source order; attached operators among them are tagged ``attached``.
    """

    site: Site
    operator: Operator
    chain: Chain
    actions: tuple[Action, ...]


def operator_in(record: FusionRecord) -> tuple[Chain, Operator] | None:
    """What a chain is that was found; None of operations that are no chain."""
    if not record.source:
        return None
    chain = chain_json.load(record.source)
    return chain, operator_of(chain)


def operators(lineage: LineageData) -> tuple[PlacedOperator, ...]:
    """The operators of a program, in its order: sites of other kernels, which IREE generated, are none."""
    known = {record.kernel: operator_in(record) for record in lineage.fusions if record.kernel}
    placed = []
    for site in lineage.sites:
        operator = known.get(site.kernel)
        if operator is not None:
            placed.append(PlacedOperator(site, operator[1], operator[0], lineage.why(site)))
    return tuple(placed)
