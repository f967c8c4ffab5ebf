"""Chains of one reduction with element-wise work around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.operands import elements, traffic
from covan_mlir.lowering.kernels.reductions.sweeps import cost
from covan_mlir.lowering.kernels.template import Cost


@dataclass(frozen=True)
class DenseChain:
    """A chain of one reduction.

    Attributes:
        chain: as it was given; its sizes may be known at run time only.
    """

    chain: Chain
    step: Reduce

    @cached_property
    def sizes(self) -> dict[str, int]:
        """With a nominal size for every axis."""
        return self.chain.nominal.known_sizes

    @cached_property
    def flops(self) -> int:
        """Floating-point operations, as the chain has them; a multiply-add counts as two."""
        return 2 * self.count((*self.step.axes, *self.step.over))

    @cached_property
    def work(self) -> int:
        """Vector instructions on a sum, roughly: what the chain makes of it."""
        return sum(cost(step.expr) for step in self.chain.steps if isinstance(step, Map))

    @cached_property
    def traffic(self) -> int:
        """Bytes of inputs and outputs."""
        return traffic(self.chain)

    def count(self, axes: Iterable[str]) -> int:
        """Positions on some axes."""
        return prod(self.sizes[axis] for axis in axes)

    def cost(self, seconds: float) -> Cost:
        """What a kernel costs that takes this long."""
        return Cost(seconds, self.flops, self.traffic, elements(self.chain))


def only_reduction(chain: Chain) -> Reduce:
    """The only reduction of a chain of which every result has all axes.

    Raises:
        UnsupportedError: it is another chain.
    """
    if len(chain.reductions) != 1:
        raise UnsupportedError("it is more than one reduction")
    (step,) = chain.reductions
    if step.dtype[0] not in "fb":
        raise UnsupportedError("it does not reduce floating-point numbers")
    before = {name for name in chain.depends(step.name) if not isinstance(chain.values[name], Input)}
    if before & {*chain.outputs}:
        raise UnsupportedError("it returns what is reduced")
    for name in chain.outputs:
        if {*chain.values[name].axes} != {*step.axes}:
            raise UnsupportedError(f"{name} has other axes than the reduction")
    return step


def check_sum(step: Reduce) -> None:
    """Raises UnsupportedError: a reduction is no sum from 0 on."""
    if step.combine != "add" or step.initial.value != 0:
        raise UnsupportedError("it is no sum from 0 on")
