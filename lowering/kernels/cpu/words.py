"""Products of narrow numbers, a word of 32 bits at a time: where a machine has an instruction that adds all of a word's
products to a sum of 32 bits.

Elements that follow each other along a contracted axis are a word: two of bfloat16, four of 8 bits. A register holds as
many words as sums::

    sums[i, j] += a[i, k] * b[k, j] + a[i, k + 1] * b[k + 1, j]            # vdpbf16ps of AVX512_BF16
    sums[i, j] += a[i, k] * b[k, j] + ... + a[i, k + 3] * b[k + 3, j]      # vpdpbusd of AVX512_VNNI and AVX-VNNI
                                                                           # sdot and usdot of NEON

``vdpbf16ps`` rounds to nearest, and takes and gives denormal numbers for 0, whatever the control word says.
The others (`covan_mlir.machine.words`) are exact, as sums of 32 bits are: what is lost is a multiple of 2³². The second
factor is a weight with a sign. The first one has a sign to an instruction, or none: numbers of the other
kind are taken for 128 more or less, by their first bit, which is a constant in the sums:
``sum of a * b = sum of (a + 128) * b - 128 * sum of b``. So is a zero point (`word_offsets`).

AVX2 multiplies two numbers of 16 bits. Words of four of 8 bits are taken apart for it in registers, into those at even
places and those at odd ones, by shifts, which make them wider in the same turn, with their sign or none::

    sums[i, j] += vpmaddwd(even(a[i, k]), even(b[k, j])) + vpmaddwd(odd(a[i, k]), odd(b[k, j]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, vector

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.machine.description import Machine
from covan_mlir.machine.elements import bits
from covan_mlir.machine.words import INSTRUCTIONS

_INTRINSICS = {
    ("vdpbf16ps", 16): "llvm.x86.avx512bf16.dpbf16ps.512",
    ("vdpbf16ps", 8): "llvm.x86.avx512bf16.dpbf16ps.256",
    ("vpdpbusd", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("vpdpbusd", 8): "llvm.x86.avx512.vpdpbusd.256",  # of AVX-VNNI, too
    ("vpmaddwd", 8): "llvm.x86.avx2.pmadd.wd",
    ("sdot", 4): "llvm.aarch64.neon.sdot.v4i32.v16i8",
    ("usdot", 4): "llvm.aarch64.neon.usdot.v4i32.v16i8",
}
"""By instruction and lanes of a sum."""

OFFSET = 128
"""What numbers of 8 bits with a sign are, at least, short of having none."""
_FIRST_BITS = -(2**31) + 0x808080
"""Of each number of a word of four."""
_ALIKE = 1.5
"""Instructions on integers that a machine begins in the time of a multiply-add: it begins two of these in a cycle, and
three of those."""


@dataclass(frozen=True)
class Words:
    """Words of numbers of one type.

    Attributes:
        element: the type.
        sums: that of the sums of their products.
        instruction: that multiplies them.
        signs: of integers, those of both factors, as `covan_mlir.machine.words` has them.
        wider: numbers are made wider before they are multiplied.
    """

    element: str
    sums: str
    instruction: str
    signs: str = ""
    wider: bool = False

    @property
    def count(self) -> int:
        """Numbers of a word."""
        return 32 // bits(self.element)

    @property
    def integers(self) -> bool:
        """Whether they are."""
        return self.sums == INTEGER_SUMS

    def has_instruction(self, lanes: int) -> bool:
        """Whether there is one for vectors of so many sums."""
        return (self.instruction, lanes) in _INTRINSICS

    def turns(self, *, signed: bool) -> bool:
        """Whether integers of the first factor are taken for others, for they have a sign and are multiplied without
        one, or the other way round."""
        return self.integers and (self.signs[0] == "s") != signed

    def excess(self, *, signed: bool, zero: int) -> int:
        """What is multiplied too much of each number of the first factor.

        Args:
            signed: they have a sign.
            zero: what is taken off each before it is multiplied.
        """
        turned = OFFSET if signed else -OFFSET
        return zero + (turned if self.turns(signed=signed) else 0)

    def taken(self, rows: int, vectors: int) -> float:
        """How long the products of a word take in a register tile, in the time of a vector's multiply-adds."""
        if not self.wider:
            return 1.0
        # Two products, two additions, and shifts: of a scalar two, of a vector three.
        return (4 + 2 / vectors + 3 / rows) / _ALIKE

    def load(self, code: KernelBuilder, memory: Value, at: Value, valid: Value | None = None) -> Value:
        """A vector of consecutive words; elements that are not valid are 0 and not touched."""
        kind = code.vector_type(self.element, self.count * code.lanes)
        if valid is None:
            return vector.load(kind, memory, [at])
        zeros = vector.broadcast(kind, code.constant(0, self.element))
        return vector.maskedload(kind, memory, [at], valid, zeros)

    def prefix(self, code: KernelBuilder, count: Value) -> Value:
        """A mask of the first elements of a vector of words."""
        return vector.create_mask(code.vector_type("i1", self.count * code.lanes), [count])

    def interleaved(self, code: KernelBuilder, *rows: Value) -> Value:
        """The vector of words of as many rows' elements, a vector of sums' lanes each."""
        if len(rows) == 1:
            return rows[0]
        first, second = (self.interleaved(code, *rows[n::2]) for n in range(2))
        half = code.lanes * len(rows) // 2
        return code.shuffle(first, second, [n // 2 + n % 2 * half for n in range(2 * half)])

    def packed(self, code: KernelBuilder, value: Value) -> Value:
        """A vector of elements as one of 32-bit words."""
        return vector.bitcast(code.vector_type("i32"), value)

    def unpacked(self, code: KernelBuilder, value: Value) -> Value:
        """A vector of 32-bit words as one of elements."""
        return vector.bitcast(code.vector_type(self.element, self.count * code.lanes), value)

    def in_all_lanes(self, code: KernelBuilder, memory: Value, at: Value, *, turned: bool = False) -> Value:
        """A word in memory, in all lanes.

        Args:
            turned: as `turned` gives it.
        """
        few = vector.load(code.vector_type(self.element, self.count), memory, [at])
        word = code.broadcast(code.lane(vector.bitcast(code.vector_type("i32", 1), few), 0))
        return self.unpacked(code, self.turned(code, word) if turned else word)

    def turned(self, code: KernelBuilder, words: Value) -> Value:
        """Words of numbers of 8 bits with a sign as `OFFSET` more, without one; of those without one as less."""
        return arith.xori(words, code.splat(_FIRST_BITS, "i32"))

    def added(self, code: KernelBuilder, sums: Value, scalars: Value, vectors: Value) -> Value:
        """Sums, with all products of each word; of integers, the vectors are the weight's."""
        if not self.wider:
            return self._called(code, sums.type, (sums, scalars, vectors))
        wide = (self._apart(code, one, sign) for one, sign in zip((scalars, vectors), self.signs, strict=True))
        for first, second in zip(*wide, strict=True):
            sums = code.op("addi", sums, self._called(code, sums.type, (first, second)))
        return sums

    def _called(self, code: KernelBuilder, result: Any, operands: Sequence[Value]) -> Value:
        attributes = {
            "intrin": ir.StringAttr.get(_INTRINSICS[self.instruction, code.lanes]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
        }
        return ir.Operation.create("llvm.call_intrinsic", [result], list(operands), attributes=attributes).result

    def _apart(self, code: KernelBuilder, words: Value, sign: str) -> tuple[Value, Value]:
        """The numbers at even places of words, and those at odd ones, as integers of 16 bits."""
        pairs = vector.bitcast(code.vector_type("i16", 2 * code.lanes), words)
        eight = vector.broadcast(pairs.type, code.constant(8, "i16"))
        if sign == "s":
            return arith.shrsi(arith.shli(pairs, eight), eight), arith.shrsi(pairs, eight)
        low = vector.broadcast(pairs.type, code.constant(255, "i16"))
        return arith.andi(pairs, low), arith.shrui(pairs, eight)


INTEGER_SUMS = "i32"
"""The type of sums of products of integers."""
BF16 = Words("bf16", "f32", "vdpbf16ps")


def integer_words(machine: Machine) -> tuple[Words, ...]:
    """How a machine multiplies words of integers of 8 bits by a weight's with a sign; empty: it does not."""
    every = (
        Words("i8", INTEGER_SUMS, name, signs, wider=INSTRUCTIONS[name].bits > 8)
        for name in machine.int8_words
        for signs in INSTRUCTIONS[name].signs
    )
    return tuple(words for words in every if words.has_instruction(machine.lanes("f32")))


def fitting(every: Sequence[Words], *, signed: bool) -> Words | None:
    """Of the ways in which a machine multiplies integers, that for numbers with a sign or without one: one that takes
    them as they are, or any; None: there is none."""
    as_they_are = (words for words in every if not words.turns(signed=signed))
    return next(as_they_are, next(iter(every), None))
