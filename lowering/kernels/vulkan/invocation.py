"""The function of one invocation: what the CPU's generator writes for a workgroup, with vectors of one element.

SPIR-V has no vectors as the CPU's generator uses them. One lane is a scalar, a mask is a condition, and the rows that a
CPU's workgroup computes side by side are invocations side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, gpu, memref, scf

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value

INVOCATIONS = 64
"""Of a workgroup: a multiple of every subgroup size, and fewer than any device has at least (128)."""
MOST = 65535
"""Workgroups along each axis that every device has (Vulkan 1.3, table "Required Limits")."""

_TRANSLATION = (
    "#iree_codegen.translation_info<pipeline = #iree_gpu.spirv_pipeline<BaseLowering> "
    f"workgroup_size = [{INVOCATIONS}, 1, 1]>"
)


def _interface(name: str, dimension: int) -> Value:
    axis = ir.IntegerAttr.get(ir.IndexType.get(), dimension)
    return ir.Operation.create(name, [ir.IndexType.get()], attributes={"dimension": axis}).result


class Invocation(KernelBuilder):
    """The function of one kernel, being written; ``workgroup`` is the number of the invocation."""

    stages = False
    exact = False  # SPIR-V leaves drivers the choice, and Mesa's make use of it

    def _begin(self) -> None:
        assert self.lanes == 1
        self._block.owner.attributes["translation_info"] = ir.Attribute.parse(_TRANSLATION)
        with ir.InsertionPoint(self._terminator()):
            self._one = self.min(_interface("hal.interface.workgroup.count", 0), 1)
            grid_row = _interface("hal.interface.workgroup.id", 1)
            group = self.add(self.mul(grid_row, MOST), self.workgroup)
            self.workgroup = self.add(self.mul(group, INVOCATIONS), gpu.thread_id(gpu.Dimension.x))

    def write(self, body: Callable[[], None], workgroups: Callable[[Mapping[str, Value]], Size]) -> str:
        """Writes the function with ``body``, which is run by as many invocations as there are ``workgroups``."""

        def guarded() -> None:
            there = self.below(self.workgroup, workgroups(self.extents))
            inside = scf.IfOp(there)
            with self.inside(inside.then_block):
                body()
                scf.YieldOp([])

        return super().write(guarded, workgroups)

    def _grid(self, count: Size) -> tuple[Size, Size]:
        groups = self.ceildiv(count, INVOCATIONS)
        if isinstance(groups, int):
            return min(groups, MOST), -(-groups // MOST)
        return self.min(groups, MOST), self.ceildiv(groups, MOST)

    def loop(
        self,
        start: Value | int,
        stop: Value | int,
        step: int,
        initial: Sequence[Value],
        body: Callable[[Value, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """A counted loop with carried values, of a length that drivers do not know.

        They unroll what they know, and nested loops into code that Mesa's takes ten seconds to compile.
        """
        if isinstance(start, int) and isinstance(stop, int) and stop - start > step:
            stop = self.mul(self._one, stop)
        return super().loop(start, stop, step, initial, body)

    # Vectors of one element

    def vector_type(self, dtype: str, lanes: int = 0) -> Value:
        """The scalar type."""
        return self.type(dtype)

    def splat(self, value: float | int, dtype: str) -> Value:
        """A constant."""
        return self.constant(value, dtype)

    def is_vector(self, value: Value) -> bool:
        """Nothing is one."""
        return False

    def iota(self, step: int = 1, dtype: str = "i32") -> Value:
        """0, for there is one lane."""
        return self.constant(0, dtype)

    def broadcast(self, value: Value) -> Value:
        """The value."""
        return value

    def offsets(self, distance: Size) -> Value:
        """0, for there is one lane."""
        return self.index(0)

    def prefix(self, count: int | Value) -> Value:
        """Whether there is a first lane."""
        if isinstance(count, int):
            return self.constant(int(count > 0), "i1")
        return arith.cmpi(arith.CmpIPredicate.sgt, count, self.index(0))

    def lane(self, value: Value, number: int) -> Value:
        """The value."""
        return value

    def pack(self, values: Sequence[Value]) -> Value:
        """The only value."""
        (value,) = values
        return value

    def any(self, mask: Value) -> Value:
        """The condition."""
        return mask

    # Memory

    def scratch(self, elements: int, dtype: str) -> Value:
        """Memory of the invocation's own."""
        space = ir.Attribute.parse("#spirv.storage_class<Function>")
        with ir.InsertionPoint(self._block.operations[1]):
            return memref.alloca(ir.MemRefType.get([elements], self.type(dtype), None, space), [], [])

    def load(self, memory: Value, at: Value, valid: Value | None = None) -> Value:
        """An element; 0 and not touched if it is not valid."""
        if valid is None:
            return memref.load(memory, [at])
        kind = memory.type.element_type
        op = scf.IfOp(valid, [kind], has_else=True)
        with self.inside(op.then_block):
            scf.YieldOp([memref.load(memory, [at])])
        with self.inside(op.else_block):
            zero = ir.IntegerAttr.get(kind, 0) if isinstance(kind, ir.IntegerType) else ir.FloatAttr.get(kind, 0.0)
            scf.YieldOp([arith.constant(kind, zero)])
        return op.results[0]

    def store(
        self, value: Value, memory: Value, at: Value, valid: Value | None = None, nontemporal: bool = False
    ) -> None:
        """Writes an element if it is valid."""
        if valid is None:
            memref.store(value, memory, [at])
            return
        op = scf.IfOp(valid)
        with self.inside(op.then_block):
            memref.store(value, memory, [at])
            scf.YieldOp([])

    def gather(self, memory: Value, base: Value, offsets: Value, valid: Value | None) -> Value:
        """The element at ``base``."""
        return self.load(memory, base, valid)

    def scatter(self, value: Value, memory: Value, base: Value, distance: Size, valid: Value | None) -> None:
        """Writes the element at ``base``."""
        self.store(value, memory, base, valid)

    def shuffle(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        """The one lane that is picked, of two."""
        (lane,) = order
        return (a, b)[lane]
