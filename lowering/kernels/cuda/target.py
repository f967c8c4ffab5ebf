"""A GPU of CUDA as a target of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cuda.compile import ALIGNMENT, available
from covan_mlir.lowering.kernels.cuda.device import DEVICES, CudaDevice
from covan_mlir.lowering.kernels.overrides import IllegalError, changes
from covan_mlir.lowering.kernels.reductions.profitability import Rates
from covan_mlir.lowering.kernels.target import KernelTarget


@dataclass(frozen=True)
class CudaTarget(KernelTarget):
    """A GPU."""

    kind: ClassVar[str] = "cuda"
    alignment: ClassVar[int] = ALIGNMENT

    device: CudaDevice

    @property
    def name(self) -> str:
        """As `covan_mlir.lowering.targets.parse` has it, without the kind."""
        return self.device.title

    def rates(self, chain: Chain) -> Rates:
        """The device's, for all chains."""
        return self.device.rates

    @property
    def integer_lanes(self) -> int | None:
        """Matrix instructions multiply them, which windows over one channel have no use for."""
        return 0 if available() else None

    def unable(self) -> str | None:
        """Triton compiles all of its kernels."""
        return None if available() else "Triton is not installed: pip install covan-mlir[cuda]"


def named(name: str, override: Mapping[str, str]) -> CudaTarget:
    """A GPU by its architecture (if there is no name, the first that is known), changed in what is overridden.

    Raises:
        IllegalError: there is none of this name, or it has no such number.
    """
    name = name or next(iter(DEVICES))
    if name not in DEVICES:
        raise IllegalError(f"there is no machine {name!r}: {', '.join(DEVICES)}")
    device = DEVICES[name]
    return CudaTarget(replace(device, **changes(vars(device), override, "a machine")))
