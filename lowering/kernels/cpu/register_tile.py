"""The inner loop of products: a tile of accumulators in registers, to which outer products are added.

::

    accumulators[rows, vectors] = initial
    for k in contracted positions:
        for tap in taps:                                  # written out
            columns[vectors] = vector(k, tap)             # loads
            for i in rows:
                accumulators[i, :] += scalar(i, k, tap) * columns      # broadcasts from memory, fused multiply-adds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value

Place = Mapping[str, Value]
"""A position on each contracted axis that is looped over."""

Tile = list[list[Value]]
"""Vectors, by row and vector of columns."""


FEW_REGISTERS = (
    (4, 3),
    (6, 2),
    (5, 2),
    (4, 2),
    (3, 3),
    (2, 5),
    (2, 4),
    (12, 1),
    (8, 1),
    (4, 1),
    (2, 2),
    (1, 7),
    (1, 4),
    (1, 1),
)
"""Rows and vectors of tiles where registers are 16: all but a few accumulate."""


def register_tiles(registers: int, most: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Rows and vectors of the tiles that registers hold, with vectors of columns and a scalar beside them.

    Args:
        registers: vector registers of a machine.
        most: tiles for machines that have 32.
    """
    shapes = most if registers >= 32 else FEW_REGISTERS
    return tuple((rows, vectors) for rows, vectors in shapes if (rows + 1) * vectors + 1 <= registers)


@dataclass(frozen=True)
class Factors:
    """What is multiplied, in the element type of the accumulators.

    Attributes:
        scalar: of a row, at a position, of a tap; None: the vectors themselves are combined.
        vector: of a vector of columns.
        taps: positions that are written out.
        step: positions on the last axis that a scalar and a vector hold.
        multiply_add: of sums, a scalar in all lanes and a vector; None: as ``combine`` says.
        combine: operation of the arith dialect.
    """

    scalar: Callable[[int, Place, int], Value] | None
    vector: Callable[[int, Place, int], Value]
    taps: int = 1
    combine: str = "addf"
    step: int = 1
    multiply_add: Callable[[Value, Value, Value], Value] | None = None


def outer_products(
    code: KernelBuilder, ranges: Sequence[tuple[str, Value | int, Size]], tile: Tile, factors: Factors
) -> Tile:
    """The tile after the loop nest.

    Args:
        ranges: axis, first position and end of each loop, outermost first.
        tile: what is added to.
    """
    rows, vectors = len(tile), len(tile[0])

    def nest(level: int, place: dict[str, Value], held: list[Value]) -> list[Value]:
        if level < len(ranges):
            axis, start, stop = ranges[level]
            step = factors.step if level == len(ranges) - 1 else 1
            return code.loop(start, stop, step, held, lambda at, inner: nest(level + 1, {**place, axis: at}, inner))
        for tap in range(factors.taps):
            columns = [factors.vector(u, place, tap) for u in range(vectors)]
            new: list[Value] = []
            for i in range(rows):
                scalar = code.broadcast(factors.scalar(i, place, tap)) if factors.scalar is not None else None
                for u in range(vectors):
                    new.append(_added(code, factors, held[i * vectors + u], scalar, columns[u]))
            held = new
        return held

    flat = nest(0, {}, [value for row in tile for value in row])
    return [flat[i * vectors : (i + 1) * vectors] for i in range(rows)]


def _added(code: KernelBuilder, factors: Factors, sums: Value, scalar: Value | None, column: Value) -> Value:
    if scalar is None:
        return code.op(factors.combine, sums, column)
    if factors.multiply_add is not None:
        return factors.multiply_add(sums, scalar, column)
    return code.op(factors.combine, sums, code.op("mulf", scalar, column))
