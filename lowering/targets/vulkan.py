"""Vulkan devices: a profile says what the generated SPIR-V may use.

The subgroup size matters most: code for another one than the device's gives silently wrong results. So the profile of
``vulkan`` is derived from the device at hand, and named ones are checked against the device before anything runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from covan_mlir.errors import TargetError
from covan_mlir.lowering.targets.target import Target


@dataclass(frozen=True)
class DeviceProfile:
    """What a device offers to compute shaders.

    Attributes:
        name: for people.
        subgroup_size: invocations that run in step.
        workgroup_size: invocations per workgroup, along each axis and in all.
        workgroup_counts: workgroups along each axis.
        shared_memory: bytes of a workgroup.
        types: what arithmetic and storage beyond 32 bits the device has, of ``fp16``, ``fp64``, ``int8``, ``int16``,
            ``int64``.
    """

    name: str
    subgroup_size: int
    workgroup_size: tuple[int, int, int]
    workgroup_invocations: int
    workgroup_counts: tuple[int, int, int]
    shared_memory: int
    types: tuple[str, ...]

    def requires(self) -> dict[str, Any]:
        """What a device must offer, as `covan_mlir.runtime.requirements` reads it."""
        return {"driver": "vulkan"} | {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


_COUNTS = (65535, 65535, 65535)
_SMALL = ("fp16", "int16", "int8")

# What all devices of a family have, from their vendors' documentation and gpuinfo.org.
PROFILES: dict[str, DeviceProfile] = {
    p.name: p
    for p in (
        DeviceProfile("lavapipe", 8, (1024, 1024, 1024), 1024, _COUNTS, 32768, _SMALL),
        DeviceProfile("rdna", 64, (1024, 1024, 1024), 1024, _COUNTS, 65536, (*_SMALL, "int64")),
        DeviceProfile("nvidia", 32, (1024, 1024, 64), 1024, _COUNTS, 49152, (*_SMALL, "int64")),
        DeviceProfile("adreno", 64, (1024, 1024, 64), 1024, _COUNTS, 32768, _SMALL),
        DeviceProfile("valhall", 16, (512, 512, 512), 512, _COUNTS, 32768, _SMALL),
        DeviceProfile("apple", 32, (1024, 1024, 1024), 1024, _COUNTS, 32768, _SMALL),
    )
}


def derived(name: str, facts: Mapping[str, Any]) -> DeviceProfile:
    """The profile of a device from what discovery found out (`covan_mlir.runtime.devices.Device.facts`)."""
    return DeviceProfile(
        name,
        int(facts["subgroup_size"]),
        tuple(facts["workgroup_size"]),
        int(facts["workgroup_invocations"]),
        tuple(facts["workgroup_counts"]),
        int(facts["shared_memory"]),
        tuple(facts["types"]),
    )


def attribute(profile: DeviceProfile) -> str:
    """The ``hal.device.targets`` element: all that IREE's code generator asks about the device."""
    compute = "|".join(["fp32", "int32", *profile.types])
    widths = sorted({32} | {int(t.lstrip("fpint")) for t in profile.types}, reverse=True)
    return (
        '#hal.device.target<"vulkan", [#hal.executable.target<"vulkan-spirv", "vulkan-spirv-fb", '
        f'{{iree_codegen.target_info = #iree_gpu.target<arch = "{profile.name}", features = "spirv:v1.6,cap:Shader", '
        f"wgp = <compute = {compute}, storage = {'|'.join(f'b{w}' for w in widths)}, "
        f"subgroup = shuffle|arithmetic, subgroup_size_choices = [{profile.subgroup_size}], "
        f"max_workgroup_sizes = {list(profile.workgroup_size)}, "
        f"max_thread_count_per_workgroup = {profile.workgroup_invocations}, "
        f"max_workgroup_memory_bytes = {profile.shared_memory}, "
        f"max_workgroup_counts = {list(profile.workgroup_counts)}>>}}>]> : !hal.device"
    )


def vulkan(rest: str) -> Target:
    """A named profile.

    Raises:
        TargetError: there is no such profile.
    """
    if rest not in PROFILES:
        near = difflib.get_close_matches(rest, PROFILES, n=1)
        hint = f"did you mean 'vulkan:{near[0]}'? " if near else ""
        said = f"unknown Vulkan profile {rest!r}" if rest else "no Vulkan device is here to compile for: name a profile"
        raise TargetError(f"{said}; {hint}known: {', '.join(f'vulkan:{name}' for name in PROFILES)}")
    return of_profile(f"vulkan:{rest}", PROFILES[rest])


def of_profile(name: str, profile: DeviceProfile) -> Target:
    """The target of a profile."""
    return Target(name, "vulkan", (), attribute(profile), profile.requires())
