"""Where a loop begins and ends for a group of rows, as code."""

from __future__ import annotations

from collections.abc import Mapping

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.reductions.masks import Span


def loop_range(
    code: KernelBuilder,
    span: Span,
    sizes: Mapping[str, Size],
    step: int,
    first: Mapping[str, Value],
    last: Mapping[str, Value],
) -> tuple[Value | int, Value | int]:
    """-> (first position, one after the last), in whole steps, for rows between two positions."""
    size = sizes[span.axis]
    low: Value | int = 0
    high: Value | int = size
    for bound in span.limits:
        factors = dict(bound.factors)
        sign = factors.pop(span.axis)
        # The best that any row of the group allows: no row needs what all of them leave out.
        terms = [code.mul((last if factor > 0 else first)[axis], factor) for axis, factor in factors.items() if factor]
        terms += [code.mul(sizes[axis], factor) for axis, factor in bound.extents]
        rest = code.add(*terms, bound.constant)
        if sign < 0:
            end = code.min(code.max(code.add(rest, step), 0), code.add(size, step - 1))
            high = code.min(code.mul(code.divmod(end, step)[0], step), high)
        else:
            start = code.min(code.max(code.mul(rest, -1), 0), size)
            low = code.max(code.mul(code.divmod(start, step)[0], step), low)
    return low, high
