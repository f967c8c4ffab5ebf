"""What the target of a compilation is for those who write kernels for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from covan_mlir.lowering.kernels.cpu import target as cpu
from covan_mlir.lowering.kernels.cuda import target as cuda
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.overrides import IllegalError
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.vulkan import target as vulkan
from covan_mlir.lowering.kernels.vulkan.device import device as description
from covan_mlir.lowering.targets.cuda import TF32, features_of
from covan_mlir.lowering.targets.parse import parse
from covan_mlir.lowering.targets.resolve import ExecutableTarget, executable_target
from covan_mlir.lowering.targets.target import Kind, Target
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.host import host
from covan_mlir.machine.words import int8_words


def of(name: str, device: str = "") -> KernelTarget | None:
    """What a target is for kernels; None: reductions are left to IREE's own code generation.

    LLVM ends the process on a CPU that it does not know.

    Args:
        name: as `covan_mlir.lowering.targets.parse` takes it.
        device: the element of ``hal.device.targets`` of a device that has no name of its own: the one that is here.

    Raises:
        TargetError: there is no target of that name.
    """
    return cpu.CpuTarget(host()) if name == "cpu" else _elsewhere(name, device)


@lru_cache(64)
def _elsewhere(name: str, device: str) -> KernelTarget | None:
    target = parse(name) if not device else Target(name, _kind(name), (), device)
    if target.kind == "cpu":
        return cpu.CpuTarget(machine(executable_target(target.flags)))
    if target.kind == "vulkan":
        return vulkan.VulkanTarget(description(target.devices))
    architecture = re.search(r'arch = "(\w+)"', target.devices)
    if architecture is None:
        return None
    gpu = DEVICES[architecture.group(1)]
    return cuda.CudaTarget(replace(gpu, precision="tf32") if TF32 in features_of(target.name) else gpu)


def _kind(name: str) -> Kind:
    return "vulkan" if name.startswith("vulkan") else "cuda"


def names_lines(name: str) -> bool:
    """Whether code for a target has line tables that its kernels' writer fills in."""
    return name.startswith("cuda")


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


def machine(target: ExecutableTarget) -> Machine:
    """What is known of a CPU that is not here: its vectors, and the rest from the preset of its kind.

    A CPU without any of the presets' vectors takes the narrowest one: LLVM splits what is too wide for it.
    """
    if target.architecture == "x86_64":
        preset = PRESETS["avx512" if target.vector_bytes >= 64 else "avx2"]
    else:
        preset = PRESETS["neon"]
    features = [one.removeprefix("+") for one in target.features if one.startswith("+")]
    return replace(
        preset,
        name=target.cpu or preset.name,
        architecture=target.architecture,
        bf16_pairs="avx512bf16" in features,
        int8_words=int8_words(target.architecture, features, preset.lanes("f32")),
    )
