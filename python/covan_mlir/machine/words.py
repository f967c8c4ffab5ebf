"""Instructions that multiply integers of 8 bits a word of 32 bits at a time, and add all of its products to a sum of 32
bits: which there are, what has them, and what they take.

::

    sum[j] += a[4j] * b[4j] + ... + a[4j + 3] * b[4j + 3]          # vpdpbusd, sdot, usdot
    sum[j] += a[2j] * b[2j] + a[2j + 1] * b[2j + 1]                # vpmaddwd and vpaddd, of integers made 16 bits wide

All are exact. ``vpmaddubsw`` is not here: it gives sums of 16 bits, and those of two products may be too large for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Name = Literal["vpdpbusd", "sdot", "usdot", "vpmaddwd"]
"""In assembly."""

BYTES = 4
"""Integers of 8 bits in a word."""


@dataclass(frozen=True)
class Instruction:
    """One of them.

    Attributes:
        architecture: as Python's `platform.machine` spells it.
        signs: of the numbers of both factors, ``u`` without a sign and ``s`` with one; those that are made wider first
            may have either.
        bits: of a number, as it is multiplied.
        features: those of LLVM's, and Linux's name of each, one of which is enough, by sums of a vector.
    """

    architecture: str
    signs: tuple[str, ...]
    bits: int
    features: Mapping[int, Mapping[str, str]]

    def among(self, names: Collection[str], lanes: int) -> bool:
        """Whether names of features, LLVM's or Linux's, have one that gives the instruction to such vectors."""
        enough = self.features.get(lanes, {})
        return not {*enough, *enough.values()}.isdisjoint(names)


_VNNI = {"avx512vnni": "avx512_vnni"}

INSTRUCTIONS: Mapping[Name, Instruction] = {
    "vpdpbusd": Instruction("x86_64", ("us",), 8, {16: _VNNI, 8: {**_VNNI, "avxvnni": "avx_vnni"}}),
    "sdot": Instruction("aarch64", ("ss",), 8, {4: {"dotprod": "asimddp"}}),
    "usdot": Instruction("aarch64", ("us",), 8, {4: {"i8mm": "i8mm"}}),
    # Of 512 bits, it and the additions have the ports of multiply-adds, and take longer than products of floats.
    "vpmaddwd": Instruction("x86_64", ("us", "ss"), 16, {8: {"avx2": "avx2"}}),
}
"""The best first."""


def int8_words(architecture: str, features: Collection[str], lanes: int) -> tuple[Name, ...]:
    """The instructions that kernels use; empty: integers of 8 bits are multiplied as floats.

    Args:
        architecture: of a processor.
        features: that it has, as LLVM or as Linux calls them.
        lanes: sums of a vector.
    """
    able = [
        name for name, one in INSTRUCTIONS.items() if one.architecture == architecture and one.among(features, lanes)
    ]
    narrow = [name for name in able if INSTRUCTIONS[name].bits == 8]
    return tuple(narrow or able)
