"""GPUs of Vulkan as data: what one invocation may keep, and how fast the device is, for predictions.

Vulkan tells limits and no speeds. Those of families are of a common product of each, from data sheets; what is unknown
counts as a mid-range GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from covan_mlir.machine.description import Machine


@dataclass(frozen=True)
class Speed:
    """How fast a device is.

    Attributes:
        flops: peak f32 FLOP/s.
        bandwidth: bytes/s of its memory.
        line: bytes that it reads from memory at least.
        dispatch: seconds that a dispatch takes besides its work.
        units: workgroups that run at the same time, at least.
        own: part of the peak that our code reaches in contractions, which nobody has tuned.
        iterations: of all loops of an invocation together; beyond, the driver silently leaves them. 0: no limit.
    """

    flops: float
    bandwidth: float
    line: int = 64
    dispatch: float = 8e-6
    units: int = 16
    own: float = 0.1
    iterations: int = 0


_FAMILIES = {
    # A CPU with two cores, whose caches hold what neighbours read next; ``own`` is measured (8 heads of 256 x 256 x 64
    # in 84 ms, IREE's own kernels 24). Mesa's gallivm counts iterations down from 65535, over all loops.
    "lavapipe": Speed(60e9, 10e9, 4, 60e-6, 2, own=0.03, iterations=65535),
    "rdna": Speed(12e12, 320e9),
    "nvidia": Speed(15e12, 450e9),
    "adreno": Speed(2e12, 50e9),
    "valhall": Speed(1e12, 40e9),
    "apple": Speed(3e12, 100e9),
}
_UNKNOWN = Speed(4e12, 150e9)

STACK = 8 << 10
"""Bytes that an invocation may keep: more would leave no room for others, or none at all."""


@dataclass(frozen=True)
class VulkanDevice:
    """A device.

    Attributes:
        types: what it has beyond 32 bits, as `covan_mlir.lowering.targets.vulkan.DeviceProfile` says.
    """

    name: str
    types: frozenset[str]
    speed: Speed

    @property
    def invocation(self) -> Machine:
        """One invocation, as the CPU's generator sees it: a machine with vectors of one element."""
        flops, bandwidth = self.speed.flops, self.speed.bandwidth
        return Machine(
            name=self.name,
            cores=1,
            vector_bits=32,
            registers=32,
            l1=0,
            l2=0,
            llc=0,
            masked=False,
            flops=flops,
            bandwidth=bandwidth,
            cache_bandwidth=bandwidth,
            elements=flops,
            flops_alone=flops,
            bandwidth_alone=bandwidth,
            stack=STACK,
        )


def device(attribute: str) -> VulkanDevice:
    """The device of a target's attribute (`covan_mlir.lowering.targets.vulkan.attribute`)."""

    def said(key: str, pattern: str) -> str:
        match = re.search(rf"\b{key} = {pattern}", attribute)
        assert match is not None, attribute
        return match.group(1)

    name = said("arch", '"([^"]*)"')
    family = "lavapipe" if "llvmpipe" in name else name
    return VulkanDevice(name, frozenset(said("compute", "([^,]*)").split("|")), _FAMILIES.get(family, _UNKNOWN))
