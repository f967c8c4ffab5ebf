"""A GPU of Vulkan as a target of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.reductions.profitability import Rates
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.vulkan.device import Device


@dataclass(frozen=True)
class VulkanTarget(KernelTarget):
    """A GPU."""

    kind: ClassVar[str] = "vulkan"

    device: Device

    @property
    def name(self) -> str:
        """Of its profile."""
        return self.device.name

    def rates(self, chain: Chain) -> Rates:
        """IREE distributes reductions over the invocations of a workgroup."""
        speed = self.device.speed
        return Rates(speed.bandwidth, speed.flops / 2, speed.flops / 2, speed.dispatch, speed.units)
