"""A CPU as a target of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.profitability import rates
from covan_mlir.lowering.kernels.cpu.schedule import lanes
from covan_mlir.lowering.kernels.reductions.profitability import Rates
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.machine.description import Machine


@dataclass(frozen=True)
class CpuTarget(KernelTarget):
    """A CPU."""

    kind: ClassVar[str] = "cpu"

    machine: Machine

    @property
    def name(self) -> str:
        """Of the machine."""
        return self.machine.name

    def rates(self, chain: Chain) -> Rates:
        """With as many elements per vector as kernels of the chain have."""
        return rates(self.machine, lanes(chain, self.machine))
