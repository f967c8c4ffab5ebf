"""What the axes of a sum of products are to each other: rows, columns, what is contracted, and what repeats that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Input, Reduce
from covan_mlir.fred.expression import Apply, Expr, reads
from covan_mlir.lowering.kernels.dense.chain import DenseChain, check_sum, only_reduction
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope


@dataclass(frozen=True)
class MatrixProduct(DenseChain):
    """``step[batch, rows, columns] = sum over contracted of left[batch, rows, contracted] * right[batch, contracted,
    columns]``, and maps of it. Of a convolution, one factor is read through a window.

    Attributes:
        left: the factor that does not depend on the last axis of the results, of inputs alone.
        right: the other one.
        last: the last axis of the results, one of the columns.
        batch: axes of both factors, in the order of the step.
        rows: axes of ``left`` alone, in the order of the step.
        columns: axes of ``right`` alone, in the order of the first result.
        contracted: the axes that are summed over; the last one is the one that lies closest together in memory.
    """

    left: Expr
    right: Expr
    last: str
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    contracted: tuple[str, ...]


def matrix_product_of(chain: Chain, *, integers: bool = False) -> MatrixProduct:
    """The roles of a chain's axes.

    Args:
        integers: what is multiplied, in place of floating-point numbers.

    Raises:
        UnsupportedError: it is no such chain, or its results do not end in an axis of one factor alone.
    """
    step = only_reduction(chain, integers=integers)
    check_sum(step)
    scope = Scope(chain, {})
    term = scope.inlined(step.expr)
    if not isinstance(term, Apply) or term.op != ("arith.muli" if integers else "arith.mulf"):
        raise UnsupportedError("its terms are no products")
    factors = term.args
    axes = [scope.axes(factor) for factor in factors]
    if any(set(step.over) - own for own in axes):
        raise UnsupportedError("a factor is the same at all positions of an axis that is summed over")
    last = _last_axis(chain, step)
    sides = [n for n in (0, 1) if last in axes[n]]
    if len(sides) != 1:
        raise UnsupportedError(f"both factors, or none, have the axis {last}, which the results have last")
    right, left = sides[0], 1 - sides[0]
    rows = tuple(axis for axis in step.axes if axis in axes[left] - axes[right])
    columns = tuple(axis for axis in chain.values[chain.outputs[0]].axes if axis in axes[right] - axes[left])
    batch = tuple(axis for axis in step.axes if axis not in rows and axis not in columns)
    contracted = _nearest_last(chain, step.over, factors[left], factors[right])
    return MatrixProduct(chain, step, factors[left], factors[right], last, batch, rows, columns, contracted)


def _last_axis(chain: Chain, step: Reduce) -> str:
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
