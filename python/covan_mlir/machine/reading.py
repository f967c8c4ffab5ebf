"""What the kernel tells of the machine that this process runs on."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.words import int8_words

_CPU = Path("/sys/devices/system/cpu/cpu0")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(1)
def processor() -> Mapping[str, str]:
    """What the kernel says of the first processor, by its own words; empty where it says nothing."""
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        for line in lines:  # one processor's lines are enough, and a large machine has many
            key, _, value = line.partition(":")
            if not line.strip():
                break
            facts[key.strip()] = value.strip()
    return MappingProxyType(facts)


def model() -> str:
    """What the processor is called."""
    return processor().get("model name") or platform.processor() or platform.machine()


@lru_cache(8)
def read(workers: int) -> Machine:
    """This machine: what the kernel tells, the rest from the nearest preset.

    Peak FLOP/s assume one full-width fused multiply-add per cycle: several designs split wide ones, none does less.

    Args:
        workers: its cores, as `cores` counts them.
    """
    preset = nearest()
    peak, speeds = preset.flops, preset.speeds
    clock = _clock()
    if clock:
        peak, speeds = clock * preset.vector_bits / 32 * 2, "read"
    return replace(
        preset,
        cores=workers,
        l1=_cache(0) or preset.l1,
        l2=_cache(2) or preset.l2,
        llc=_cache(3) or preset.llc,
        flops=peak,
        flops_alone=peak,
        architecture=platform.machine(),
        bf16_pairs="avx512_bf16" in _features(),
        int8_words=int8_words(platform.machine(), _features(), preset.lanes("f32")),
        speeds=speeds,
    )


def nearest() -> Machine:
    """The preset of this machine's kind."""
    if "avx512f" in _features():
        return PRESETS["avx512"]
    return PRESETS["neon" if platform.machine() in ("aarch64", "arm64") else "avx2"]


def _features() -> list[str]:
    """Of the first processor, as Linux calls them; on ARM their line has another name."""
    facts = processor()
    return (facts.get("flags") or facts.get("Features", "")).split()


def _cache(index: int) -> int | None:
    """Bytes."""
    with contextlib.suppress(OSError, ValueError):
        text = (_CPU / f"cache/index{index}/size").read_text().strip()
        unit = _UNITS.get(text[-1:])
        return int(text[:-1]) * unit if unit else int(text)
    return None


def _clock() -> float:
    """Hz, at most; 0: not known."""
    with contextlib.suppress(OSError, ValueError):
        return int((_CPU / "cpufreq/cpuinfo_max_freq").read_text()) * 1e3
    with contextlib.suppress(ValueError):
        return float(processor().get("cpu MHz", "0")) * 1e6
    return 0.0
