"""What was decided about each chain of reductions of a program, and why: kept in the lineage, printed by explain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from covan_mlir.fred.certificate import Certificate
from covan_mlir.support.typed_json import Amount, JsonObject, Natural


class Sweep(JsonObject, frozen=True):
    """One loop of a kernel over some axes.

    Attributes:
        why: why it is not part of the sweep before it; empty for the first.
        lines: what it computes, as formulas (`covan_mlir.fred.forms` says what names with suffixes mean).
    """

    axes: tuple[str, ...]
    why: str
    lines: tuple[str, ...]


class FusionRecord(JsonObject, frozen=True):
    """A chain that was found, and what became of it.

    Attributes:
        what: the chain in a few words.
        parts: ids of the source's parts that it performs.
        kernel: name of its kernel; empty if it has none.
        reason: why it has none; empty if it has one.
        chain: its steps, as formulas, after those that are computed ahead of time (`covan_mlir.fred.scaled_weights`).
        source: the chain itself, from which all else can be derived again (`covan_mlir.fred.chain_json`); empty of
            operations that are no chain.
        sweeps: the loops that compute it, as far as they were derived.
        certificates: proofs of the repairs and rewrites that the sweeps rest on.
        refusals: reductions that cannot run in the sweep of one that they depend on, and why.
        guards: statistics with a guard, each with the row that shows that it is needed.
        schedule: how the kernel is laid out: of the template that wrote it, as JSON.
        seconds: predicted time of the kernel; 0 if it has none.
        template: who wrote it (`covan_mlir.lowering.kernels.template`).
        measured: the time that it took when it was measured to be the best, which is why it was taken
            (docs/tuning.md); 0: the prediction decided.
        elsewhere: that was on another machine of this kind.
        layouts: how weights lie in memory that the kernel reads: names of what lays them out, or their types where
            they lie as the model's do.
    """

    what: str
    parts: tuple[Natural, ...]
    kernel: str = ""
    reason: str = ""
    chain: tuple[str, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    refusals: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    schedule: Mapping[str, Any] = msgspec.field(default_factory=dict)
    seconds: Amount = 0.0
    source: Mapping[str, Any] = msgspec.field(default_factory=dict)
    template: str = ""
    measured: Amount = 0.0
    elsewhere: bool = False
    layouts: tuple[str, ...] = ()


class LeftOverRecord(JsonObject, frozen=True):
    """An operator that another compiler compiled: no kernel of covan's is written for it.

    Attributes:
        parts: ids of the source's parts that it performs.
        source: its formula (`covan_mlir.fred.chain_json`).
    """

    parts: tuple[Natural, ...]
    source: Mapping[str, Any]
