"""Whether a device can run a program: what the program requires against what discovery found out."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

# Linux names some features otherwise than LLVM does.
_LINUX_NAMES = {
    "sse3": "pni",
    "lzcnt": "abm",
    "bmi": "bmi1",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
} | {f"avx512{x}": f"avx512_{x}" for x in ("bf16", "bitalg", "fp16", "vbmi2", "vnni", "vp2intersect", "vpopcntdq")}
_LINUX_NAMES |= {"avxvnni": "avx_vnni", "neon": "asimd", "dotprod": "asimddp"}
_LINUX_NAMES |= {"fullfp16": "asimdhp", "lse": "atomics", "rdm": "asimdrdm", "crc": "crc32", "fp-armv8": "fp"}

# Features that give instructions to ordinary code. Others (keys, timers, cache control) do not matter to ours.
_INSTRUCTIONS = {
    *("sse3", "ssse3", "sse4.1", "sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "popcnt", "movbe"),
    *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2"),
    *("avx512bitalg", "avx512bf16", "avx512fp16", "avx512vnni", "avx512vpopcntdq", "avx512vp2intersect"),
    *("avxvnni", "gfni", "vaes", "vpclmulqdq", "amx-tile", "amx-int8", "amx-bf16", "adx"),
    *("neon", "fp-armv8", "dotprod", "fullfp16", "bf16", "i8mm", "lse", "rdm", "sve", "sve2", "crc"),
}


def instructions(features: Iterable[str] | None = None) -> list[str]:
    """Of the features that a compiler was allowed to use, those that a machine could lack and code trip over; all
    there are, if none are given."""
    if features is None:
        return sorted(_INSTRUCTIONS)
    return sorted({f.removeprefix("+") for f in features if not f.startswith("-")} & _INSTRUCTIONS)


def linux_name(feature: str) -> str:
    """How Linux calls a feature of LLVM's."""
    return _LINUX_NAMES.get(feature, feature.replace("-", "_"))


@cache
def cpu_features() -> frozenset[str] | None:
    """Features of this machine's CPU as Linux names them; None where it does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return None


def missing(requires: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """What a device lacks, in words; empty: the program runs there.

    Args:
        requires: of the artifact's target, see `covan_mlir.lowering.targets.Target.requires`.
        facts: of the device, see `covan_mlir.runtime.devices.Device.facts`; unused for CPUs, where this one counts.
    """
    check = {"local": _cpu, "vulkan": _vulkan, "cuda": _cuda}.get(str(requires.get("driver", "local")))
    if check is None:
        return [f"a device of the unknown driver {requires['driver']!r}"]
    return list(check(requires, facts))


def _cpu(requires: Mapping[str, Any], _facts: Mapping[str, Any]) -> Iterable[str]:
    wanted = requires.get("architecture")
    here = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if wanted and wanted != here:
        yield f"a CPU of architecture {wanted} (this one is {here})"
        return
    have = cpu_features()
    if have is None:
        return
    lacking = [f for f in requires.get("features", ()) if linux_name(f) not in have]
    if lacking:
        yield f"the CPU instructions {', '.join(lacking)}"


def _vulkan(requires: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterable[str]:
    size = requires["subgroup_size"]
    low, high = facts.get("subgroup_sizes", (facts["subgroup_size"], facts["subgroup_size"]))
    if not low <= size <= high:
        yield f"subgroups of {size} invocations (the device has {f'{low} to {high}' if low != high else low})"
    if lacking := sorted(set(requires["types"]) - set(facts["types"])):
        yield f"the types {', '.join(lacking)}"
    for key, unit in (
        ("shared_memory", "bytes of shared memory"),
        ("workgroup_invocations", "invocations a workgroup"),
    ):
        if requires[key] > facts[key]:
            yield f"{requires[key]} {unit} (the device has {facts[key]})"


def _cuda(requires: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterable[str]:
    wanted, have = list(requires["capability"]), list(facts.get("capability", ()))
    if not have:
        return  # the driver does not tell; it refuses the code itself
    if (have != wanted) if requires.get("exact") else (have < wanted):
        exactly = "exactly " if requires.get("exact") else ""
        yield f"compute capability {exactly}{'.'.join(map(str, wanted))} (the device has {'.'.join(map(str, have))})"
