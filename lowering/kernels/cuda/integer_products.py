"""Sums of products of integers of 8 bits, by matrix instructions that add them up in 32 bits, which is exact.

To these instructions both factors have a sign. Numbers without one are taken for 128 less, by their first bit. That and
a zero point are made up for, behind the loop, with the sums of the other factor::

    sum of (a - zero) * b  =  sum of (a ^ 128) * b - (zero - 128) * sum of b          # a has no sign
    sum of (a - zero) * b  =  sum of a * b - zero * sum of b                          # it has one
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from covan_mlir.fred.chain import Chain, Input, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Read, Window
from covan_mlir.lowering.kernels.cuda.layout import Layout
from covan_mlir.lowering.kernels.cuda.schedule import LEAST
from covan_mlir.lowering.kernels.cuda.tiles import I32, Tile
from covan_mlir.lowering.kernels.dense.chain import is_unsigned, stored, without_zero
from covan_mlir.lowering.kernels.dense.matrix_product import MatrixProduct
from covan_mlir.lowering.kernels.errors import UnsupportedError

DEPTH = 32
"""Contracted positions that the instructions take at least."""
_TURNED = 128


@dataclass(frozen=True)
class IntegerTerms:
    """What is summed in the place of products.

    Attributes:
        products: of numbers with a sign.
        other: the factor whose sums make up for what these are too much; it is 0 where there is nothing.
        excess: what is multiplied too much of each number of the first one.
    """

    products: Expr
    other: Expr
    excess: int


class IntegerEvaluator(Protocol):
    """Reads factors; `covan_mlir.lowering.kernels.cuda.expressions.TileEvaluator` says more."""

    @property
    def layout(self) -> Layout:
        """Where the axes of the chain are."""

    def element(self, expr: Read | Window) -> Tile:
        """An input's elements as they are in memory; 0, or what is outside of a window, where there are none."""


def integer_terms(product: MatrixProduct) -> IntegerTerms:
    """The terms of a sum of products of integers.

    Raises:
        UnsupportedError: there is no matrix instruction for them.
    """
    if product.step.dtype != "i32":
        raise UnsupportedError(f"{product.step.name} is a sum of integers of other than 32 bits")
    for factor, other in ((product.left, product.right), (product.right, product.left)):
        one, second = _taken(product.chain, factor), _taken(product.chain, other)
        if one is None or second is None:
            raise UnsupportedError("a factor is no integer of 8 bits, with a number taken off it or none")
        if second[1] == 0 and isinstance(stored(second[0]), Read):
            pair = (one[0], second[0]) if factor is product.left else (second[0], one[0])
            return IntegerTerms(Apply("arith.muli", pair, "i32"), second[0], one[1])
    raise UnsupportedError("neither factor is an integer with a sign and without a zero point")


def _taken(chain: Chain, factor: Expr) -> tuple[Expr, int] | None:
    """-> (a factor as it is multiplied, what it is too much)."""
    widened, zero = without_zero(factor)
    element = stored(widened)
    if element is widened or not isinstance(element, Read | Window):
        return None
    value = chain.values.get(element.name)
    if not isinstance(value, Input) or value.dtype != "i8":
        return None
    if is_unsigned(widened):
        turned = Apply("arith.xori", (element, Const(-_TURNED, "i8")), "i8")
        return Apply("arith.extsi", (turned,), "i32"), zero - _TURNED
    return widened, zero


def integer_sum(evaluator: IntegerEvaluator, step: Reduce, over: tuple[str, ...]) -> Tile | None:
    """One of such sums: of products, as a matrix product, or of a factor; None if it is none, or too small."""
    if step.combine != "add" or step.dtype != "i32" or len(over) != 1 or not isinstance(step.expr, Apply):
        return None
    result = evaluator.layout.dims_of(frozenset(step.axes))
    if step.expr.op != "arith.muli":
        tile = _operand(evaluator, step.expr)
        if tile is None or tile.dims == over or {*tile.dims} != {*result, *over}:
            return None
        text = f"tl.sum({tile.text}.to(tl.int32), {tile.dims.index(over[0])})"
        return replace(tile, text=text, dims=result, dtype="i32", limits=I32)
    tiles = [_operand(evaluator, factor) for factor in step.expr.args]
    sides = {tuple(sorted(tile.dims)): tile for tile in tiles if tile is not None}
    blocks = {dim.name: dim.block for dim in evaluator.layout.dims}
    if len(result) != 2 or blocks[over[0]] < DEPTH or min(blocks[name] for name in result) < LEAST:
        return None
    left, right = (sides.get(tuple(sorted((name, *over)))) for name in result)
    if left is None or right is None:
        return None
    texts = _in_order(left, (result[0], *over)), _in_order(right, (*over, result[1]))
    return Tile(
        f"tl.dot({', '.join(texts)}, out_dtype=tl.int32)", result, "i32", limits=I32, steps=left.steps | right.steps
    )


def _operand(evaluator: IntegerEvaluator, factor: Expr) -> Tile | None:
    """A number with a sign, of 8 bits."""
    if not isinstance(factor, Apply) or factor.op != "arith.extsi":
        return None
    (element,) = factor.args
    if isinstance(element, Apply) and element.op == "arith.xori" and isinstance(mask := element.args[1], Const):
        inner = element.args[0]
        tile = evaluator.element(inner) if isinstance(inner, Read | Window) else None
        return None if tile is None else replace(tile, text=f"({tile.text} ^ {mask.value})")
    return evaluator.element(element) if isinstance(element, Read | Window) and element.dtype == "i8" else None


def _in_order(tile: Tile, dims: tuple[str, ...]) -> str:
    return tile.text if tile.dims == dims else f"tl.trans({tile.text})"
