"""A chain that is one sum of products with element-wise work around it, as the CPU's templates for products see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Input, Reduce
from covan_mlir.fred.expression import Apply, Expr, reads
from covan_mlir.lowering.kernels.cpu.dense import DenseChain
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope


@dataclass(frozen=True)
class Product(DenseChain):
    """``step[outer, rows, lane] = sum over contracted of scalars[outer, rows, contracted] * vectors[outer, contracted,
    lane]``, and maps of it.

    Attributes:
        chain: as it was given; its sizes may be known at run time only.
        scalars: the factor that does not depend on the lane axis, of inputs alone.
        vectors: the other one.
        outer: axes that are neither of the others, in the order of the result.
        rows: axes that ``scalars`` has and ``vectors`` has not, in the order of the result.
        lane: the last axis of the results; ``scalars`` has it not.
        contracted: the axes that are summed over; the last one is the one that lies closest together in memory.
    """

    scalars: Expr
    vectors: Expr
    outer: tuple[str, ...]
    rows: tuple[str, ...]
    lane: str
    contracted: tuple[str, ...]


def product_of(chain: Chain) -> Product:
    """The roles of a chain's axes.

    Raises:
        UnsupportedError: it is no such chain, or no axis can be that of the lanes.
    """
    step = only_reduction(chain)
    check_sum(step)
    scope = Scope(chain, {})
    term = scope.inlined(step.expr)
    if not isinstance(term, Apply) or term.op != "arith.mulf":
        raise UnsupportedError("its terms are no products")
    factors = term.args
    axes = [scope.axes(factor) for factor in factors]
    if any(set(step.over) - own for own in axes):
        raise UnsupportedError("a factor is the same at all positions of an axis that is summed over")
    lane = _lane(chain, step)
    sides = [n for n in (0, 1) if lane in axes[n]]
    if len(sides) != 1:
        raise UnsupportedError(f"both factors, or none, have the axis {lane}, which the results have last")
    vectors, scalars = sides[0], 1 - sides[0]
    rows = tuple(axis for axis in step.axes if axis in axes[scalars] - axes[vectors])
    outer = tuple(axis for axis in step.axes if axis not in rows and axis != lane)
    contracted = _nearest_last(chain, step.over, factors[scalars], factors[vectors])
    return Product(chain, step, factors[scalars], factors[vectors], outer, rows, lane, contracted)


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


def _lane(chain: Chain, step: Reduce) -> str:
    last = {value.axes[-1] for name in chain.outputs if (value := chain.values[name]).axes}
    if not step.axes:
        raise UnsupportedError("the sum of products is one number")
    if len(last) != 1:
        raise UnsupportedError("the results end in different axes")
    return last.pop()


def _nearest_last(chain: Chain, over: tuple[str, ...], *factors: Expr) -> tuple[str, ...]:
    """Contracted axes in the order of the widest tensor that is multiplied."""
    tensors = [value for factor in factors for name in reads(factor) if isinstance(value := chain.values[name], Input)]
    widest: Mapping[str, int] = {
        axis: n for n, axis in enumerate(max(tensors, key=lambda tensor: len({*tensor.axes} & {*over})).axes)
    }
    return tuple(sorted(over, key=lambda axis: widest.get(axis, -1)))
