"""Filters in another form, ahead of time: halves in single precision, since convolutions read them as scalars, in
place, and to widen an element at each use takes longer than its product; and with the channels side by side, where
lanes run along them.

::

    widened[...] = f[...]                # float32: twice the memory of the filter that it replaces
    widened[r, s, c] = f[c, r, s]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from covan_mlir.fred.chain import Chain, Input, Step
from covan_mlir.fred.expression import Expr, Read, substitute
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, convolution_of
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.kernel import Operand, Preparation


@dataclass(frozen=True)
class PreparedFilter:
    """A filter that is widened ahead of time, or turned, or both.

    Attributes:
        given: the chain as it was given.
        weight: the filter.
        axes: of the filter, in the order in which the kernel reads them.
    """

    given: Chain
    weight: Input
    axes: tuple[str, ...]

    @property
    def operand(self) -> Operand:
        """What the kernel reads."""
        sizes = tuple(self.given.known_sizes[axis] for axis in self.axes)
        dtype = computed(self.weight.dtype)
        form = "widened" if dtype != self.weight.dtype else "turned"
        return Operand(f"{self.weight.name}.{form}", sizes, dtype)

    @property
    def scalars(self) -> Read:
        """An element of it: what was done to widen the given one is done."""
        return Read(self.operand.name, self.operand.dtype)

    @property
    def preparation(self) -> Preparation:
        """What makes it."""
        sizes = "x".join(str(self.given.known_sizes[axis]) for axis in self.weight.axes)
        narrow, wide = self.weight.dtype, computed(self.weight.dtype)
        given, result, axes = f"tensor<{sizes}x{narrow}>", self.operand.tensor, len(self.weight.axes)
        domain = ", ".join(f"d{n}" for n in range(axes))
        turned = ", ".join(f"d{self.axes.index(axis)}" for axis in self.weight.axes)
        read, write = f"affine_map<({domain}) -> ({turned})>", f"affine_map<({domain}) -> ({domain})>"
        kinds = ", ".join(['"parallel"'] * axes)
        widening = f"    %one = arith.extf %element : {narrow} to {wide}\n" if narrow != wide else ""
        text = f"""func.func private @widened(%w: {given}) -> {result} {{
  %empty = tensor.empty() : {result}
  %wide = linalg.generic {{indexing_maps = [{read}, {write}], iterator_types = [{kinds}]}}
      ins(%w : {given}) outs(%empty : {result}) {{
  ^bb0(%element: {narrow}, %old: {wide}):
{widening}    linalg.yield {"%one" if widening else "%element"} : {wide}
  }} -> {result}
  return %wide : {result}
}}
"""
        return Preparation(self.operand, (self.weight.name,), text)

    @property
    def chain(self) -> Chain:
        """The chain, of the widened filter."""
        wide = replace(self.weight, name=self.operand.name, dtype=self.operand.dtype, axes=self.axes)
        names: dict[str, Expr] = {self.weight.name: self.scalars}
        inputs = tuple(wide if value == self.weight else value for value in self.given.inputs)
        return replace(self.given, inputs=inputs, steps=tuple(_reading(step, names) for step in self.given.steps))


def _reading(step: Step, names: Mapping[str, Expr]) -> Step:
    return replace(step, expr=substitute(step.expr, dict(names)))


def convolution_with_filter(chain: Chain) -> tuple[Convolution, PreparedFilter | None]:
    """The roles of a chain's axes, and how its filter is widened ahead of time, where it is a weight of halves.

    Raises:
        UnsupportedError: it is no such chain.
    """
    convolution = convolution_of(chain)
    weight = convolution.weight_of(convolution.scalars)
    if weight is None or computed(weight.dtype) == weight.dtype:
        return convolution, None
    widened = PreparedFilter(chain, weight, weight.axes)
    wide = convolution_of(widened.chain)
    return replace(wide, scalars=widened.scalars), widened
