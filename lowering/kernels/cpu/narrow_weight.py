"""Weights of few bits that a product of floats reads as vectors: their steps are packed, and made floats in registers.

What a step stands for may be the same for all columns' terms of a group (a scale for each 32 or 128 terms). The groups
are blocks then, and what their steps stand for is multiplied with the sums of a block::

    y[i, j] = sum over groups g of scale[j, g] * (sum over k in g of x[i, g, k] * step[j, g, k])

Steps from -8 to 7 are packed two in a byte, of neighbouring terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covan_mlir.fred.chain import Input
from covan_mlir.fred.expression import Apply, Const, Expr
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.dense.chain import DenseChain

STEPS = "i8"
"""What holds steps."""
NIBBLE = (-8, 7)
"""What half a byte holds."""


@dataclass(frozen=True)
class NarrowWeight:
    """A weight of steps.

    Attributes:
        weight: the steps.
        scale: of groups; its axes are the lanes' one, the first contracted one and outer ones; None: there is none.
        nibbles: steps take half a byte.
    """

    weight: Input
    scale: Input | None
    nibbles: bool

    @staticmethod
    def of(chain: DenseChain, factor: Expr, other: Expr, lane: str, contracted: Sequence[str]) -> NarrowWeight | None:
        """That which a factor of a product is; None: it is none.

        Args:
            other: the other factor.
            lane: the axis along which it is read.
            contracted: the axes that are summed over.
        """
        steps, scale = factor, None
        if isinstance(steps, Apply) and steps.op == "arith.mulf":
            steps, number = steps.args
            scale = chain.packable(number, other, steps)
            if scale is None or len(contracted) < 2 or lane not in scale.axes or {*scale.axes} & {*contracted[1:]}:
                return None
        if not isinstance(steps, Apply) or steps.op != "arith.sitofp" or steps.dtype != "f32":
            return None
        clamped = _clamped(steps.args[0])
        weight = chain.packable(steps.args[0] if clamped is None else clamped, other)
        if weight is None or weight.dtype != STEPS or lane not in weight.axes:
            return None
        # A byte has two steps of one block.
        fits = clamped is None or chain.sizes[contracted[-1]] % 2 == 0
        return NarrowWeight(weight, scale, clamped is not None) if fits else None


def _clamped(below: Expr) -> Expr | None:
    """What is read where all but half a byte's steps are taken for the nearest one; None: they are not."""
    above = below.args[0] if isinstance(below, Apply) and below.op == "arith.minsi" else None
    if not isinstance(below, Apply) or not isinstance(above, Apply) or above.op != "arith.maxsi":
        return None
    bounds = tuple(arg.value if isinstance(arg, Const) else None for arg in (above.args[1], below.args[1]))
    return above.args[0] if bounds == NIBBLE else None


def as_floats(code: KernelBuilder, steps: Value, dtype: str) -> Value:
    """A vector of steps as floats."""
    return code.cast("sitofp", code.cast("extsi", steps, "i32"), dtype)


def half_as_floats(code: KernelBuilder, pairs: Value, number: int, dtype: str) -> Value:
    """One of the two steps of each byte of a vector as floats."""
    wide = code.cast("extsi", pairs, "i32")
    if number == 0:
        wide = code.op("shli", wide, code.like(28, wide))
    by = code.like(28 if number == 0 else 4, wide)
    return code.cast("sitofp", code.op("shrsi", wide, by), dtype)
