"""NVIDIA GPUs by compute capability (CUDA C++ Programming Guide, table of technical specifications)."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from covan_mlir.errors import TargetError
from covan_mlir.lowering.targets.target import Target

# PTX of ISA 8.0 is read by drivers from CUDA 12.0 (end of 2022) on; sm_90a needs no more.
PTX = 80
TF32 = "tf32"
"""Behind a name, ``cuda:sm_90+tf32``: matrix products of f32 round their operands to TF32."""


@dataclass(frozen=True)
class Architecture:
    """A compute capability.

    Attributes:
        capability: major and minor.
        shared_memory: bytes that a block can have (opt-in maximum, dynamic).
        block_shared_memory: bytes that a block can have without opting in, which is what IREE's own kernels use.
        registers: 32-bit registers of a multiprocessor.
        warps: resident at the same time on a multiprocessor.
        wgmma: has the asynchronous matrix instructions of Hopper (only under the name that ends in ``a``).
        tf32, bf16: matrix instructions on these types.
    """

    name: str
    capability: tuple[int, int]
    shared_memory: int
    warps: int
    wgmma: bool = False
    block_shared_memory: int = 48 << 10
    registers: int = 65536
    tf32: bool = True
    bf16: bool = True

    def requires(self) -> dict[str, Any]:
        """What a device must offer, as `covan_mlir.runtime.requirements` reads it."""
        # What is named with an ``a`` runs on this compute capability only; else newer devices run it, too.
        return {"driver": "cuda", "capability": list(self.capability), "exact": self.name.endswith("a")}


ARCHITECTURES: dict[str, Architecture] = {
    a.name: a
    for a in (
        Architecture("sm_80", (8, 0), 163 << 10, 64),
        Architecture("sm_86", (8, 6), 99 << 10, 48),
        Architecture("sm_89", (8, 9), 99 << 10, 48),
        Architecture("sm_90", (9, 0), 227 << 10, 64),
        Architecture("sm_90a", (9, 0), 227 << 10, 64, wgmma=True),
    )
}


def attribute(architecture: Architecture) -> str:
    """The ``hal.device.targets`` element: all that IREE's code generator asks about the device.

    It is told of no matrix instructions: what it writes with them gives wrong results for some products of f16, which
    ones neither their sizes nor their order in memory tell (docs/targets.md). Products have kernels of covan's own.
    """
    features = f"+ptx{PTX}"
    return (
        '#hal.device.target<"cuda", [#hal.executable.target<"cuda", "cuda-nvptx-fb", {iree_codegen.target_info = '
        f'#iree_gpu.target<arch = "{architecture.name}", features = "{features}", wgp = <'
        "compute = fp64|fp32|fp16|int64|int32|int16|int8, storage = b64|b32|b16|b8, "
        f"subgroup = shuffle|arithmetic, dot = dp4xi8toi32, mma = [], subgroup_size_choices = [32], "
        "max_workgroup_sizes = [1024, 1024, 1024], max_thread_count_per_workgroup = 1024, "
        f"max_workgroup_memory_bytes = {architecture.block_shared_memory}, "
        "max_workgroup_counts = [2147483647, 65535, 65535]>>}>]> : !hal.device"
    )


def features_of(name: str) -> tuple[str, ...]:
    """What stands behind the architecture in a target's name."""
    return tuple(name.split("+")[1:])


def cuda(rest: str) -> Target:
    """``sm_80``, ``sm_90+tf32`` and so on.

    Raises:
        TargetError: the architecture is unknown or not given, or what is behind it is no feature.
    """
    name, *features = rest.split("+")
    if name not in ARCHITECTURES:
        near = difflib.get_close_matches(name, ARCHITECTURES, n=1)
        hint = f"did you mean 'cuda:{near[0]}'? " if near else ""
        said = f"unknown CUDA architecture {name!r}" if name else "no CUDA device is here to compile for: name one"
        raise TargetError(f"{said}; {hint}known: {', '.join(f'cuda:{name}' for name in ARCHITECTURES)}")
    if features not in ([], [TF32]):
        raise TargetError(f"cuda:{rest} names what is no feature of a target; known: cuda:{name}+{TF32}")
    architecture = ARCHITECTURES[name]
    return Target(f"cuda:{rest}", "cuda", (), attribute(architecture), architecture.requires())
