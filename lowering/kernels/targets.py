"""What the target of a compilation is for those who write kernels for it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.vulkan.device import device as description
from covan_mlir.lowering.kernels.vulkan.target import VulkanTarget
from covan_mlir.lowering.targets.parse import parse
from covan_mlir.lowering.targets.resolve import ExecutableTarget, executable_target
from covan_mlir.lowering.targets.target import Kind, Target
from covan_mlir.machine.description import PRESETS, Machine, host


@lru_cache(64)
def named(name: str, device: str = "") -> KernelTarget | None:
    """What a target is for kernels; None: reductions are left to IREE's own code generation.

    LLVM ends the process on a CPU that it does not know.

    Args:
        name: as `covan_mlir.lowering.targets.parse` takes it.
        device: the element of ``hal.device.targets`` of a device that has no name of its own: the one that is here.

    Raises:
        TargetError: there is no target of that name.
    """
    target = parse(name) if not device else Target(name, _kind(name), (), device)
    if target.kind == "cpu":
        return CpuTarget(host() if name == "cpu" else machine(executable_target(target.flags)))
    if target.kind == "vulkan":
        return VulkanTarget(description(target.devices))
    architecture = re.search(r'arch = "(\w+)"', target.devices)
    return CudaTarget(DEVICES[architecture.group(1)]) if architecture else None


def _kind(name: str) -> Kind:
    return "vulkan" if name.startswith("vulkan") else "cuda"


def names_lines(name: str) -> bool:
    """Whether code for a target has line tables that its kernels' writer fills in."""
    return name.startswith("cuda")


def machine(target: ExecutableTarget) -> Machine:
    """What is known of a CPU that is not here: its vectors, and the rest from the preset of its kind.

    A CPU without any of the presets' vectors takes the narrowest one: LLVM splits what is too wide for it.
    """
    if target.architecture == "x86_64":
        preset = PRESETS["avx512" if target.vector_bytes >= 64 else "avx2"]
    else:
        preset = PRESETS["neon"]
    return replace(preset, name=target.cpu or preset.name, architecture=target.architecture)
