"""What the target of a compilation is for those who write kernels for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from covan_mlir.lowering.kernels.cpu import target as cpu
from covan_mlir.lowering.kernels.cuda import target as cuda
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.overrides import IllegalError
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.vulkan import target as vulkan
from covan_mlir.lowering.kernels.vulkan.device import device
from covan_mlir.lowering.request import Job
from covan_mlir.lowering.targets.cpu import HOST
from covan_mlir.lowering.targets.resolve import ExecutableTarget, executable_target
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.host import host


def of(job: Job) -> KernelTarget | None:
    """What a job's target is for kernels; None: reductions are left to IREE's own code generation.

    LLVM ends the process on a CPU that it does not know.
    """
    if job.kind == "cpu":
        here = HOST in job.target_flags
        return cpu.CpuTarget(job.machine or (host() if here else machine(executable_target(job.target_flags))))
    if job.kind == "vulkan":
        return vulkan.VulkanTarget(device(job.devices))
    if job.kind == "cuda" and (architecture := re.search(r'arch = "(\w+)"', job.devices)):
        return cuda.CudaTarget(DEVICES[architecture.group(1)])
    return None


_NAMED = {"cpu": cpu.named, "cuda": cuda.named, "vulkan": vulkan.named}


def named(kind: str, name: str, override: Mapping[str, str]) -> KernelTarget:
    """A target by its kind and a name of its own; if that is empty, this machine, or for GPUs the first that is known.

    Args:
        override: numbers that are changed in its description.

    Raises:
        IllegalError: there is no such kind, name or number.
    """
    if kind not in _NAMED:
        raise IllegalError(f"there is no target {kind!r} with schedules: {', '.join(_NAMED)}")
    return _NAMED[kind](name, override)


def names_lines(job: Job) -> bool:
    """Whether code for a job's target has line tables that its kernels' writer fills in."""
    return job.kind == "cuda"


def machine(target: ExecutableTarget) -> Machine:
    """What is known of a CPU that is not here: its vectors, and the rest from the preset of its kind.

    A CPU without any of the presets' vectors takes the narrowest one: LLVM splits what is too wide for it.
    """
    if target.architecture == "x86_64":
        preset = PRESETS["avx512" if target.vector_bytes >= 64 else "avx2"]
    else:
        preset = PRESETS["neon"]
    return replace(preset, name=target.cpu or preset.name, architecture=target.architecture)
