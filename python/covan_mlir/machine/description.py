"""A CPU as data: all that is known of its size and speed is here, and nobody else keeps figures of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from covan_mlir.machine import words
from covan_mlir.machine.elements import bits
from covan_mlir.support.typed_json import JsonObject

Count = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(gt=0)]
Seconds = Annotated[float, Meta(ge=0)]

COMPILER_SHARE = 0.6
"""Part of the peak that the compiler's own code reaches in contractions: float32 products of 512^3 ran at 143 of 250
GFLOP/s on one core of a Zen 5, of 1024^3 at 150 of 234 on two cores of a Zen 4."""


class Ceilings(JsonObject, frozen=True):
    """Ceilings of a roofline (Williams, Waterman and Patterson 2009).

    Attributes:
        flops: peak float32 operations per second.
        bandwidth: bytes per second, read from and written to memory.
        threads: that run at once.
    """

    flops: Rate
    bandwidth: Rate
    threads: int

    def seconds(self, flops: float, moved: float) -> float:
        """The least time in which so much can be computed and moved."""
        return max(flops / self.flops, moved / self.bandwidth)


def _rates(ceilings: Ceilings) -> str:
    return f"{ceilings.flops / 1e9:.0f} GFLOP/s, {ceilings.bandwidth / 1e9:.0f} GB/s of memory"


@dataclass(frozen=True)
class Machine:
    """A CPU.

    Attributes:
        cores: workers that run at the same time.
        vector_bits: width of a vector register.
        registers: vector registers that a tile can use.
        l1, l2, llc: bytes of cache, per core for the first two.
        masked: masked loads and stores are single instructions.
        flops: peak f32 FLOP/s of one core (a fused multiply-add counts as two) while all compute.
        bandwidth: bytes/s that one core reads and writes in memory while all do.
        cache_bandwidth: the same in the last cache.
        elements: f32 elements/s of one core in element-wise operations on what its own caches hold.
        flops_alone, bandwidth_alone: of one core while the others are idle.
        dispatch: seconds that a dispatch takes besides its work.
        barrier: seconds that it takes to wait for all workgroups and start others.
        wake: seconds that it takes to wake IREE's threads.
        team: seconds that it takes to start the caller's threads, which are awake for a while after their last work.
        stack: bytes that a workgroup may keep in its stack frame.
        architecture: as Python's `platform.machine` spells it; empty: unknown.
        bf16_pairs: an instruction multiplies bfloat16 two by two, and adds both products to a sum of float32.
        int8_words: the instructions that multiply integers of 8 bits a word at a time, as `covan_mlir.machine.words`
            has them.
        speeds: where FLOP/s, bytes/s and elements/s come from: a processor of the kind, the processor's clock, a
            measurement, or whoever set them.
    """

    name: str
    cores: Count
    vector_bits: Count
    registers: Count
    l1: Size
    l2: Size
    llc: Size
    masked: bool
    flops: Rate
    bandwidth: Rate
    cache_bandwidth: Rate
    elements: Rate
    flops_alone: Rate
    bandwidth_alone: Rate
    dispatch: Seconds = 1e-6
    barrier: Seconds = 10e-6
    wake: Seconds = 50e-6
    team: Seconds = 2.5e-6
    stack: Count = 112 * 1024
    architecture: str = ""
    bf16_pairs: bool = False
    int8_words: tuple[words.Name, ...] = ()
    speeds: Literal["preset", "read", "measured", "given"] = "given"

    @property
    def store_masks(self) -> bool:
        """Whether a store of some lanes takes no longer than one of all: AVX2's takes some twenty cycles on AMD's
        processors, and of NEON each lane is a store of its own."""
        return self.masked and self.vector_bits >= 512

    def lanes(self, dtype: str) -> int:
        """Elements of a type in one register."""
        return self.vector_bits // bits(dtype)

    @property
    def narrow_masks(self) -> bool:
        """Whether a load of some lanes is one instruction of 8 and 16 bits, too; AVX2 has those of wider elements."""
        return self.masked and self.vector_bits >= 512

    def ceilings(self, threads: int | None = None) -> Ceilings:
        """Of one thread alone, or of so many at once; by default one on each core."""
        threads = threads or self.cores
        if threads == 1:
            return Ceilings(self.flops_alone, self.bandwidth_alone, 1)
        return Ceilings(self.flops * threads, self.bandwidth * threads, threads)

    def text(self) -> str:
        """For people, line by line."""
        one, all_cores = self.ceilings(1), self.ceilings()
        return "\n".join(
            [
                f"{self.name}, {self.cores} cores; speeds are {self.speeds}",
                f"vectors: {self.vector_bits} bits, {self.registers} registers",
                f"caches: {self.l1 >> 10} KiB and {self.l2 >> 10} KiB of each core, {self.llc >> 10} KiB of all",
                f"one core: {_rates(one)}, {self.elements / 1e9:.1f} G elements/s",
                f"all cores: {_rates(all_cores)}, {self.cache_bandwidth * self.cores / 1e9:.0f} GB/s in the last cache",
            ]
        )


def _preset(
    name: str,
    architecture: str,
    vector_bits: int,
    registers: int,
    l1: int,
    l2: int,
    flops: float,
    elements: float,
    features: tuple[str, ...] = (),
) -> Machine:
    return Machine(
        name=name,
        cores=2,
        vector_bits=vector_bits,
        registers=registers,
        l1=l1 << 10,
        l2=l2 << 10,
        llc=16 << 20,
        masked=architecture == "x86_64",
        flops=flops,
        bandwidth=12e9,
        cache_bandwidth=48e9,
        elements=elements,
        flops_alone=flops,
        bandwidth_alone=12e9,
        architecture=architecture,
        int8_words=words.int8_words(architecture, features, vector_bits // 32),
        speeds="preset",
    )


PRESETS: dict[str, Machine] = {
    "avx512": _preset("avx512", "x86_64", 512, 32, 32, 1024, 115e9, 5e9),
    "avx2": _preset("avx2", "x86_64", 256, 16, 32, 512, 90e9, 5e9, ("avx2",)),
    "neon": _preset("neon", "aarch64", 128, 32, 64, 1024, 45e9, 2.5e9),
}
"""Processors of each kind by order of magnitude: for targets that are not here, and for what this one does not tell."""

TYPICAL = PRESETS["avx512"]
"""Stands for what no speed is known of."""
