"""The filter of a convolution by Winograd's minimal filtering, transformed: ahead of time, or, where it is no weight,
by a dispatch before the others.

::

    filters[panel, point, c, vectors * lanes] = (G g[k, c] G^T)[point]    # zeros beyond the last output channel

The transform is computed in double precision and rounded once, to single precision: of halves, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.fred.chain import Input
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, address
from covan_mlir.lowering.kernels.cpu.winograd_algebra import TAPS
from covan_mlir.lowering.kernels.cpu.winograd_layout import WinogradLayout
from covan_mlir.lowering.kernels.kernel import Operand, Preparation

CHANNELS = 16
"""Of a panel, that a workgroup transforms, where that is not done ahead of time."""


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


class FilterWriter:
    """Writes the code of a workgroup that transforms a filter: some channels of a panel, lanes along its outputs."""

    def __init__(self, code: KernelBuilder, filters: TransformedFilter) -> None:
        self.code, self.filters, self.layout = code, filters, filters.layout

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """How many there are; no size of a filter is known at run time only."""
        return self.layout.panels * -(-self.layout.channels // CHANNELS)

    def write(self) -> None:
        """The whole function."""
        code, layout = self.code, self.layout
        panel, number = code.divmod(code.workgroup, -(-layout.channels // CHANNELS))
        first = code.mul(number, CHANNELS)
        count = code.min(code.op("subi", code.index(layout.channels), first), CHANNELS)

        def channel(n: Value, none: list[Value]) -> list[Value]:
            def vector(u: Value, none: list[Value]) -> list[Value]:
                self._transform(panel, code.add(first, n), code.mul(u, code.lanes))
                return none

            return code.loop(0, layout.panel // code.lanes, 1, none, vector)

        code.loop(0, count, 1, [], channel)

    def _transform(self, panel: Value, channel: Value, column: Value) -> None:
        code, layout, span = self.code, self.layout, self.layout.algorithm.span
        taps = [[self._taps(panel, channel, column, r, s) for r in range(TAPS)] for s in range(TAPS)]
        down = [self._row(each) for each in taps]  # by column, then by point
        for a in range(span):
            for b, value in enumerate(self._row([each[a] for each in down])):
                at = code.add(code.mul(panel, layout.points), a * span + b)
                at = code.add(code.mul(code.add(code.mul(at, layout.channels), channel), layout.panel), column)
                code.store(code.cast("truncf", value, "f32"), code.memory[self.filters.operand.name], at)

    def _taps(self, panel: Value, channel: Value, column: Value, r: int, s: int) -> Value:
        """A tap of a vector of output channels."""
        code, layout, weight = self.code, self.layout, self.filters.weight
        (output,), (contracted,) = layout.convolution.rows, layout.convolution.contracted
        first = code.add(code.mul(panel, layout.panel), column)
        index = {output: first, contracted: channel}
        index |= {tap: code.index(n) for tap, n in ((layout.height.tap, r), (layout.width.tap, s)) if tap is not None}
        at, distance = address(code, weight.axes, layout.convolution.sizes, Position(index, output))
        valid = None
        if layout.filters % layout.panel:
            left = code.op("subi", code.index(layout.filters), first)
            valid = code.prefix(code.max(code.min(left, code.lanes), 0))
        memory = code.memory[weight.name]
        value = (
            code.load(memory, at, valid) if distance == 1 else code.gather(memory, at, code.offsets(distance), valid)
        )
        return code.cast("extf", value, "f64")

    def _row(self, values: Sequence[Value]) -> list[Value]:
        """``G`` times a column of vectors."""
        code = self.code
        results = []
        for row in self.layout.algorithm.filters:
            total: Value | None = None
            for coefficient, value in zip(row, values, strict=True):
                if coefficient:
                    one = coefficient == 1
                    term = value if one else code.op("mulf", value, code.splat(float(coefficient), "f64"))
                    total = term if total is None else code.op("addf", total, term)
            results.append(code.splat(0.0, "f64") if total is None else total)
        return results


def _maps(domain: str, *results: str) -> str:
    return f"indexing_maps = [{', '.join(f'affine_map<({domain}) -> ({one})>' for one in results)}]"


def _tensor(sizes: Sequence[int], dtype: str) -> str:
    return f"tensor<{'x'.join([*map(str, sizes), dtype])}>"
