"""Products of bfloat16, two at a time: where a machine has an instruction that adds both to a sum of float32.

Elements that follow each other along a contracted axis are a pair. A register holds as many pairs as float32s::

    sums[i, j] += a[i, k] * b[k, j] + a[i, k + 1] * b[k + 1, j]      # vdpbf16ps of AVX512_BF16

The instruction rounds to nearest, and takes and gives denormal numbers for 0, whatever the control word says.
"""

from __future__ import annotations

from collections.abc import Sequence

import iree.compiler.ir as ir
from iree.compiler.dialects import vector

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value

PAIR = 2
"""Elements that are multiplied at a time."""

_INTRINSICS = {16: "llvm.x86.avx512bf16.dpbf16ps.512", 8: "llvm.x86.avx512bf16.dpbf16ps.256"}
"""By lanes of float32."""


def has_instruction(lanes: int) -> bool:
    """Whether there is one for vectors of so many float32s."""
    return lanes in _INTRINSICS


def load(code: KernelBuilder, memory: Value, at: Value, valid: Value | None = None) -> Value:
    """A vector of consecutive pairs; elements that are not valid are 0 and not touched."""
    kind = code.vector_type("bf16", PAIR * code.lanes)
    if valid is None:
        return vector.load(kind, memory, [at])
    zeros = vector.broadcast(kind, code.constant(0.0, "bf16"))
    return vector.maskedload(kind, memory, [at], valid, zeros)


def prefix(code: KernelBuilder, count: Value) -> Value:
    """A mask of the first elements of a vector of pairs."""
    return vector.create_mask(code.vector_type("i1", PAIR * code.lanes), [count])


def interleaved(code: KernelBuilder, first: Value, second: Value) -> Value:
    """The vector of pairs of one row's elements and the next one's."""
    return code.shuffle(first, second, [n // PAIR + n % PAIR * code.lanes for n in range(PAIR * code.lanes)])


def words(code: KernelBuilder, value: Value) -> Value:
    """A vector of pairs as one of 32-bit words."""
    return vector.bitcast(code.vector_type("i32"), value)


def unpacked(code: KernelBuilder, value: Value) -> Value:
    """A vector of 32-bit words as one of pairs."""
    return vector.bitcast(code.vector_type("bf16", PAIR * code.lanes), value)


def in_all_lanes(code: KernelBuilder, memory: Value, at: Value) -> Value:
    """A pair in memory, in all lanes."""
    pair = vector.load(code.vector_type("bf16", PAIR), memory, [at])
    word = code.lane(vector.bitcast(code.vector_type("i32", 1), pair), 0)
    return unpacked(code, code.broadcast(word))


def added(code: KernelBuilder, sums: Value, scalars: Value, vectors: Value) -> Value:
    """Sums, with both products of each pair."""
    attributes = {
        "intrin": ir.StringAttr.get(_INTRINSICS[code.lanes]),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([3, 0]),
    }
    operands: Sequence[Value] = [sums, scalars, vectors]
    op = ir.Operation.create("llvm.call_intrinsic", [sums.type], operands, attributes=attributes)
    return op.result
