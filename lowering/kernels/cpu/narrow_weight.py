"""Weights of few bits that a product of floats reads as vectors: their steps are packed, and made floats in registers.

What a step stands for may be the same for all columns' terms of a group (a scale for each 32 or 128 terms). The groups
are blocks then, and what their steps stand for is multiplied with the sums of a block::

    y[i, j] = sum over groups g of scale[j, g] * (sum over k in g of x[i, g, k] * step[j, g, k])

Steps may have no sign, and zero points: of all, of columns or of groups, which are taken off them in registers. Those
of 4 bits, from -8 to 7 or from 0 to 15, are packed two in a byte, of neighbouring terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covan_mlir.fred.chain import Input
from covan_mlir.fred.expression import Apply, Const, Expr
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.evaluator import widen
from covan_mlir.lowering.kernels.dense.chain import DenseChain, is_unsigned, without_zero

STEPS = "i8"
"""What holds steps."""
_NIBBLES = {True: (-8, 7), False: (0, 15)}
"""What half a byte holds, with a sign and without one."""


@dataclass(frozen=True)
class NarrowWeight:
    """A weight of steps.

    Attributes:
        weight: the steps.
        scale: of groups; its axes are the lanes' one, the first contracted one and outer ones; None: there is none.
        nibbles: steps take half a byte.
        signed: they have a sign.
        zero: what is taken off each.
        zeros: what is taken off those of a column, or of a group of it; its axes are the lanes' one and others of a
            scale; None: nothing.
        zeros_signed: these have a sign, where they are integers.
        group: the contracted axis along which groups follow each other.
    """

    weight: Input
    scale: Input | None
    nibbles: bool
    signed: bool = True
    zero: int = 0
    zeros: Input | None = None
    zeros_signed: bool = True
    group: str = ""

    @property
    def grouped(self) -> bool:
        """Whether numbers of groups are read: groups are blocks then."""
        return any(one is not None and self.group in one.axes for one in (self.scale, self.zeros))

    @staticmethod
    def of(chain: DenseChain, factor: Expr, other: Expr, lane: str, contracted: Sequence[str]) -> NarrowWeight | None:
        """That which a factor of a product is; None: it is none.

        Args:
            other: the other factor.
            lane: the axis along which it is read.
            contracted: the axes that are summed over.
        """

        def beside(number: Expr, *others: Expr) -> Input | None:
            """A tensor of what is the same for all steps of a column, or of a group of it."""
            value = chain.packable(number, other, *others)
            if value is None or lane not in value.axes or {*value.axes} & {*contracted[1:]}:
                return None
            return value if len(contracted) > 1 or contracted[0] not in value.axes else None

        steps, number, less = factor, None, None
        if isinstance(steps, Apply) and steps.op == "arith.mulf":
            steps, number = steps.args
        if isinstance(steps, Apply) and steps.op == "arith.subf":
            steps, less = steps.args
        zeros, of_zeros = _integers(less) if less is not None else (None, True)
        scale = beside(number, steps, *([less] if less is not None else [])) if number is not None else None
        held = beside(zeros, steps, *([number] if number is not None else [])) if zeros is not None else None
        if (number is not None and (scale is None or contracted[0] not in scale.axes)) or (
            less is not None and not held
        ):
            return None
        if not isinstance(steps, Apply) or steps.op != "arith.sitofp" or steps.dtype != "f32":
            return None
        whole, zero = without_zero(steps.args[0])
        inner, between = _clamped(whole)
        weight, signed = chain.packable(inner, other), not is_unsigned(inner)
        if weight is None or weight.dtype != STEPS or lane not in weight.axes:
            return None
        # A byte has two steps of one block.
        if between is not None and (between != _NIBBLES[signed] or chain.sizes[contracted[-1]] % 2):
            return None
        return NarrowWeight(weight, scale, between is not None, signed, zero, held, of_zeros, contracted[0])

    def as_floats(self, code: KernelBuilder, steps: Value, dtype: str) -> Value:
        """A vector of steps as floats."""
        return self._less(code, code.cast("extsi" if self.signed else "extui", steps, "i32"), dtype)

    def half_as_floats(self, code: KernelBuilder, pairs: Value, number: int, dtype: str) -> Value:
        """One of the two steps of each byte of a vector as floats."""
        if not self.signed:
            wide = code.cast("extui", pairs, "i32")
            half = (
                code.op("andi", wide, code.like(15, wide))
                if number == 0
                else code.op("shrui", wide, code.like(4, wide))
            )
            return self._less(code, half, dtype)
        wide = code.cast("extsi", pairs, "i32")
        if number == 0:
            wide = code.op("shli", wide, code.like(28, wide))
        by = code.like(28 if number == 0 else 4, wide)
        return self._less(code, code.op("shrsi", wide, by), dtype)

    def _less(self, code: KernelBuilder, steps: Value, dtype: str) -> Value:
        if self.zero:
            steps = code.op("subi", steps, code.like(self.zero, steps))
        return code.cast("sitofp", steps, dtype)

    def zeros_as_floats(self, code: KernelBuilder, values: Value, dtype: str) -> Value:
        """A vector of what is taken off steps."""
        assert self.zeros is not None
        if self.zeros.dtype[0] != "i":
            return widen(code, values, self.zeros.dtype)
        if self.zeros.dtype != "i32":
            values = code.cast("extsi" if self.zeros_signed else "extui", values, "i32")
        return code.cast("sitofp", values, dtype)


def _integers(number: Expr) -> tuple[Expr, bool]:
    """-> (what is made a float, whether it is an integer with a sign); or what is one."""
    if not isinstance(number, Apply) or number.op not in ("arith.sitofp", "arith.uitofp"):
        return number, True
    (whole,) = number.args
    return whole, number.op == "arith.sitofp" and not is_unsigned(whole)


def _clamped(below: Expr) -> tuple[Expr, tuple[object, ...] | None]:
    """-> (what is read, the bounds between which it is brought, if it is)."""
    above = below.args[0] if isinstance(below, Apply) and below.op == "arith.minsi" else None
    if not isinstance(below, Apply) or not isinstance(above, Apply) or above.op != "arith.maxsi":
        return below, None
    bounds = tuple(arg.value if isinstance(arg, Const) else None for arg in (above.args[1], below.args[1]))
    return above.args[0], bounds
