"""The inner loop of sums of products along what is contracted: a tile of partial sums in registers.

::

    tile[rows, columns] = 0                               # a vector each
    for k step lanes:
        tile[rows, columns] += left[rows, k] * right[columns, k]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.register_tile import Factors, Place, Tile, outer_products

VectorAlong = Callable[[int, Place, Value | None], Value]
"""A vector of a factor along what is contracted, by number of its row or column, position, and mask of what exists."""


def dot_products(
    code: KernelBuilder,
    ranges: Sequence[tuple[str, Value | int, Size]],
    along: str,
    total: Size,
    tile: Tile,
    left: VectorAlong,
    right: VectorAlong,
) -> Tile:
    """The tile of partial sums: its lanes are still to be summed.

    Args:
        ranges: contracted axes that are looped over before ``along``, see `outer_products`.
        along: the axis that vectors run along, of so many positions.
        tile: what is added to.
    """
    lanes = code.lanes

    def factors(mask: Value | None) -> Factors:
        def there(place: Place) -> Place:
            return {**place, along: code.mul(place[along], lanes)}

        return Factors(
            lambda i, place, tap: left(i, there(place), mask), lambda u, place, tap: right(u, there(place), mask)
        )

    whole = total // lanes if isinstance(total, int) else code.divmod(total, lanes)[0]
    if not isinstance(whole, int) or whole:
        tile = outer_products(code, [*ranges, (along, 0, whole)], tile, factors(None))
    if not isinstance(total, int) or total % lanes:
        left_over = code.prefix(code.op("subi", code.size(total), code.size(code.mul(whole, lanes))))
        end = whole + 1 if isinstance(whole, int) else code.add(whole, 1)
        tile = outer_products(code, [*ranges, (along, whole, end)], tile, factors(left_over))
    return tile
