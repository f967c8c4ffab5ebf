"""What the axes and steps of a chain are whose products meet in tiles of one intermediate value.

An intermediate value with many rows and many columns, say the weights of attention, comes from products of few terms,
and products along its rows and along its columns are all that is made of it::

    s[b, i, j]  = add over d: q[b, i, d] * k[b, j, d]      # inner products, each over an axis of its own
    p[b, i, j]  = f(s[b, i, j], statistics[b, i], ...)     # element by element
    y[b, j, f]  = add over i: p[b, i, j] * g[b, i, f]      # sums over the rows
    z[b, i, h]  = add over j: p[b, i, j] * w[b, j, h]      # sums over the columns

Nothing that such sums give is read by what they sum: then a tile of the value can be computed, used and forgotten.
Gradients of attention are such chains, with the statistics of its rows given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Read, reads
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope


@dataclass(frozen=True)
class InnerProduct:
    """A product that gives elements of the tiles.

    Attributes:
        row: the factor that has rows, of inputs.
        column: the factor that has columns.
        depth: the axis that it sums over.
    """

    step: Reduce
    row: Expr
    column: Expr
    depth: str


@dataclass(frozen=True)
class TileSum:
    """A sum of elements of the tiles times a factor.

    Attributes:
        part: the factor that has rows and columns: of inner products, and of inputs.
        factor: the other one, of inputs.
        over: the tiles' rows or columns.
        feature: the axis that only the factor has.
        results: names of the outputs that are made of it, element by element, or are it.
    """

    step: Reduce
    part: Expr
    factor: Expr
    over: str
    feature: str
    results: tuple[str, ...]


@dataclass(frozen=True)
class TileRoles:
    """Roles of axes and steps.

    Attributes:
        batch: axes that everything but some inputs has.
        rows: of tiles.
        columns: of tiles.
    """

    chain: Chain
    batch: tuple[str, ...]
    rows: str
    columns: str
    inner: tuple[InnerProduct, ...]
    sums: tuple[TileSum, ...]

    @property
    def parts(self) -> tuple[Expr, ...]:
        """What is summed of the tiles, each once."""
        return tuple(dict.fromkeys(one.part for one in self.sums))

    @property
    def read_by_blocks(self) -> tuple[tuple[Expr, str, str], ...]:
        """Factors that are read along an axis for a block of another one: (factor, that one, the axis)."""
        read = [(one.row, self.rows, one.depth) for one in self.inner]
        return tuple(dict.fromkeys([*read, *((one.factor, one.over, one.feature) for one in self.sums)]))


def tile_roles(chain: Chain) -> TileRoles:
    """Roles of a chain's axes and steps.

    Raises:
        UnsupportedError: it is no such chain.
    """
    names = {step.name for step in chain.reductions}
    read = {name: chain.depends(name) & names for name in names}
    inside = frozenset[str]().union(*read.values())
    inner = [step for step in chain.reductions if step.name in inside]
    outer = [step for step in chain.reductions if step.name not in inside]
    if not inner or any(read[step.name] for step in inner):
        raise UnsupportedError("no reduction reads products, or those read others")
    if any(step.combine != "add" or step.initial.value != 0 or len(step.over) != 1 for step in chain.reductions):
        raise UnsupportedError("something is reduced that is no sum over one axis")
    tile = frozenset(inner[0].axes)
    if any(frozenset(step.axes) != tile for step in inner) or any(not tile >= {*step.over} for step in outer):
        raise UnsupportedError("its products have no rows and columns in common")
    scope = Scope(chain, {})
    factors = {step.name: _factors(step, chain, scope, inside) for step in outer}
    rows, columns = _rows_and_columns(inner[0].axes, outer, factors, scope)
    batch = tuple(axis for axis in inner[0].axes if axis not in (rows, columns))
    products = tuple(_inner(step, scope, {*batch}, rows, columns) for step in inner)
    sums = tuple(_sum(step, chain, factors[step.name], scope, {*batch}, {rows, columns}) for step in outer)
    if beside := {*chain.outputs} - {name for one in sums for name in one.results}:
        raise UnsupportedError(f"{', '.join(sorted(beside))} would be in memory as a whole")
    return TileRoles(chain, batch, rows, columns, products, sums)


def _factors(step: Reduce, chain: Chain, scope: Scope, inside: frozenset[str]) -> tuple[Expr, Expr]:
    """Of a sum over tiles: what reads products, and the other factor."""
    product = scope.inlined(step.expr)
    if isinstance(product, Apply) and product.op == "arith.mulf":
        for part, factor in (product.args, product.args[::-1]):
            if reads(part) & inside and not reads(factor) & inside:
                return part, factor
    raise UnsupportedError(f"{step.name} sums no products of tiles with an input")


def _rows_and_columns(
    axes: tuple[str, ...], outer: list[Reduce], factors: dict[str, tuple[Expr, Expr]], scope: Scope
) -> tuple[str, str]:
    """Rows are what most sums run over: these are kept until a block of columns is done."""
    counts = Counter(step.over[0] for step in outer)
    if len(counts) == 1:
        step = outer[0]
        kept = [axis for axis in axes if axis in step.axes and axis not in scope.axes(factors[step.name][1])]
        counts.update(dict.fromkeys(kept, 0))
    if len(counts) != 2:
        raise UnsupportedError(f"its sums run over {len(counts)} axes of the products")
    rows, columns = sorted(counts, key=lambda axis: (-counts[axis], axes.index(axis)))
    return rows, columns


def _inner(step: Reduce, scope: Scope, batch: set[str], rows: str, columns: str) -> InnerProduct:
    product, (depth,) = scope.inlined(step.expr), step.over
    if isinstance(product, Apply) and product.op == "arith.mulf":
        for row, column in (product.args, product.args[::-1]):
            if _along(row, scope, batch, rows, depth) and _along(column, scope, batch, columns, depth):
                return InnerProduct(step, row, column, depth)
    raise UnsupportedError(f"{step.name} is no product of a factor of its rows and one of its columns")


def _along(expr: Expr, scope: Scope, batch: set[str], axis: str, other: str) -> bool:
    """Whether an expression has two axes, and of all others only some of the batch's."""
    axes = scope.axes(expr)
    return {axis, other} <= axes <= {axis, other, *batch} and not isinstance(expr, Const)


def _sum(
    step: Reduce, chain: Chain, factors: tuple[Expr, Expr], scope: Scope, batch: set[str], tile: set[str]
) -> TileSum:
    (part, factor), (over,) = factors, step.over
    kept = {*step.axes} - batch - tile
    if len(kept) != 1 or {*step.axes} != {*batch, *kept, *(tile - {over})}:
        raise UnsupportedError(f"{step.name} has the axes {', '.join(step.axes)}, which are not those of a product")
    (feature,) = kept
    if not _along(factor, scope, batch, over, feature) or not scope.axes(part) <= batch | tile:
        raise UnsupportedError(f"{step.name} is no product of tiles with an input that has {over} and {feature}")
    results = tuple(name for name in chain.outputs if name == step.name or step.name in chain.depends(name))
    for name in results:
        result = chain.values[name]
        sums = chain.depends(name) & {other.name for other in chain.reductions} - {step.name}
        others = sums - chain.depends(step.name)
        if name != step.name and (not isinstance(result, Map) or {*result.axes} != {*step.axes} or others):
            raise UnsupportedError(f"{name} is not made of {step.name} alone, element by element")
    return TileSum(step, part, factor, over, feature, results)


def plain(expr: Expr, chain: Chain, axis: str) -> Read | None:
    """The input that an expression is, as it lies in memory, contiguous along an axis; None if it is none."""
    if not isinstance(expr, Read):
        return None
    value = next((value for value in chain.inputs if value.name == expr.name), None)
    return expr if value is not None and value.axes[-1:] == (axis,) and value.dtype in ("f32", "f64") else None
