"""What a CPU can do, as data: the cost model and the code generator read nothing else about it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from covan_mlir.machine.elements import bits


@dataclass(frozen=True)
class Machine:
    """A CPU.

    Attributes:
        cores: workers that run at the same time.
        vector_bits: width of a vector register.
        registers: vector registers that a tile can use.
        l1, l2, llc: bytes of cache, per core for the first two.
        flops: peak f32 FLOP/s of one core (a fused multiply-add counts as two).
        bandwidth: bytes/s of one core from memory, reading and writing.
        masked: masked loads and stores are single instructions.
        stack: bytes that a workgroup may keep in its stack frame.
        architecture: as Python's `platform.machine` spells it; empty: unknown.
    """

    name: str
    cores: int
    vector_bits: int
    registers: int
    l1: int
    l2: int
    llc: int
    flops: float
    bandwidth: float
    masked: bool
    stack: int = 112 * 1024
    architecture: str = ""

    def lanes(self, dtype: str) -> int:
        """Elements of a type in one register."""
        return self.vector_bits // bits(dtype)


PRESETS: dict[str, Machine] = {
    "avx512": Machine("avx512", 2, 512, 32, 32 << 10, 1 << 20, 16 << 20, 115e9, 12e9, True, architecture="x86_64"),
    "avx2": Machine("avx2", 2, 256, 16, 32 << 10, 512 << 10, 16 << 20, 90e9, 12e9, True, architecture="x86_64"),
    "neon": Machine("neon", 2, 128, 32, 64 << 10, 1 << 20, 16 << 20, 45e9, 12e9, False, architecture="aarch64"),
}


def _cache(index: int) -> int | None:
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text().strip()
    except OSError:
        return None
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:])
    return int(text[:-1]) * unit if unit else int(text)


def _features() -> tuple[set[str], float]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set(), 0.0
    rows = dict(reversed([(k.strip(), v.strip()) for k, _, v in (line.partition(":") for line in lines)]))
    features = set((rows.get("flags") or rows.get("Features") or "").split())
    return features, float(rows.get("cpu MHz", "0")) * 1e6


@lru_cache(1)
def host() -> Machine:
    """The machine that this process runs on: what the kernel tells, the rest from the nearest preset.

    Peak FLOP/s assume one full-width fused multiply-add per cycle: several designs split wide ones, none does less.
    """
    features, clock = _features()
    if "avx512f" in features:
        preset = PRESETS["avx512"]
    elif "avx2" in features:
        preset = PRESETS["avx2"]
    else:
        preset = PRESETS["neon"] if platform.machine() in ("aarch64", "arm64") else PRESETS["avx2"]
    peak = clock * preset.vector_bits / 32 * 2 if clock else preset.flops
    return Machine(
        name=preset.name,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        vector_bits=preset.vector_bits,
        registers=preset.registers,
        l1=_cache(0) or preset.l1,
        l2=_cache(2) or preset.l2,
        llc=_cache(3) or preset.llc,
        flops=peak,
        bandwidth=preset.bandwidth,
        masked=preset.masked,
        architecture=platform.machine(),
    )
