"""Chains of one reduction with element-wise work around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Read, reads
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.operands import elements, traffic
from covan_mlir.lowering.kernels.reductions.sweeps import cost
from covan_mlir.lowering.kernels.template import Cost

_WIDENING = frozenset({"arith.extf", "arith.extsi", "arith.extui"})


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

    def input_of(self, factor: Expr | None) -> Input | None:
        """The input whose elements a factor is, as they are in memory or widened."""
        read = stored(factor) if factor is not None else None
        value = self.chain.values[read.name] if isinstance(read, Read) else None
        return value if isinstance(value, Input) else None

    def weight_of(self, factor: Expr | None, *others: Expr) -> Input | None:
        """The weight that a factor is, where it can be held in another form: neither results nor others read it."""
        weight = self.alone(factor, *others)
        return weight if weight is not None and weight.weight else None

    def alone(self, factor: Expr | None, *others: Expr) -> Input | None:
        """The input that a factor is, where neither results nor others read it."""
        weight = self.input_of(factor)
        if weight is None:
            return None
        scope = Scope(self.chain, {})
        results = [scope.inlined(Read(name, self.chain.values[name].dtype)) for name in self.chain.outputs]
        return None if any(weight.name in reads(expr) for expr in (*others, *results)) else weight

    def packable(self, factor: Expr | None, *others: Expr) -> Input | None:
        """That weight, where all of its sizes are known."""
        weight = self.weight_of(factor, *others)
        return weight if weight is not None and None not in [self.chain.sizes[axis] for axis in weight.axes] else None

    def cost(self, seconds: float) -> Cost:
        """What a kernel costs that takes this long."""
        return Cost(seconds, self.flops, self.traffic, elements(self.chain))


def stored(expr: Expr) -> Expr:
    """What an expression only widens: narrow numbers are computed in more bits wherever they are read."""
    return expr.args[0] if isinstance(expr, Apply) and expr.op in _WIDENING else expr


def without_zero(factor: Expr) -> tuple[Expr, int]:
    """A factor without the integer that is taken off it, and that."""
    if isinstance(factor, Apply) and factor.op == "arith.subi" and isinstance(zero := factor.args[1], Const):
        return factor.args[0], int(zero.value)
    return factor, 0


def is_unsigned(factor: Expr) -> bool:
    """Whether a factor is an integer without a sign, in more bits."""
    return isinstance(factor, Apply) and factor.op == "arith.extui"


def only_reduction(chain: Chain, *, integers: bool = False) -> Reduce:
    """The only reduction of a chain of which every result has all axes.

    Args:
        integers: it reduces integers, not floating-point numbers.

    Raises:
        UnsupportedError: it is another chain.
    """
    if len(chain.reductions) != 1:
        raise UnsupportedError("it is more than one reduction")
    (step,) = chain.reductions
    if (step.dtype[0] not in "fb") != integers:
        raise UnsupportedError(
            "it does not reduce integers" if integers else "it does not reduce floating-point numbers"
        )
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
