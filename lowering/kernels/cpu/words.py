"""Products of narrow numbers, a word of 32 bits at a time: where a machine has an instruction that adds all of a word's
products to a sum of 32 bits.

Elements that follow each other along a contracted axis are a word: two of bfloat16, four of 8 bits. A register holds as
many words as sums::

    sums[i, j] += a[i, k] * b[k, j] + a[i, k + 1] * b[k + 1, j]            # vdpbf16ps of AVX512_BF16
    sums[i, j] += a[i, k] * b[k, j] + ... + a[i, k + 3] * b[k + 3, j]      # vpdpbusd of AVX512_VNNI

``vdpbf16ps`` rounds to nearest, and takes and gives denormal numbers for 0, whatever the control word says.
``vpdpbusd`` multiplies numbers without a sign by a weight's with one, and is exact, as sums of 32 bits are: what is
lost is a multiple of 2³². Numbers with a sign are taken for 128 more, by their first bit, which is a constant less in
the sums: ``sum of a * b = sum of (a + 128) * b - 128 * sum of b``. So is a zero point (`word_offsets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, vector

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.machine.elements import bits

_INTRINSICS = {
    ("bf16", 16): "llvm.x86.avx512bf16.dpbf16ps.512",
    ("bf16", 8): "llvm.x86.avx512bf16.dpbf16ps.256",
    ("i8", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("i8", 8): "llvm.x86.avx512.vpdpbusd.256",
}
"""By element type and lanes of a sum."""

OFFSET = 128
"""What numbers of 8 bits with a sign are, at least, short of having none."""
_FIRST_BITS = -(2**31) + 0x808080
"""Of each number of a word of four."""


@dataclass(frozen=True)
class Words:
    """Words of numbers of one type.

    Attributes:
        element: the type.
        sums: that of the sums of their products.
    """

    element: str
    sums: str

    @property
    def count(self) -> int:
        """Numbers of a word."""
        return 32 // bits(self.element)

    def has_instruction(self, lanes: int) -> bool:
        """Whether there is one for vectors of so many sums."""
        return (self.element, lanes) in _INTRINSICS

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

    def in_all_lanes(self, code: KernelBuilder, memory: Value, at: Value, *, signed: bool = False) -> Value:
        """A word in memory, in all lanes.

        Args:
            signed: of 8 bits with a sign: `OFFSET` more, without one.
        """
        few = vector.load(code.vector_type(self.element, self.count), memory, [at])
        word = code.broadcast(code.lane(vector.bitcast(code.vector_type("i32", 1), few), 0))
        return self.unpacked(code, self.offset(code, word) if signed else word)

    def offset(self, code: KernelBuilder, words: Value) -> Value:
        """Words of numbers of 8 bits with a sign as `OFFSET` more, without one."""
        return arith.xori(words, code.splat(_FIRST_BITS, "i32"))

    def added(self, code: KernelBuilder, sums: Value, scalars: Value, vectors: Value) -> Value:
        """Sums, with all products of each word; of integers, numbers without a sign are the scalars."""
        attributes = {
            "intrin": ir.StringAttr.get(_INTRINSICS[self.element, code.lanes]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([3, 0]),
        }
        operands: Sequence[Value] = [sums, scalars, vectors]
        op = ir.Operation.create("llvm.call_intrinsic", [sums.type], operands, attributes=attributes)
        return op.result


BF16 = Words("bf16", "f32")
I8 = Words("i8", "i32")
