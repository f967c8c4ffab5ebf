"""Arithmetic that IREE's compiler may round otherwise than the program says, kept from that where it matters.

IREE lets LLVM contract all it generates code for: ``x * y - z`` becomes one operation, rounded once. And bf16 is
computed in f32, and not rounded between two operations. In sums that is as good as any other order. Not so in what
decides something: ``x * y == z``, ``round(x * y + z)``, an integer made of a number. So no kernel contracts what such a
decision is computed from, or rounds it later; and one that carries no numbers through loops, which computes element by
element, contracts nothing: others may decide on what it gives.

Whoever wants a multiplication and an addition in one, as products of matrices do, writes that (``llvm.intr.fma``), and
is not concerned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_CONTRACTED = "llvm.fmul"
"""An addition is contracted with nothing else."""
_FLAGS = "fastmathFlags"
_DECIDING = {"llvm.fcmp", "llvm.fptosi", "llvm.fptoui", "llvm.frem", "llvm.intr.fptosi.sat", "llvm.intr.fptoui.sat"} | {
    f"llvm.intr.{name}" for name in ("floor", "ceil", "round", "roundeven", "rint", "nearbyint", "trunc")
}
_DECIDING_LATER = {"arith.cmpf", "arith.fptosi", "arith.fptoui", "arith.remf"} | {
    f"math.{name}" for name in ("floor", "ceil", "round", "roundeven", "trunc")
}
_ARITHMETIC = {f"arith.{name}" for name in ("addf", "subf", "mulf", "divf", "remf")}
_NARROWED = "arith.truncf"
_GENERIC = "linalg.generic"
_MARK = "covan.rounded"


def uncontract(state: PipelineState) -> None:
    """The step, once kernels are in LLVM's dialect, that keeps LLVM from contracting what decides something."""
    with state.session.context:
        uncontract_in(state.module)


def uncontract_in(module: Any) -> None:
    """The same of a module in LLVM's dialect, in whose context the caller is."""
    plain = ir.Attribute.parse("#llvm.fastmath<none>")
    for function in marks.walk(module.operation, "llvm.func"):
        products = marks.walk(function, _CONTRACTED)
        if not products:
            continue
        if not _carries_floats(function):
            exact: Iterable[Any] = products
        else:
            exact = [op for op in _upstream(_operands(function, _DECIDING)) if op.name == _CONTRACTED]
        for op in exact:
            op.attributes[_FLAGS] = plain


def mark_halves(state: PipelineState) -> None:
    """The step, before dispatches are formed, that marks operations on bf16 of which the program decides on the result,
    in whatever kernel."""
    with state.session.context:
        for op in _upstream(_operands(state.module.operation, _DECIDING_LATER)):
            if _is_rounded(op):
                op.attributes[_MARK] = ir.UnitAttr.get()


def round_halves(state: PipelineState) -> None:
    """The step, once dispatches are formed, that rounds what was marked.

    IREE turns all bf16 into f32, and what rounds into nothing. So the bits are rounded. Before::

        %0 = arith.mulf %x, %y {covan.rounded} : bf16
        %1 = math.floor %0 : bf16

    After::

        %2 = arith.extf %x : bf16 to f32
        %3 = arith.extf %y : bf16 to f32
        %4 = arith.mulf %2, %3 : f32
        %5 = ...                       : f32      # the nearest number of which the last 16 bits are zero
        %0 = arith.truncf %5 : f32 to bf16
        %1 = math.floor %0 : bf16
    """
    with state.session.context:
        for op in [op for op in marks.walk(state.module.operation, "arith.") if _MARK in op.attributes]:
            with op.location, ir.InsertionPoint(op):
                rounded = arith.truncf(op.results[0].type, _as_bf16(_in_f32(op)))
            op.results[0].replace_all_uses_with(rounded)
            op.erase()


def _in_f32(op: Any) -> Any:
    """What an operation gives before it is rounded to bf16."""
    if op.name == _NARROWED:
        return op.operands[0]
    wide = ir.F32Type.get()
    return ir.Operation.create(op.name, [wide], [arith.extf(wide, operand) for operand in op.operands]).result


def _as_bf16(x: Any) -> Any:
    """A number of single precision as the nearest one that bf16 has, of two the even one."""
    i32 = ir.IntegerType.get_signless(32)

    def number(value: int) -> Any:
        return arith.constant(i32, value)

    bits = arith.bitcast(i32, x)
    odd = arith.andi(arith.shrui(bits, number(16)), number(1))
    rounded = arith.andi(arith.addi(arith.addi(bits, number(0x7FFF)), odd), number(-0x10000))
    is_nan = arith.cmpf(arith.CmpFPredicate.UNO, x, x)
    return arith.select(is_nan, x, arith.bitcast(x.type, rounded))


def _is_rounded(op: Any) -> bool:
    if op.name == _NARROWED:
        return isinstance(op.results[0].type, ir.BF16Type) and isinstance(op.operands[0].type, ir.F32Type)
    return op.name in _ARITHMETIC and isinstance(op.results[0].type, ir.BF16Type)


def _operands(root: Any, names: set[str]) -> Iterator[Any]:
    """What decisions are made on."""
    for op in marks.walk(root, *names):
        if op.name in names:
            yield from op.operands


def _upstream(values: Iterable[Any]) -> list[Any]:
    """The operations that values are computed by, of one element each; not through sums."""
    pending, seen = list(values), dict[Any, None]()
    while pending:
        value = pending.pop()
        owner = value.owner
        if isinstance(owner, ir.Block):
            pending += _given(value, owner)
        elif owner not in seen:
            seen[owner] = None
            pending += _yielded(owner) if owner.name == _GENERIC else owner.operands
    return list(seen)


def _given(argument: Any, block: Any) -> list[Any]:
    """What the body of an operation of linalg is given as an element of."""
    op = block.owner
    return [op.operands[argument.arg_number]] if op is not None and op.name == _GENERIC else []


def _yielded(op: Any) -> list[Any]:
    """What the body of an operation of linalg gives, if it sums nothing."""
    if any("reduction" in str(kind) for kind in op.attributes["iterator_types"]):
        return []
    block = op.regions[0].blocks[0]
    return list(block.operations[len(block.operations) - 1].operands)


def _carries_floats(function: Any) -> bool:
    """Whether a function has a loop that hands numbers on: a sum."""
    blocks = [block for region in function.regions for block in region]
    return any(_is_float(argument.type) for block in blocks[1:] for argument in block.arguments)


def _is_float(kind: Any) -> bool:
    return isinstance(kind.element_type if isinstance(kind, ir.VectorType) else kind, ir.FloatType)
