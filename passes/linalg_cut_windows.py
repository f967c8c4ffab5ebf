"""``linalg-cut-windows``: what a window that stands in one place never reaches is cut off its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from covan_mlir.fred.expression import Affine
from covan_mlir.passes.framework.index_values import dimension, slice_of
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.raising.windows import affine_maps


@dataclass(frozen=True)
class LinalgCutWindows:
    """Cuts the inputs of convolutions and poolings down to what is read, where the result has one position.

    A stride of 2 leaves the last of four elements unread by a window of three. With one position there is no loop over
    positions that a size of four could come from, and IREE, which drops such loops, refuses what is left.

    Before::

        linalg.conv_2d_nchw_fchw {strides = dense<2>} ins(%x, %w : tensor<1x8x4x4xf32>, tensor<8x8x3x3xf32>)
                                                      outs(%y : tensor<1x8x1x1xf32>)

    After::

        %cut = tensor.extract_slice %x[0, 0, 0, 0] [1, 8, 3, 3] [1, 1, 1, 1]
        linalg.conv_2d_nchw_fchw {strides = dense<2>} ins(%cut, %w : tensor<1x8x3x3xf32>, tensor<8x8x3x3xf32>)
                                                      outs(%y : tensor<1x8x1x1xf32>)
    """

    name: ClassVar[str] = "linalg-cut-windows"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        rewriter: Rewriter | None = None
        for windowed in visited([view for block in op.regions[0] for view in block]):
            cuts = _cuts(windowed)
            if not cuts:
                continue
            rewriter = rewriter or Rewriter(op)
            with rewriter.replacing(windowed) as new:
                inputs: dict[int, ir.Value] = {}
                for number, sizes in cuts.items():
                    whole = windowed.operands[number]
                    left = [dimension(whole, k) if size < 0 else size for k, size in enumerate(sizes)]
                    inputs[number] = slice_of(whole, [0] * len(left), left)
                copy = windowed.clone()
                for number, value in inputs.items():
                    copy.operands[number] = value
                new.results(copy)


def _cuts(op: ir.Operation) -> dict[int, list[int]]:
    """The sizes that are left of inputs, by the number of the operand."""
    if not op.name.startswith("linalg.") or not op.results:
        return {}
    maps = affine_maps(op)
    if maps is None:
        return {}
    shapes = [_shape(value) for value in op.operands]
    extents = {
        position.axis: size
        for shape, positions in zip(shapes, maps, strict=True)
        for size, position in zip(shape, positions, strict=True)
        if position.axis is not None
    }
    cuts: dict[int, list[int]] = {}
    for operand in range(len(op.operands) - len(op.results)):
        left = [_read(size, at, extents) for size, at in zip(shapes[operand], maps[operand], strict=True)]
        if left != shapes[operand]:
            cuts[operand] = left
    return cuts


def _read(size: int, at: Affine, extents: dict[str, int]) -> int:
    """How many of a dimension's elements are read, from the first, where a loop of its window has one position."""
    sizes = [extents.get(axis, -1) for axis in at.axes]
    if size < 0 or len(sizes) < 2 or 1 not in sizes or min(sizes) < 1:
        return size
    low, high = at.bounds(extents)
    return high + 1 if low >= 0 else size


def _shape(value: Any) -> list[int]:
    """The sizes of a tensor, negative where they are known at run time; none of a number."""
    return list(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else []
