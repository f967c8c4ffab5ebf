"""Which rows of a window lie inside of the input, at a row of the results that is known at run time only."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.convolution_roles import Sliding


@dataclass(frozen=True)
class WindowRows:
    """Rows of a window.

    Attributes:
        top: the row of the input that the first one shows; it may lie outside.
        low, high: from the first one that shows a row of the input to behind the last.
    """

    top: Value
    low: Value
    high: Value


def rows_inside(code: KernelBuilder, height: Sliding, row: Value) -> WindowRows:
    """Of the window at a row of the results."""
    top = code.add(code.mul(row, height.stride), height.offset)

    def steps(distance: Value) -> Value:
        """Rows of the window until it has moved on so far, or is beyond."""
        return code.divmod(code.add(code.max(distance, 0), height.dilation - 1), height.dilation)[0]

    low = steps(code.op("subi", code.index(0), top))
    high = code.min(steps(code.op("subi", code.index(height.inside), top)), height.taps)
    return WindowRows(top, low, high)
