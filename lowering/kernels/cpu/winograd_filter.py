"""The filter of a convolution by Winograd's minimal filtering, transformed ahead of time.

::

    filters[panel, point, c, vectors * lanes] = (G g[k, c] G^T)[point]    # zeros beyond the last output channel

The transform is computed in double precision and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.fred.expression import Read, reads
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution
from covan_mlir.lowering.kernels.cpu.winograd_layout import WinogradLayout
from covan_mlir.lowering.kernels.kernel import Operand, Preparation
from covan_mlir.lowering.kernels.reductions.hoist import Scope


def weight_of(convolution: Convolution) -> Input | None:
    """The filter, where it can be transformed: a weight that nothing else of the chain reads."""
    if not isinstance(convolution.scalars, Read):
        return None
    chain: Chain = convolution.chain
    weight = chain.values[convolution.scalars.name]
    if not isinstance(weight, Input) or not weight.weight:
        return None
    scope = Scope(chain, {})
    results = (scope.inlined(Read(name, chain.values[name].dtype)) for name in chain.outputs)
    return None if any(weight.name in reads(result) for result in results) else weight


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
        return Operand(f"{self.weight.name}.transformed", shape, self.weight.dtype)

    @property
    def preparation(self) -> Preparation:
        """What transforms it: columns, rows, then the order in which it is read."""
        layout, convolution = self.layout, self.layout.convolution
        (output,), (channel,) = convolution.rows, convolution.contracted
        down, across = layout.height.tap, layout.width.tap
        names = {output: "k", channel: "c", down: "r", across: "s"}
        span, filters, channels = layout.algorithm.span, layout.filters, layout.channels
        sizes = {axis: convolution.sizes[axis] for axis in self.weight.axes}
        given = _tensor([*sizes.values()], self.weight.dtype)
        matrix = _tensor([span, 3], "f64")
        rows = ", ".join(f"[{', '.join(repr(float(c)) for c in row)}]" for row in layout.algorithm.filters)
        half, whole = _tensor([span, 3, channels, filters], "f64"), _tensor([span, span, channels, filters], "f64")
        narrow = _tensor([span, span, channels, filters], "f32")
        points, result = _tensor([layout.points, channels, filters], "f32"), self.operand.tensor

        def maps(domain: str, *results: str) -> str:
            return f"indexing_maps = [{', '.join(f'affine_map<({domain}) -> ({one})>' for one in results)}]"

        parallel = ", ".join(['"parallel"'] * 4)
        summed = f'iterator_types = [{parallel}, "reduction"]'
        columns = maps("a, s, c, k, r", "a, r", ", ".join(names[axis] for axis in self.weight.axes), "a, s, c, k")
        lines = maps("a, b, c, k, s", "b, s", "a, s, c, k", "a, b, c, k")
        same = maps("a, b, c, k", "a, b, c, k", "a, b, c, k")
        text = f"""func.func private @transformed(%w: {given}) -> {result} {{
  %zero = arith.constant 0.0 : f64
  %none = arith.constant 0.0 : f32
  %matrix = arith.constant dense<[{rows}]> : {matrix}
  %half_empty = tensor.empty() : {half}
  %half_zero = linalg.fill ins(%zero : f64) outs(%half_empty : {half}) -> {half}
  %half = linalg.generic {{{columns}, {summed}}}
      ins(%matrix, %w : {matrix}, {given}) outs(%half_zero : {half}) {{
  ^bb0(%m: f64, %e: f32, %sum: f64):
    %wide = arith.extf %e : f32 to f64
    %term = arith.mulf %m, %wide : f64
    %next = arith.addf %sum, %term : f64
    linalg.yield %next : f64
  }} -> {half}
  %whole_empty = tensor.empty() : {whole}
  %whole_zero = linalg.fill ins(%zero : f64) outs(%whole_empty : {whole}) -> {whole}
  %whole = linalg.generic {{{lines}, {summed}}}
      ins(%matrix, %half : {matrix}, {half}) outs(%whole_zero : {whole}) {{
  ^bb0(%m: f64, %e: f64, %sum: f64):
    %term = arith.mulf %m, %e : f64
    %next = arith.addf %sum, %term : f64
    linalg.yield %next : f64
  }} -> {whole}
  %narrow_empty = tensor.empty() : {narrow}
  %narrow = linalg.generic {{{same}, iterator_types = [{parallel}]}}
      ins(%whole : {whole}) outs(%narrow_empty : {narrow}) {{
  ^bb0(%e: f64, %old: f32):
    %rounded = arith.truncf %e : f64 to f32
    linalg.yield %rounded : f32
  }} -> {narrow}
  %points = tensor.collapse_shape %narrow [[0, 1], [2], [3]] : {narrow} into {points}
  %empty = tensor.empty() : {result}
  %packed = linalg.pack %points padding_value(%none : f32) outer_dims_perm = [2, 0, 1] inner_dims_pos = [2]
      inner_tiles = [{layout.panel}] into %empty : {points} -> {result}
  return %packed : {result}
}}
"""
        return Preparation(self.operand, (self.weight.name,), text)


def _tensor(sizes: list[int], dtype: str) -> str:
    return f"tensor<{'x'.join([*map(str, sizes), dtype])}>"
