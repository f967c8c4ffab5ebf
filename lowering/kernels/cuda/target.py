"""A GPU of CUDA as a target of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cuda.compile import available
from covan_mlir.lowering.kernels.cuda.device import Device
from covan_mlir.lowering.kernels.reductions.profitability import Rates
from covan_mlir.lowering.kernels.target import KernelTarget


@dataclass(frozen=True)
class CudaTarget(KernelTarget):
    """A GPU."""

    kind: ClassVar[str] = "cuda"

    device: Device

    @property
    def name(self) -> str:
        """Of its architecture."""
        return self.device.name

    def rates(self, chain: Chain) -> Rates:
        """The device's, whatever the chain."""
        return self.device.rates

    def unable(self) -> str | None:
        """Triton compiles all of its kernels."""
        return None if available() else "Triton is not installed: pip install covan-mlir[cuda]"
