"""Who writes the kernels of fused reductions for a target."""

from __future__ import annotations

import re
from dataclasses import replace

from covan_mlir.lowering.kernels.cpu.generator import kernel as cpu_kernel
from covan_mlir.lowering.kernels.cuda.generator import cuda_generator
from covan_mlir.lowering.kernels.fused import Generator
from covan_mlir.lowering.kernels.vulkan.device import device
from covan_mlir.lowering.kernels.vulkan.generator import kernel as vulkan_kernel
from covan_mlir.lowering.request import Job
from covan_mlir.lowering.targets.cpu import HOST
from covan_mlir.lowering.targets.resolve import ExecutableTarget, executable_target
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.host import host


def of(job: Job) -> Generator | None:
    """The generator of a job's target; None: reductions are left to IREE's own code generation.

    LLVM ends the process on a CPU that it does not know.
    """
    always = job.fuse == "always"
    if job.kind == "cpu":
        here = HOST in job.target_flags
        found = job.machine or (host() if here else machine(executable_target(job.target_flags)))
        return lambda chain, name, _places: cpu_kernel(found, always, chain, name)
    if job.kind == "vulkan":
        gpu = device(job.devices)
        return lambda chain, name, _places: vulkan_kernel(gpu, always, chain, name)
    if job.kind == "cuda" and (arch := re.search(r'arch = "(\w+)"', job.devices)):
        return cuda_generator(arch.group(1), always)
    return None


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
