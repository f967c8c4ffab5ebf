"""The rows of a product, in groups of one workgroup each and tiles of one set of registers each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value


@dataclass(frozen=True)
class RowTiles:
    """Positions on some axes, counted through.

    Attributes:
        axes: outermost first.
        height: rows of a tile.
        group: rows of a workgroup, a multiple of that.
    """

    code: KernelBuilder
    axes: Sequence[str]
    height: int
    group: int

    def count(self, sizes: Mapping[str, Size]) -> Size:
        """All rows."""
        return self.code.product(sizes[axis] for axis in self.axes)

    def groups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups that it takes for all rows."""
        return self.code.ceildiv(self.count(sizes), self.group)

    def position(self, row: Value, sizes: Mapping[str, Size]) -> dict[str, Value]:
        """A row's position on each axis."""
        index: dict[str, Value] = {}
        for axis in reversed(self.axes[1:]):
            row, index[axis] = self.code.divmod(row, sizes[axis])
        return {**index, **({self.axes[0]: row} if self.axes else {})}

    def each(self, first: Value, sizes: Mapping[str, Size], body: Callable[[Value, int], None]) -> None:
        """Runs ``body`` on the first row and the number of rows of each tile of a group. The last tile of all is
        smaller where rows are left over; of a number of rows that is known at run time only, each is one of its own.

        Args:
            first: row of the group.
        """
        code, height, rows = self.code, self.height, self.count(sizes)

        def run(count: int) -> Callable[[Value, list[Value]], list[Value]]:
            def one(row: Value, none: list[Value]) -> list[Value]:
                body(row, count)
                return none

            return one

        if isinstance(rows, int) and rows <= self.group:
            code.spans(0, rows, height, [], lambda row, _, count: run(count)(row, []))
            return
        end = code.min(code.add(first, self.group), code.size(rows))
        if isinstance(rows, int) and rows % height == 0:
            code.loop(first, end, height, [], run(height))
            return
        whole = code.op("subi", end, code.divmod(code.op("subi", end, first), height)[1])
        code.loop(first, whole, height, [], run(height))
        if isinstance(rows, int):
            code.branch(code.below(whole, end), lambda: body(whole, rows % height), lambda: None)
        else:
            code.loop(whole, end, 1, [], run(1))
