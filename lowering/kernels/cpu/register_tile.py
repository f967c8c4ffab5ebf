"""The inner loop of products: a tile of accumulators in registers, to which outer products are added.

::

    accumulators[rows, vectors] = initial
    for k in contracted positions:
        columns[vectors] = vector(k)                      # loads
        for i in rows:
            accumulators[i, :] += scalar(i, k) * columns  # a broadcast from memory, and fused multiply-adds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value

Place = Mapping[str, Value]
"""A position on each contracted axis."""


@dataclass(frozen=True)
class Factors:
    """What is multiplied, at a position on the contracted axes.

    Attributes:
        scalar: of a row, in the element type of the accumulators.
        vector: of a vector of columns.
    """

    scalar: Callable[[int, Place], Value]
    vector: Callable[[int, Place], Value]


def outer_products(
    code: KernelBuilder,
    ranges: Sequence[tuple[str, Value | int, Size]],
    tile: Sequence[Sequence[Value]],
    factors: Factors,
) -> list[list[Value]]:
    """The tile after the loop nest.

    Args:
        ranges: axis, first position and end of each loop, outermost first. A range of one or a few positions that
            are known numbers is better written out by the factors' caller than given here.
        tile: accumulators, by row and vector.
    """
    rows, vectors = len(tile), len(tile[0])

    def nest(level: int, place: dict[str, Value], held: list[Value]) -> list[Value]:
        if level < len(ranges):
            axis, start, stop = ranges[level]
            return code.loop(start, stop, 1, held, lambda at, inner: nest(level + 1, {**place, axis: at}, inner))
        columns = [factors.vector(u, place) for u in range(vectors)]
        new: list[Value] = []
        for i in range(rows):
            scalar = code.broadcast(factors.scalar(i, place))
            for u in range(vectors):
                new.append(code.op("addf", held[i * vectors + u], code.op("mulf", scalar, columns[u])))
        return new

    flat = nest(0, {}, [value for row in tile for value in row])
    return [flat[i * vectors : (i + 1) * vectors] for i in range(rows)]
