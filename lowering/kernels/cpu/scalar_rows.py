"""What is read as scalars in a product, staged in scratch where it is not in memory as it is multiplied: halves, and
what is computed from inputs.

::

    scalars[i, k] = widened(a[i, k])                      # vectors along the last contracted axis
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Input, Step
from covan_mlir.fred.expression import Expr, Read
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator, address
from covan_mlir.lowering.kernels.cpu.register_tile import Place
from covan_mlir.lowering.kernels.cpu.row_tiles import RowTiles
from covan_mlir.lowering.kernels.dense.chain import DenseChain


def in_place(chain: Chain, expr: Expr) -> bool:
    """Whether scalars are read where they lie in memory."""
    return isinstance(expr, Read) and computed(dtype := chain.values[expr.name].dtype) == dtype


def weight_by_rows(chain: DenseChain, expr: Expr | None, rows: Sequence[str], *others: Expr) -> Input | None:
    """The weight that is read as scalars, in place, by rows of one axis, where it can be packed by them.

    Args:
        others: factors that must not read it.
    """
    if expr is None or not in_place(chain.chain, expr) or len(rows) != 1:
        return None
    weight = chain.packable(expr, *others)
    return weight if weight is not None and rows[0] in weight.axes else None


def asked_weight(chain: Chain, expr: Expr | None, rows: Sequence[str]) -> Input | None:
    """The weight that is read as scalars, in place, by rows of one axis: it comes from memory, in runs as short as a
    row, of which no machine foresees where the next tile's begin."""
    if not isinstance(expr, Read) or not in_place(chain, expr) or len(rows) != 1:
        return None
    value = chain.values[expr.name]
    return value if isinstance(value, Input) and value.weight and rows[0] in value.axes else None


def side_by_side(chain: Chain, expr: Expr, rows: Sequence[str]) -> Input | Step | None:
    """What is read as scalars, in place, where those of a tile lie next to each other and the next position of what is
    contracted far behind them: another core may have written it just now, and no machine foresees such steps."""
    if not isinstance(expr, Read) or not in_place(chain, expr):
        return None
    value = chain.values[expr.name]
    return value if value.axes and value.axes[-1:] == tuple(rows[-1:]) else None


def ask_next(
    code: KernelBuilder,
    weight: Input,
    sizes: Mapping[str, Size],
    index: Place,
    axis: str,
    rows: int,
    position: Value,
    *,
    near: bool,
) -> None:
    """Asks for a scalar of the next tile's rows, of each of them in turn.

    Args:
        index: of the first row of this tile, at a position of what is contracted.
        axis: of the rows.
        rows: of a tile; at most as many as a cache line has elements, so that none of their lines is left out.
        position: of what is contracted.
        near: into the first cache.
    """
    turn = code.divmod(position, rows)[1]
    at, _ = address(code, weight.axes, sizes, Position({**index, axis: code.add(index[axis], rows, turn)}, None))
    code.prefetch(code.memory[weight.name], at, near=near)


def row_length(sizes: Mapping[str, int], contracted: Sequence[str], depth: int, lanes: int) -> int:
    """Elements of scratch that a row takes."""
    length = depth
    for axis in contracted[1:]:
        length *= sizes[axis]
    return -(-length // lanes) * lanes


@dataclass(frozen=True)
class ScalarRows:
    """The scalars of a group of rows and a block of the first contracted axis.

    Attributes:
        contracted: axes that the scalars have besides those of rows, the one that is contiguous in memory last.
        pitch: from one row to the next.
    """

    code: KernelBuilder
    evaluator: VectorEvaluator
    expr: Expr
    rows: RowTiles
    contracted: Sequence[str]
    sizes: Mapping[str, Size]
    pitch: int
    memory: Value

    def _offset(self, row: Value, place: Place) -> Value:
        code, flat = self.code, self.code.index(0)
        for n, axis in enumerate(self.contracted):
            flat = code.add(code.mul(flat, self.sizes[axis] if n else 1), place[axis])
        return code.add(code.mul(row, self.pitch), flat)

    def load(self, row: Value, place: Place, tap: int = 0) -> Value:
        """A scalar; rows count from the group's first, positions on the first contracted axis from the block's."""
        return self.code.scalar(self.memory, self._offset(row, place))

    def fill(self, outer: Mapping[str, Value], first: Value, start: Value, count: Size) -> None:
        """Stages a block.

        Args:
            first: row.
            start, count: of the first contracted axis.
        """
        code, (*before, last) = self.code, self.contracted
        total = self.rows.count(self.sizes)
        rows = code.min(code.op("subi", code.size(total), first), self.rows.group)

        def one(row: Value, none: list[Value]) -> list[Value]:
            index = {**outer, **self.rows.position(code.add(first, row), self.sizes)}
            self._nest(row, index, [*before], last, {}, start, count)
            return none

        code.loop(0, rows, 1, [], one)

    def _nest(
        self,
        row: Value,
        index: Mapping[str, Value],
        axes: list[str],
        last: str,
        place: dict[str, Value],
        start: Value,
        count: Size,
    ) -> None:
        code, split, lanes = self.code, self.contracted[0], self.code.lanes
        if axes:

            def level(at: Value, none: list[Value]) -> list[Value]:
                self._nest(row, index, axes[1:], last, {**place, axes[0]: at}, start, count)
                return none

            code.loop(0, count if axes[0] == split else self.sizes[axes[0]], 1, [], level)
            return
        size = count if last == split else self.sizes[last]

        def chunk(at: Value, none: list[Value]) -> list[Value]:
            known = {**place, last: at}
            mask = code.prefix(code.min(code.op("subi", code.size(size), at), lanes))
            there = {**index, **known, split: code.add(start, known[split])}
            value = self.evaluator.vector(self.expr, Position(there, last, mask))
            # What is written beyond the end is written again, or is not read.
            code.store(value, self.memory, self._offset(row, known))
            return none

        code.loop(0, size, lanes, [], chunk)
