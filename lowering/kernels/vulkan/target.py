"""A GPU of Vulkan as a target of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.overrides import IllegalError, changes
from covan_mlir.lowering.kernels.reductions.profitability import Rates
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.vulkan.device import VulkanDevice, device
from covan_mlir.lowering.targets.vulkan import PROFILES, attribute


@dataclass(frozen=True)
class VulkanTarget(KernelTarget):
    """A GPU."""

    kind: ClassVar[str] = "vulkan"
    alignment: ClassVar[int] = 64  # where devices have storage buffers begin; IREE lays out allocations for no more

    device: VulkanDevice

    @property
    def name(self) -> str:
        """Of its profile."""
        return self.device.name

    def rates(self, chain: Chain) -> Rates:
        """IREE distributes reductions over the invocations of a workgroup."""
        speed = self.device.speed
        return Rates(speed.bandwidth, speed.flops / 2, speed.flops / 2, speed.dispatch, speed.units)


def named(name: str, override: Mapping[str, str]) -> VulkanTarget:
    """A GPU by its profile (if there is no name, the first that is known), changed in what is overridden.

    Raises:
        IllegalError: there is none of this name, or it has no such number.
    """
    name = name or next(iter(PROFILES))
    if name not in PROFILES:
        raise IllegalError(f"there is no machine {name!r}: {', '.join(PROFILES)}")
    gpu = device(attribute(PROFILES[name]))
    return VulkanTarget(replace(gpu, speed=replace(gpu.speed, **changes(vars(gpu.speed), override, "a machine"))))
