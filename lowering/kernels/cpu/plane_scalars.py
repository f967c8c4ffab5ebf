"""What a window slides over, read as scalars: where lanes run along output channels, each scalar is multiplied with a
vector of the filter.

::

    tile[p, k] += planes[c, p + r * pitch + s] * f[c, r, s, k]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.planes import PlaneLayout, Planes
from covan_mlir.lowering.kernels.cpu.register_tile import Place


@dataclass(frozen=True)
class PlaneScalars:
    """The planes of a block of channels, of all positions of the results: those are the rows of the product."""

    code: KernelBuilder
    planes: Planes

    @staticmethod
    def make(code: KernelBuilder, layout: PlaneLayout, sizes: Mapping[str, Size], depth: int) -> PlaneScalars:
        """In the stack frame.

        Args:
            layout: of all of an image.
            depth: positions of the first contracted axis in a block.
        """
        return PlaneScalars(code, Planes.make(code, layout, sizes, depth * layout.convolution.beside, 0))

    def fill(self, outer: Mapping[str, Value], first: Value, start: Value, count: Size) -> None:
        """Stages a block.

        Args:
            first: row of the group, which is that of all rows.
            start, count: of the first contracted axis.
        """
        corner = self.code.index(0)
        self.planes.fill(outer, corner, corner, start, count)

    def load(self, row: Value, place: Place, tap: int) -> Value:
        """What a tap multiplies for a position of the results; positions on the first contracted axis count from the
        block's first."""
        code, layout = self.code, self.planes.layout
        down, across = code.divmod(row, layout.width)
        return self.planes.scalar(code.add(code.mul(down, layout.pitch), across), place, tap)


def scratch(layout: PlaneLayout, depth: int, lanes: int) -> int:
    """Elements of the scratch that a workgroup has for a block."""
    return depth * layout.convolution.beside * layout.channel + lanes
