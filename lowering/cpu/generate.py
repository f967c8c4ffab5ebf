"""From a chain to a kernel."""

from __future__ import annotations

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.cpu.kernel import Kernel, Refusal
from covan_mlir.lowering.cpu.machine import Machine
from covan_mlir.lowering.cpu.schedule import Schedule


def generate(
    chain: Chain,
    machine: Machine,
    schedule: Schedule | None = None,
    *,
    fusion: Fusion | None = None,
    name: str = "fred",
) -> Kernel | Refusal:
    """Code for a chain.

    Args:
        schedule: one of `legal_schedules`; None for the one that the cost model likes best.
        fusion: the chain's sweeps with their repairs; chains with contractions need it.
        name: symbol of the executable and its export.
    """
    return Refusal("no shape of code fits this chain")
