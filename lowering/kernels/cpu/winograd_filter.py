"""The filter of a convolution by Winograd's minimal filtering, transformed ahead of time.

::

    filters[panel, point, c, vectors * lanes] = (G g[k, c] G^T)[point]    # zeros beyond the last output channel

The transform is computed in double precision and rounded once, to single precision: of halves, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covan_mlir.fred.chain import Input
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.winograd_algebra import TAPS
from covan_mlir.lowering.kernels.cpu.winograd_layout import WinogradLayout
from covan_mlir.lowering.kernels.kernel import Operand, Preparation


@dataclass(frozen=True)
class TransformedFilter:
    """A filter, by panel, point and channel."""

    layout: WinogradLayout
    weight: Input

    @property
    def operand(self) -> Operand:
        """What the kernel reads."""
        layout = self.layout
        shape = (layout.panels, layout.points, layout.channels, layout.panel)
        return Operand(f"{self.weight.name}.transformed", shape, computed(self.weight.dtype))

    @property
    def preparation(self) -> Preparation:
        """What transforms it: one loop nest over the results, of a filter with whole panels."""
        layout, convolution = self.layout, self.layout.convolution
        (output,), (channel,) = convolution.rows, convolution.contracted
        names = {output: "p, q", channel: "c", layout.height.tap: "r", layout.width.tap: "s"}
        span, panels, panel = layout.algorithm.span, layout.panels, layout.panel
        axes, dtype = self.weight.axes, self.weight.dtype
        own = [convolution.sizes[axis] for axis in axes]
        whole = [panels * panel if axis == output else convolution.sizes[axis] for axis in axes]
        split = [n for axis, n in zip(axes, whole, strict=True) for n in ((panels, panel) if axis == output else (n,))]
        at = axes.index(output)
        groups = [[n] if n < at else [at, at + 1] if n == at else [n + 1] for n in range(len(axes))]
        given, padded, panelled = (_tensor(sizes, dtype) for sizes in (own, whole, split))
        high = ", ".join(str(b - a) for a, b in zip(own, whole, strict=True))
        matrix = _tensor([span, TAPS], "f64")
        rows = ", ".join(f"[{', '.join(repr(float(c)) for c in row)}]" for row in layout.algorithm.filters)
        single = computed(dtype)
        exact, rounded = (_tensor([panels, span, span, layout.channels, panel], one) for one in ("f64", single))
        result, parallel = self.operand.tensor, ", ".join(['"parallel"'] * 5)
        read = ", ".join(names[axis] for axis in axes)
        nest = _maps("p, a, b, c, q, r, s", "a, r", "b, s", read, "p, a, b, c, q")
        same = _maps("p, a, b, c, q", "p, a, b, c, q", "p, a, b, c, q")
        text = f"""func.func private @transformed(%w: {given}) -> {result} {{
  %none = arith.constant 0.0 : {dtype}
  %zero = arith.constant 0.0 : f64
  %matrix = arith.constant dense<[{rows}]> : {matrix}
  %whole = tensor.pad %w low[{", ".join("0" for _ in own)}] high[{high}] {{
  ^bb0({", ".join(f"%i{n}: index" for n in range(len(own)))}):
    tensor.yield %none : {dtype}
  }} : {given} to {padded}
  %panels = tensor.expand_shape %whole {groups} output_shape {split} : {padded} into {panelled}
  %exact_empty = tensor.empty() : {exact}
  %exact_zero = linalg.fill ins(%zero : f64) outs(%exact_empty : {exact}) -> {exact}
  %exact = linalg.generic {{{nest}, iterator_types = [{parallel}, "reduction", "reduction"]}}
      ins(%matrix, %matrix, %panels : {matrix}, {matrix}, {panelled}) outs(%exact_zero : {exact}) {{
  ^bb0(%down: f64, %across: f64, %element: {dtype}, %sum: f64):
    %wide = arith.extf %element : {dtype} to f64
    %factor = arith.mulf %down, %across : f64
    %term = arith.mulf %factor, %wide : f64
    %next = arith.addf %sum, %term : f64
    linalg.yield %next : f64
  }} -> {exact}
  %rounded_empty = tensor.empty() : {rounded}
  %rounded = linalg.generic {{{same}, iterator_types = [{parallel}]}}
      ins(%exact : {exact}) outs(%rounded_empty : {rounded}) {{
  ^bb0(%element: f64, %old: {single}):
    %narrow = arith.truncf %element : f64 to {single}
    linalg.yield %narrow : {single}
  }} -> {rounded}
  %result = tensor.collapse_shape %rounded [[0], [1, 2], [3], [4]] : {rounded} into {result}
  return %result : {result}
}}
"""
        return Preparation(self.operand, (self.weight.name,), text)


def _maps(domain: str, *results: str) -> str:
    return f"indexing_maps = [{', '.join(f'affine_map<({domain}) -> ({one})>' for one in results)}]"


def _tensor(sizes: Sequence[int], dtype: str) -> str:
    return f"tensor<{'x'.join([*map(str, sizes), dtype])}>"
