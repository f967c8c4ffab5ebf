"""Reductions under way: how partial results start, combine and end, over vectors and across their lanes."""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Sequence
from functools import partial

from covan_mlir.fred.chain import Reduce
from covan_mlir.lowering.kernels.cpu import functions
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.elements import accumulated, computed

_FLOAT = {
    "add": ("addf", 0.0),
    "mul": ("mulf", 1.0),
    "max": ("maximumf", float("-inf")),
    "min": ("minimumf", float("inf")),
    "maxnum": ("maxnumf", float("-inf")),
    "minnum": ("minnumf", float("inf")),
}
_INTEGER = {
    "add": ("addi", 0),
    "mul": ("muli", 1),
    "max": ("maxsi", -(2**63)),
    "min": ("minsi", 2**63 - 1),
    "and": ("andi", -1),
    "or": ("ori", 0),
}


def combining(step: Reduce) -> tuple[str, float | int]:
    """-> (operation of the arith dialect, its neutral element)."""
    return (_FLOAT if computed(step.dtype)[0] == "f" else _INTEGER)[step.combine]


Combining = Callable[[Value, Value], Value]


def across(code: KernelBuilder, combine: Combining, values: Sequence[Value]) -> list[Value]:
    """All lanes of each vector combined, by halves; of two vectors that are left, each takes half of the lanes."""
    rest, half, where = list(values), code.lanes // 2, [0] * len(values)
    lanes = range(code.lanes)
    span = 1  # vectors that one of the rest stands for
    while half:
        if len(rest) % 2 == 0:
            low = [n - half + code.lanes if n & half else n for n in lanes]
            high = [n + code.lanes if n & half else n + half for n in lanes]
            pairs = zip(rest[::2], rest[1::2], strict=True)
            rest = [combine(code.shuffle(a, b, low), code.shuffle(a, b, high)) for a, b in pairs]
            where = [lane + (half if n // span % 2 else 0) for n, lane in enumerate(where)]
            span *= 2
        else:
            rest = [combine(a, code.shuffle(a, a, [n ^ half for n in lanes])) for a in rest]
        half //= 2
    return [code.lane(rest[n // span], lane) for n, lane in enumerate(where)]


def sums(code: KernelBuilder, op: str, vectors: Sequence[Value]) -> Value:
    """A vector whose lane n holds all lanes of the n-th vector combined."""
    lanes = code.lanes
    rest, size = list(vectors), 1
    while len(rest) > 1:
        low = [n if not n & size else lanes + n - size for n in range(lanes)]
        high = [n + size if not n & size else lanes + n for n in range(lanes)]
        rest = [
            code.op(op, code.shuffle(a, b, low), code.shuffle(a, b, high))
            for a, b in zip(rest[::2], rest[1::2], strict=True)
        ]
        size *= 2
    return rest[0]


def tree(combine: Combining, values: Sequence[Value]) -> Value:
    """Several values combined, with as few dependences as possible."""
    rest = list(values)
    while len(rest) > 1:
        pairs = [combine(a, b) for a, b in zip(rest[::2], rest[1::2], strict=False)]
        rest = pairs + ([rest[-1]] if len(rest) % 2 else [])
    return rest[0]


class Accumulators:
    """A reduction under way: partial results, and for floats' extrema what remembers a NaN.

    An extremum that passes NaN on takes four instructions of which each waits for the one before. The hardware's own
    takes one and may drop NaN; two vectors together are asked for it by one comparison.
    """

    def __init__(self, code: KernelBuilder, step: Reduce, copies: int) -> None:
        self.code, self.step, self.copies = code, step, copies
        self.op, self.neutral = combining(step)
        self.kind = accumulated(step.dtype)
        extrema = {"maximumf": functions.larger, "minimumf": functions.smaller}
        self.poisoned = self.op in extrema
        if self.op in extrema:
            self.combine: Combining = partial(extrema[self.op], code)
        else:
            self.combine = partial(code.op, self.op)

    def initial(self) -> list[Value]:
        """Accumulators before the first position."""
        start = [self.code.splat(self.neutral, self.kind)] * self.copies
        return [*start, self.code.splat(0.0, self.kind)] if self.poisoned else start

    def add(self, accumulators: Sequence[Value], values: Sequence[Value]) -> list[Value]:
        """Accumulators with one more vector for each copy, or for the first ones."""
        code = self.code
        combined = list(accumulators)
        for n, value in enumerate(values):
            combined[n] = self.combine(value, combined[n])
        for a, b in zip(values[::2], [*values[1::2], values[-1]], strict=False) if self.poisoned else ():
            nan = functions.compare(code, "uno", a, b)
            combined[-1] = code.op("select", nan, code.splat(pymath.nan, self.kind), combined[-1])
        return combined

    def finish(self, rows: Sequence[Sequence[Value]], across_lanes: bool) -> list[Value]:
        """Results of several rows: of each its accumulators, combined; and across lanes, where asked for."""
        code, start = self.code, self.step.initial.value
        final = [tree(self.combine, accumulators[: self.copies]) for accumulators in rows]
        nans = (
            [functions.compare(code, "uno", accumulators[-1], accumulators[-1]) for accumulators in rows]
            if self.poisoned
            else []
        )
        if across_lanes:
            final = across(code, self.combine, final)
            nans = [code.any(nan) for nan in nans]
        final = [
            code.op(self.op, value, code.like(start, value)) if start != self.neutral else value for value in final
        ]
        for n, nan in enumerate(nans):
            final[n] = code.op("select", nan, code.like(pymath.nan, final[n]), final[n])
        return final
