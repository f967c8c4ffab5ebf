"""GPUs as data: the cost model reads nothing else about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from covan_mlir.lowering.kernels.reductions.profitability import Rates
from covan_mlir.lowering.targets.cuda import ARCHITECTURES, Architecture


@dataclass(frozen=True)
class CudaDevice:
    """A GPU of an architecture.

    Attributes:
        multiprocessors: of the largest product with that architecture.
        flops: peak FLOP/s of its matrix instructions on half precision, f32 accumulation, dense.
        bandwidth: bytes/s of its memory.
        plain: peak f32 FLOP/s without matrix instructions.
        launch: seconds that a launch takes besides its work: of a stream that is kept busy, by the vendor's figures.
        precision: of matrix products of f32: made of three of TF32 each, they round as f32 does; of one, their operands
            have 10 bits behind the point.
    """

    architecture: Architecture
    multiprocessors: int
    flops: float
    bandwidth: float
    plain: float
    launch: float = 3e-6
    precision: Literal["tf32x3", "tf32"] = "tf32x3"

    @property
    def name(self) -> str:
        """As the compilers call it: ``sm_90a``."""
        return self.architecture.name

    @property
    def title(self) -> str:
        """Of its architecture, and how it multiplies f32 where that is not as exactly as it can: ``sm_90a+tf32``."""
        return self.name if self.precision == "tf32x3" else f"{self.name}+{self.precision}"

    @property
    def capability(self) -> int:
        """Compute capability as one number: 90."""
        major, minor = self.architecture.capability
        return 10 * major + minor

    @property
    def synchronous(self) -> float:
        """Peak FLOP/s of the matrix instructions that a warp waits for."""
        return self.flops * 2 / 3 if self.architecture.wgmma else self.flops

    @property
    def rates(self) -> Rates:
        """What IREE's own code reaches, which has no matrix instructions (`covan_mlir.lowering.targets.cuda`).

        Measured on an H100 with ``bench/gpu_programs.py``: products and convolutions of all types at 2 to 5 TFLOP/s,
        rows reduced at 50 to 250 thousand million elements a second, of peaks of 67 TFLOP/s.
        """
        return Rates(self.bandwidth, self.plain / 20, self.plain / 200, self.launch, self.multiprocessors)


# From the vendor's data sheets: A100 80 GB SXM, A10, L40S, H200 SXM.
_PRODUCTS = {
    "sm_80": (108, 312e12, 2.0e12, 19.5e12),
    "sm_86": (72, 125e12, 0.6e12, 31.2e12),
    "sm_89": (142, 362e12, 0.86e12, 91.6e12),
    "sm_90": (132, 660e12, 4.8e12, 67e12),  # without the asynchronous matrix instructions
    "sm_90a": (132, 989e12, 4.8e12, 67e12),
}

DEVICES: dict[str, CudaDevice] = {name: CudaDevice(ARCHITECTURES[name], *facts) for name, facts in _PRODUCTS.items()}
