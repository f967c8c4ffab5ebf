"""A small builder over the MLIR bindings: one kernel's function, its constants, arithmetic, loops and memory.

Values are MLIR values. Floating-point operations may be contracted into fused multiply-adds and nothing else: no
operation here assumes the absence of NaN or infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, memref, scf, vector

from covan_mlir.lowering.kernels.cpu.executable import context, first_named, shell
from covan_mlir.lowering.kernels.cpu.indices import Indices
from covan_mlir.lowering.kernels.kernel import Operand
from covan_mlir.machine.elements import bits

Value = Any
"""An ``ir.Value``; the bindings have no types that a checker could use."""

Size = Any
"""The size of an axis: an ``int``, or the index value that holds it at run time."""

_CONTRACT = arith.FastMathFlags.contract


class KernelBuilder:
    """The function of one kernel, being written.

    Attributes:
        lanes: elements per vector; all vectors of a kernel have as many.
        workgroup: number of the workgroup.
        memory: the operands' memory, flat.
        extents: sizes that are known at run time only, by axis.
        stages: halves that are read as scalars are widened into scratch beforehand.
        exact: every operation is rounded as it is written; no compiler takes ``(x + c) - c`` for ``x``.
        masks: stores of some lanes are single instructions; else those of the first lanes are stores of fewer lanes.
        narrow_masks: loads of some lanes are, of elements of 8 and 16 bits; else they are none where all lanes are
            loaded.
    """

    stages = True
    exact = True
    masks = True
    narrow_masks = True

    def __init__(
        self,
        name: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        lanes: int,
        extents: Sequence[str] = (),
    ) -> None:
        self.lanes = lanes
        self.context = context()
        self._constants: dict[tuple[Any, ...], Value] = {}
        self._indices = Indices(self.index)
        self._prefixes: dict[Value, Value] = {}
        with self.context, ir.Location.unknown():
            self.module = ir.Module.parse(shell(name, inputs, outputs, extents))
            self._block = first_named(self.module.operation, "func.func").regions[0].blocks[0]
            results: dict[str, list[Value]] = {}
            for op in self._block:
                results.setdefault(op.operation.name, []).extend(op.operation.results)
            (self.workgroup,) = results["hal.interface.workgroup.id"]
            names = [operand.name for operand in (*inputs, *outputs)]
            self.memory = dict(zip(names, results["hal.interface.binding.subspan"], strict=True))
            self.extents = dict(zip(extents, results.get("arith.index_castui", []), strict=True))
            self._begin()

    def _begin(self) -> None:
        """Writes what the function begins with."""

    def write(self, body: Callable[[], None], workgroups: Callable[[Mapping[str, Value]], Size]) -> str:
        """Writes the function with ``body``. -> the module as text.

        Args:
            workgroups: the number of workgroups, of the sizes that are known at run time only.
        """
        with self.context, ir.Location.unknown():
            with ir.InsertionPoint(self._terminator()):
                body()
            self._erase_unused()
            self._count(workgroups)
            self.module.operation.verify()
        # Never shortened, whatever the process was told about printing: the text is compiled.
        return str(self.module.operation.get_asm(large_elements_limit=1 << 30))

    @contextmanager
    def numbered(self, workgroup: Value) -> Iterator[None]:
        """What is written meanwhile takes itself for another workgroup."""
        before, self.workgroup = self.workgroup, workgroup
        try:
            yield
        finally:
            self.workgroup = before

    def _terminator(self) -> Any:
        return self._block.operations[len(self._block.operations) - 1]

    def _grid(self, count: Size) -> tuple[Size, Size]:
        """Workgroups along x and y."""
        return count, 1

    def _erase_unused(self) -> None:
        """Index values that only led to others, whose normal forms do without them, and constants of those."""
        self._indices.erase_unused()
        for constant in self._constants.values():
            if next(iter(constant.uses), None) is None:
                constant.owner.operation.erase()

    def _count(self, workgroups: Callable[[Mapping[str, Value]], Size]) -> None:
        # A function of its own, with constants of its own: what the host asks before it dispatches.
        self._block = first_named(self.module.operation, "hal.executable.export").regions[0].blocks[0]
        self._constants = {}
        self._indices = Indices(self.index)
        returned = self._terminator()
        with ir.InsertionPoint(returned):
            count = workgroups(dict(zip(self.extents, list(self._block.arguments)[1:], strict=True)))
            for n, size in enumerate(self._grid(count)):
                returned.operation.operands[n] = self.size(size)

    # Types and constants

    def type(self, dtype: str) -> Any:
        """The scalar type of an element type's name."""
        if dtype == "index":
            return ir.IndexType.get()
        floats = {"f64": ir.F64Type, "f32": ir.F32Type, "f16": ir.F16Type, "bf16": ir.BF16Type}
        return floats[dtype].get() if dtype in floats else ir.IntegerType.get_signless(int(dtype[1:]))

    def vector_type(self, dtype: str, lanes: int = 0) -> Any:
        """The vector type of an element type."""
        return ir.VectorType.get([lanes or self.lanes], self.type(dtype))

    def constant(self, value: float | int, dtype: str) -> Value:
        """A scalar constant, once per function."""
        return self._constant(value, dtype, splat=False)

    def splat(self, value: float | int, dtype: str) -> Value:
        """A vector constant, once per function."""
        return self._constant(value, dtype, splat=True)

    def _constant(self, value: float | int, dtype: str, *, splat: bool) -> Value:
        key = (repr(value), dtype, splat)
        if key not in self._constants:
            scalar = self.type(dtype)
            kind = self.vector_type(dtype) if splat else scalar
            attribute = (
                ir.FloatAttr.get(scalar, float(value)) if dtype[0] in "fb" else ir.IntegerAttr.get(scalar, int(value))
            )
            if splat:
                attribute = ir.DenseElementsAttr.get_splat(kind, attribute)
            with ir.InsertionPoint.at_block_begin(self._block):
                self._constants[key] = arith.constant(kind, attribute)
            if dtype == "index" and not splat:
                self._indices.known(self._constants[key], int(value))
        return self._constants[key]

    def like(self, value: float | int, other: Value) -> Value:
        """A constant of the type of another value."""
        return (
            self.splat(value, self.dtype(other)) if self.is_vector(other) else self.constant(value, self.dtype(other))
        )

    def index(self, value: int) -> Value:
        """An index constant."""
        return self.constant(value, "index")

    def is_vector(self, value: Value) -> bool:
        """Whether a value is a vector."""
        return isinstance(value.type, ir.VectorType)

    def dtype(self, value: Value) -> str:
        """Element type of a scalar or vector."""
        return str(value.type.element_type if self.is_vector(value) else value.type)

    def iota(self, step: int = 1, dtype: str = "i32") -> Value:
        """``0, step, 2 step, ...`` as a vector."""
        key = ("iota", step, dtype)
        if key not in self._constants:
            kind = self.vector_type(dtype)
            values = [ir.IntegerAttr.get(self.type(dtype), n * step) for n in range(self.lanes)]
            with ir.InsertionPoint.at_block_begin(self._block):
                self._constants[key] = arith.constant(kind, ir.DenseElementsAttr.get(values, kind))
        return self._constants[key]

    # Arithmetic

    def op(self, name: str, *args: Value) -> Value:
        """An operation of the arith dialect; floating-point ones may be contracted."""
        if name in ("addi", "subi") and isinstance(args[0].type, ir.IndexType):
            return self._indices.add(*args) if name == "addi" else self._indices.sub(*args)
        build = getattr(arith, name)
        if name in ("addf", "subf", "mulf"):
            return build(*args, fastmath=_CONTRACT)
        if name in ("maximumf", "minimumf"):
            return build(*args, fastmath=arith.FastMathFlags.nsz)
        return build(*args)

    def cast(self, name: str, value: Value, dtype: str) -> Value:
        """A conversion to another element type."""
        kind = self.vector_type(dtype) if self.is_vector(value) else self.type(dtype)
        return getattr(arith, name)(kind, value)

    def add(self, *values: Value | int) -> Value:
        """Sum of indices."""
        return self._indices.add(*values)

    def mul(self, value: Size, factor: Size) -> Size:
        """The product of two indices; numbers are folded."""
        if isinstance(value, int) and isinstance(factor, int):
            return value * factor
        return self._indices.mul(value, factor)

    def product(self, sizes: Iterable[Size]) -> Size:
        """The product of some sizes; a number if all of them are."""
        total: Size = 1
        for size in sizes:
            total = self.mul(total, size)
        return total

    def divmod(self, value: Value, by: Size) -> tuple[Value, Value]:
        """Quotient and remainder of an index that is not negative."""
        return self._indices.divmod(value, by)

    def ceildiv(self, value: Size, by: int) -> Size:
        """How many times ``by`` it takes to hold a size; a number if the size is one."""
        return -(-value // by) if isinstance(value, int) else self.divmod(self.add(value, by - 1), by)[0]

    def size(self, value: Size) -> Value:
        """A size as an index."""
        return self.index(value) if isinstance(value, int) else value

    def min(self, value: Value, bound: int | Value) -> Value:
        """The smaller of two indices."""
        return self._indices.extreme("minsi", value, bound)

    def max(self, value: Value, bound: int | Value) -> Value:
        """The larger of two indices."""
        return self._indices.extreme("maxsi", value, bound)

    def broadcast(self, value: Value) -> Value:
        """A scalar in every lane."""
        if self.is_vector(value):
            return value
        return vector.broadcast(self.vector_type(self.dtype(value)), value)

    # Control

    @contextmanager
    def inside(self, block: Any) -> Iterator[None]:
        """What is written meanwhile stands in the block of a region, and is seen there only."""
        with ir.InsertionPoint(block), self._indices.region():
            yield

    def loop(
        self,
        start: Value | int,
        stop: Value | int,
        step: int,
        initial: Sequence[Value],
        body: Callable[[Value, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """A counted loop with carried values. ``body`` is given the index and the values. -> the last values."""
        if isinstance(start, int) and isinstance(stop, int) and stop - start <= step:
            return list(body(self.index(start), list(initial))) if start < stop else list(initial)
        op = scf.ForOp(self.size(start), self.size(stop), self.index(step), list(initial))
        with self.inside(op.body):
            scf.YieldOp(list(body(op.induction_variable, list(op.inner_iter_args))))
        return list(op.results)

    def branch(self, condition: Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """One of two pieces of code."""
        op = scf.IfOp(condition, has_else=True)
        for block, body in ((op.then_block, then), (op.else_block, otherwise)):
            with self.inside(block):
                body()
                scf.YieldOp([])

    def either(self, kind: Any, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        """A value of a type that one of two pieces of code gives."""
        op = scf.IfOp(condition, [kind], has_else=True)
        for block, body in ((op.then_block, then), (op.else_block, otherwise)):
            with self.inside(block):
                scf.YieldOp([body()])
        return op.results[0]

    def replaced(self, condition: Value, values: Sequence[Value], body: Callable[[], Sequence[Value]]) -> list[Value]:
        """Values, or what ``body`` makes of them where a condition holds."""
        op = scf.IfOp(condition, [value.type for value in values], has_else=True)
        with self.inside(op.then_block):
            scf.YieldOp(list(body()))
        with self.inside(op.else_block):
            scf.YieldOp(list(values))
        return list(op.results)

    def spans(
        self,
        start: int,
        stop: int,
        step: int,
        initial: Sequence[Value],
        body: Callable[[Value, list[Value], int], Sequence[Value]],
    ) -> list[Value]:
        """A loop whose last, shorter step is written separately. ``body`` is also given the length of its step."""
        whole = start + (stop - start) // step * step
        values = list(initial)
        if whole - start == step:
            values = list(body(self.index(start), values, step))
        elif whole > start:
            values = self.loop(start, whole, step, values, lambda n, v: body(n, v, step))
        if whole < stop:
            values = list(body(self.index(whole), values, stop - whole))
        return values

    def open_spans(
        self,
        stop: Value,
        step: int,
        initial: Sequence[Value],
        body: Callable[[Value, list[Value], Size], Sequence[Value]],
    ) -> list[Value]:
        """A loop from 0 to a bound known at run time only: whole steps, then one vector after the other.

        ``body`` is also given the length of a whole step, or, as a value, how much is left.
        """
        whole = self.mul(self.divmod(stop, step)[0], step)
        values = self.loop(0, whole, step, initial, lambda n, v: body(n, v, step))
        return self.loop(whole, stop, self.lanes, values, lambda n, v: body(n, v, arith.subi(stop, n)))

    # Memory

    def scratch(self, elements: int, dtype: str) -> Value:
        """Memory in the stack frame."""
        with ir.InsertionPoint(self._block.operations[1]):
            return memref.alloca(ir.MemRefType.get([elements], self.type(dtype)), [], [], alignment=64)

    def scalar(self, memory: Value, at: Value) -> Value:
        """One element."""
        return memref.load(memory, [at])

    def set_scalar(self, value: Value, memory: Value, at: Value) -> None:
        """Writes one element."""
        memref.store(value, memory, [at])

    def load(self, memory: Value, at: Value, valid: Value | None = None) -> Value:
        """A vector of consecutive elements; those that are not valid are 0 and not touched."""
        dtype = str(memory.type.element_type)
        kind = self.vector_type(dtype)
        if valid is None:
            return vector.load(kind, memory, [at])

        def some() -> Value:
            return vector.maskedload(kind, memory, [at], valid, self.splat(0, dtype))

        if self.narrow_masks or bits(dtype) >= 32:
            return some()
        every = vector.reduction(self.type("i1"), vector.CombiningKind.AND, valid)
        return self.either(kind, every, lambda: vector.load(kind, memory, [at]), some)

    def store(
        self, value: Value, memory: Value, at: Value, valid: Value | None = None, nontemporal: bool = False
    ) -> None:
        """Writes consecutive elements, the valid ones."""
        if valid is None:
            vector.store(value, memory, [at], nontemporal=nontemporal)
        elif self.masks or valid not in self._prefixes:
            vector.maskedstore(memory, [at], valid, value)
        else:
            self._store_some(value, memory, at, self._prefixes[valid])

    def _store_some(self, value: Value, memory: Value, at: Value, count: Value) -> None:
        """Writes the first lanes of a vector: by one store, or by stores of half as many lanes each."""

        def pieces() -> None:
            rest, begin, width = value, at, self.lanes // 2
            while width:
                there = arith.andi(count, self.index(width))
                op = scf.IfOp(self.below(self.index(0), there), [rest.type, begin.type], has_else=True)
                with self.inside(op.then_block):
                    if width > 1:
                        vector.store(self.shuffle(rest, rest, range(width)), memory, [begin])
                    else:
                        memref.store(self.lane(rest, 0), memory, [begin])
                    behind = [(lane + width) % self.lanes for lane in range(self.lanes)]
                    scf.YieldOp([self.shuffle(rest, rest, behind), self.add(begin, width)])
                with self.inside(op.else_block):
                    scf.YieldOp([rest, begin])
                rest, begin = op.results
                width //= 2

        def some() -> None:
            self.branch(self.below(self.index(0), count), pieces, lambda: None)

        self.branch(self.below(count, self.lanes), some, lambda: vector.store(value, memory, [at]))

    def prefetch(self, memory: Value, at: Value, *, near: bool = True) -> None:
        """Asks for the cache line of an element to be read soon; it may lie outside of the memory.

        Args:
            near: into the first cache; else into the second one.
        """
        memref.prefetch(memory, [at], False, 3 if near else 2, True)

    def prefix(self, count: int | Value) -> Value:
        """A mask with the first ``count`` lanes set."""
        n = self.index(count) if isinstance(count, int) else count
        mask = vector.create_mask(self.vector_type("i1"), [n])
        self._prefixes[mask] = n
        return mask

    def lane(self, value: Value, number: int) -> Value:
        """One lane."""
        return vector.extract(value, [], [number])

    def pack(self, values: Sequence[Value]) -> Value:
        """A vector of some scalars, the first one once more in the lanes that are left."""
        packed = self.broadcast(values[0])
        for number, value in enumerate(values[1:], 1):
            packed = vector.insert(value, packed, [], [number])
        return packed

    def any(self, mask: Value) -> Value:
        """Whether any lane of a mask is set."""
        return vector.reduction(self.type("i1"), vector.CombiningKind.OR, mask)

    def gather(self, memory: Value, base: Value, offsets: Value, valid: Value | None) -> Value:
        """Elements at ``base + offsets``."""
        dtype = str(memory.type.element_type)
        mask = valid if valid is not None else self.splat(1, "i1")
        return vector.gather(self.vector_type(dtype), memory, [base], offsets, mask, self.splat(0, dtype))

    def scatter(self, value: Value, memory: Value, base: Value, distance: Size, valid: Value | None) -> None:
        """Writes elements ``distance`` apart; consecutive ones as one."""
        if isinstance(distance, int) and distance == 1:
            self.store(value, memory, base, valid)
            return
        mask = valid if valid is not None else self.splat(1, "i1")
        vector.scatter(None, memory, [base], self.offsets(distance), mask, value)

    def offsets(self, distance: Size) -> Value:
        """Where elements lie that are ``distance`` apart."""
        if isinstance(distance, int):
            return self.iota(distance)
        return self.op("muli", self.broadcast(distance), self.iota(dtype="index"))

    def nonzero(self, value: Value) -> Value:
        """Which integers are not 0."""
        return arith.cmpi(arith.CmpIPredicate.ne, value, self.like(0, value))

    def below(self, value: Value, bound: Size) -> Value:
        """Whether an index is below a bound."""
        return arith.cmpi(arith.CmpIPredicate.slt, value, self.size(bound))

    def within(self, value: Value, bound: int) -> Value:
        """Whether an index is not negative, and below a bound."""
        # As numbers without a sign, negative ones are large.
        return arith.cmpi(arith.CmpIPredicate.ult, value, self.index(bound))

    def shuffle(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        """Lanes picked from two vectors."""
        return vector.shuffle(a, b, list(order))
