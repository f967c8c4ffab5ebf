"""Chains whose products meet in tiles of one intermediate value, which is never in memory as a whole.

For the gradients of attention, with queries q[i, d], keys k[j, d], values v[j, e], slopes o[i, e] and the statistics of
rows given, a workgroup runs this nest for one position of the other axes::

    z[i, d] = 0                                        # sums over columns: in the memory of their results
    for columns in blocks of j:
        keys[d, j], values[e, j] = k[j, d], v[j, e]    # transposed in registers; in scratch, like all tiles
        y[j, :] = 0                                    # sums over rows
        for rows in blocks of i:                       # those that masks leave
            s[i, j] = add over d: q[i, d] * keys[d, j]           # register tiles, lanes along j
            t[i, j] = add over e: o[i, e] * values[e, j]
            p[i, j], u[i, j] = elements of s and t               # in their place
            y[j, e] += add over i: p[i, j] * o[i, e]             # register tiles, lanes along e and d
            y[j, d] += add over i: u[i, j] * q[i, d]
            z[i, d] += add over j: u[i, j] * k[j, d]
        results of y
    results of z, in place

The vectors of all sums but the first two are read in place, and what is multiplied with them is broadcast from memory.
After Dao, FlashAttention-2 (2023), section 3.1.2, whose loops are these; here they follow from what the chain reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.expression import Expr, Read
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, Position, VectorEvaluator, address, inputs, narrow
from covan_mlir.lowering.kernels.cpu.loop_range import loop_range
from covan_mlir.lowering.kernels.cpu.register_tile import Factors, outer_products
from covan_mlir.lowering.kernels.cpu.shared_tile_schedule import SharedTileSchedule
from covan_mlir.lowering.kernels.cpu.tiles import ScratchTile, padded
from covan_mlir.lowering.kernels.reductions.masks import Span
from covan_mlir.lowering.kernels.reductions.tile_roles import InnerProduct, TileRoles, TileSum, plain

Scalar = Callable[[Value, Value], Value]
"""An element of a factor, by row in its block and position on the other axis."""
VectorAt = Callable[[Value, Value, Value | None], Value]
"""A vector of a factor, by row in its block, first position on the other axis, and mask of what exists."""


@dataclass(frozen=True)
class Block:
    """Some positions of an axis.

    Attributes:
        first: the first one.
        count: how many there are; fewer than its tiles have where the axis ends before.
    """

    axis: str
    first: Value
    count: Value | int


@dataclass(frozen=True)
class SharedTiles:
    """Scratch of a workgroup.

    Attributes:
        panels: by inner product: its factor of columns, transposed.
        products: by inner product: what it gives.
        parts: what is summed of a tile.
        kept: by sum over rows: what it has so far.
        staged: by factor, and the axis whose blocks it is read by: what is not in memory as it is read.
    """

    panels: Mapping[str, ScratchTile]
    products: Mapping[str, ScratchTile]
    parts: Mapping[Expr, ScratchTile]
    kept: Mapping[str, ScratchTile]
    staged: Mapping[tuple[Expr, str], ScratchTile]


class SharedTileWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self,
        code: KernelBuilder,
        sizes: Mapping[str, int],
        schedule: SharedTileSchedule,
        roles: TileRoles,
        span: Span,
    ) -> None:
        self.code, self.sizes, self.schedule, self.roles, self.span = code, sizes, schedule, roles, span
        self.chain = roles.chain
        self.dtype = computed(roles.sums[0].step.dtype)
        self.evaluator = VectorEvaluator(code, self.chain, inputs(code, self.chain, sizes))
        self.batch: dict[str, Value] = {}

    @cached_property
    def tiles(self) -> SharedTiles:
        """The kernel's scratch."""
        code, roles, sizes, lanes = self.code, self.roles, self.sizes, self.code.lanes
        rows, columns = self.schedule.rows, self.schedule.columns

        def tile(height: int, width: int) -> ScratchTile:
            return ScratchTile.make(code, height, width // lanes, self.dtype)

        products = {one.step.name: tile(rows, columns) for one in roles.inner}
        free = list(products.values())
        staged: dict[tuple[Expr, str], ScratchTile] = {}
        for expr, axis, other in roles.read_by_blocks:
            if plain(expr, self.chain, other) is None:
                staged[expr, axis] = tile(rows if axis == roles.rows else columns, padded(sizes[other], lanes))
        return SharedTiles(
            panels={one.step.name: tile(padded(sizes[one.depth], lanes), columns) for one in roles.inner},
            products=products,
            # Elements are written where products were, which nobody reads behind them.
            parts={part: free.pop(0) if free else tile(rows, columns) for part in roles.parts},
            kept={
                one.step.name: tile(columns, padded(sizes[one.feature], lanes))
                for one in roles.sums
                if one.over == roles.rows
            },
            staged=staged,
        )

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """See `Writer`."""
        return self.code.product(sizes[axis] for axis in self.roles.batch)

    def write(self) -> None:
        """See `Writer`."""
        code, roles = self.code, self.roles
        rest = code.workgroup
        for axis in reversed(roles.batch):
            rest, self.batch[axis] = code.divmod(rest, self.sizes[axis])
        beside = [one for one in roles.sums if one.over == roles.columns]
        for one in beside:
            self._each_result(one, Block(roles.rows, code.index(0), self.sizes[roles.rows]), self._clear)
        self._blocks(roles.columns, 0, self.sizes[roles.columns], self.schedule.columns, self._columns)
        for one in beside:
            if one.results != (one.step.name,):
                self._each_result(one, Block(roles.rows, code.index(0), self.sizes[roles.rows]), self._finish)

    def _blocks(
        self, axis: str, low: Value | int, high: Value | int, length: int, body: Callable[[Block], None]
    ) -> None:
        """Runs through an axis by blocks."""
        code, size = self.code, self.sizes[axis]

        def block(first: Value, _: list[Value]) -> list[Value]:
            whole = size % length == 0
            body(Block(axis, first, length if whole else code.min(code.op("subi", code.index(size), first), length)))
            return []

        code.loop(low, high, length, [], block)

    # A block of columns

    def _columns(self, columns: Block) -> None:
        code, roles = self.code, self.roles
        for inner in roles.inner:
            self._pack(inner, columns)
        for tile in self.tiles.kept.values():
            tile.fill(self.schedule.columns, code.splat(0.0, self.dtype))
        self._stage(roles.columns, columns)
        first = {**self.batch, columns.axis: columns.first}
        last = {**first, columns.axis: code.min(code.add(columns.first, self.schedule.columns - 1), self._end(columns))}
        low, high = loop_range(code, self.span, self.sizes, self.schedule.rows, first, last)
        if not isinstance(high, int):
            high = code.min(high, self.sizes[roles.rows])
        self._blocks(roles.rows, low, high, self.schedule.rows, lambda rows: self._tile_of(rows, columns))
        for one in roles.sums:
            if one.over == roles.rows:
                self._each_result(one, columns, self._finish)

    def _end(self, block: Block) -> Value:
        return self.code.index(self.sizes[block.axis] - 1)

    def _clamped(self, block: Block, at: Value | int) -> Value:
        """A position of a block by number, or the axis' last one."""
        position = self.code.add(block.first, at)
        return position if isinstance(block.count, int) else self.code.min(position, self._end(block))

    def _pack(self, one: InnerProduct, columns: Block) -> None:
        def read(column: Value, row: Value, valid: Value | None) -> Value:
            index = {**self.batch, columns.axis: self._clamped(columns, column), one.depth: row}
            return self.evaluator.vector(one.column, Position(index, one.depth, valid))

        depth = self.sizes[one.depth]
        self.tiles.panels[one.step.name].pack(depth, read, depth)

    def _stage(self, axis: str, block: Block) -> None:
        """What is not in memory as it is read is computed once for a block."""
        code = self.code
        for expr, own, other in self.roles.read_by_blocks:
            tile = self.tiles.staged.get((expr, own))
            if own != axis or tile is None:
                continue

            def row(
                n: Value, _: list[Value], expr: Expr = expr, other: str = other, tile: ScratchTile = tile
            ) -> list[Value]:
                def vector(u: Value, valid: Value | None) -> None:
                    index = {**self.batch, axis: self._clamped(block, n), other: code.mul(u, code.lanes)}
                    value = self.evaluator.vector(expr, Position(index, other, valid))
                    code.store(value, tile.memory, tile.offset(n, u))

                self._vectors(other, vector)
                return []

            code.loop(0, block.count, 1, [], row)

    def _vectors(self, axis: str, body: Callable[[Value, Value | None], None]) -> None:
        """Runs through an axis by vectors: by the number of each, and its mask."""
        code, size = self.code, self.sizes[axis]

        def one(u: Value, _: list[Value]) -> list[Value]:
            body(u, None)
            return []

        code.loop(0, size // code.lanes, 1, [], one)
        if size % code.lanes:
            body(code.index(size // code.lanes), code.prefix(size % code.lanes))

    # A tile

    def _tile_of(self, rows: Block, columns: Block) -> None:
        self._stage(self.roles.rows, rows)
        for inner in self.roles.inner:
            self._product(inner, rows)
        self._elements(rows, columns)
        for one in self.roles.sums:
            if one.over == self.roles.rows:
                self._sum_rows(one, rows)
            else:
                self._sum_columns(one, rows, columns)

    def _product(self, one: InnerProduct, rows: Block) -> None:
        code, height, vectors = self.code, self.schedule.height, self.schedule.vectors
        panel, tile, depth = self.tiles.panels[one.step.name], self.tiles.products[one.step.name], self.sizes[one.depth]
        read = self._scalar(one.row, rows, one.depth)

        def tiles(n: Value, _: list[Value]) -> list[Value]:
            def group(u: Value, _: list[Value], count: int) -> list[Value]:
                start = [[code.splat(0.0, self.dtype)] * count for _ in range(height)]
                factors = Factors(
                    lambda i, place, tap: read(code.add(n, i), place["k"]),
                    lambda c, place, tap: code.load(panel.memory, panel.offset(place["k"], code.add(u, c))),
                )
                for i, row in enumerate(outer_products(code, [("k", 0, depth)], start, factors)):
                    for c, value in enumerate(row):
                        code.store(value, tile.memory, tile.offset(code.add(n, i), code.add(u, c)))
                return []

            code.spans(0, self.schedule.columns // code.lanes, vectors, [], group)
            return []

        code.loop(0, rows.count, height, [], tiles)

    def _scalar(self, expr: Expr, block: Block, axis: str) -> Scalar:
        code, tile = self.code, self.tiles.staged.get((expr, block.axis))

        def read(row: Value, at: Value) -> Value:
            if tile is not None:
                return code.scalar(tile.memory, code.add(tile.offset(row, 0), at))
            index = {**self.batch, block.axis: self._clamped(block, row), axis: at}
            return self.evaluator.scalar(expr, Position(index, None))

        return read

    def _vector(self, expr: Expr, block: Block, axis: str) -> VectorAt:
        code, tile = self.code, self.tiles.staged.get((expr, block.axis))

        def read(row: Value, at: Value, valid: Value | None) -> Value:
            if tile is not None:
                return code.load(tile.memory, code.add(tile.offset(row, 0), at))
            index = {**self.batch, block.axis: code.add(block.first, row), axis: at}
            return self.evaluator.vector(expr, Position(index, axis, valid))

        return read

    def _elements(self, rows: Block, columns: Block) -> None:
        code, lanes = self.code, self.code.lanes
        valid: list[Value | None] = [None] * (self.schedule.columns // lanes)
        if not isinstance(columns.count, int):
            for u in range(len(valid)):
                valid[u] = code.prefix(code.min(code.max(code.add(columns.count, -u * lanes), 0), lanes))

        def row(n: Value, _: list[Value]) -> list[Value]:
            for u, mask in enumerate(valid):
                given = {name: Lanes(tile.load(n, u)) for name, tile in self.tiles.products.items()}
                index = {
                    **self.batch,
                    rows.axis: code.add(rows.first, n),
                    columns.axis: code.add(columns.first, u * lanes),
                }
                position = Position(index, columns.axis, mask, given)
                values = {part: self.evaluator.vector(part, position) for part in self.tiles.parts}
                for part, value in values.items():
                    if mask is not None:  # of columns that are not there, nothing is summed
                        value = code.op("select", mask, value, code.splat(0.0, self.dtype))
                    self.tiles.parts[part].store(value, n, u)
            return []

        code.loop(0, rows.count, 1, [], row)

    def _sum_rows(self, one: TileSum, rows: Block) -> None:
        code, height = self.code, self.schedule.height
        part, kept = self.tiles.parts[one.part], self.tiles.kept[one.step.name]
        vector = self._vector(one.factor, rows, one.feature)

        def tiles(n: Value, _: list[Value]) -> list[Value]:
            def group(u: Value, count: int, valid: Value | None) -> None:
                def place_of(i: int, c: int) -> Value:
                    return kept.offset(code.add(n, i), code.add(u, c))

                start = [[code.load(kept.memory, place_of(i, c)) for c in range(count)] for i in range(height)]
                factors = Factors(
                    lambda i, place, tap: code.scalar(part.memory, code.add(part.offset(place["i"], 0), n, i)),
                    lambda c, place, tap: vector(place["i"], code.mul(code.add(u, c), code.lanes), valid),
                )
                for i, row in enumerate(outer_products(code, [("i", 0, rows.count)], start, factors)):
                    for c, value in enumerate(row):
                        code.store(value, kept.memory, place_of(i, c))

            self._groups(one.feature, group)
            return []

        code.loop(0, self.schedule.columns, height, [], tiles)

    def _sum_columns(self, one: TileSum, rows: Block, columns: Block) -> None:
        code, height = self.code, self.schedule.height
        part, memory = self.tiles.parts[one.part], code.memory[self._accumulated(one)]
        vector = self._vector(one.factor, columns, one.feature)

        def tiles(first: Value, _: list[Value], there: int) -> list[Value]:
            def group(u: Value, count: int, valid: Value | None) -> None:
                def place_of(i: int, c: int) -> Value:
                    at = {rows.axis: code.add(rows.first, first, i), one.feature: code.mul(code.add(u, c), code.lanes)}
                    return self._place(one, Position({**self.batch, **at}, None))

                start = [[code.load(memory, place_of(i, c), valid) for c in range(count)] for i in range(there)]
                factors = Factors(
                    lambda i, place, tap: code.scalar(
                        part.memory, code.add(part.offset(code.add(first, i), 0), place["j"])
                    ),
                    lambda c, place, tap: vector(place["j"], code.mul(code.add(u, c), code.lanes), valid),
                )
                for i, row in enumerate(outer_products(code, [("j", 0, columns.count)], start, factors)):
                    for c, value in enumerate(row):
                        code.store(value, memory, place_of(i, c), valid)

            self._groups(one.feature, group)
            return []

        if isinstance(rows.count, int):
            code.spans(0, rows.count, height, [], tiles)
        else:
            whole = code.mul(code.divmod(rows.count, height)[0], height)
            code.loop(0, whole, height, [], lambda n, v: tiles(n, v, height))
            code.loop(whole, rows.count, 1, [], lambda n, v: tiles(n, v, 1))

    def _groups(self, axis: str, body: Callable[[Value, int, Value | None], None]) -> None:
        """Runs through an axis by as many vectors as a register tile has: (the first one, how many, mask)."""
        code, size = self.code, self.sizes[axis]

        def group(u: Value, _: list[Value], count: int) -> list[Value]:
            body(u, count, None)
            return []

        code.spans(0, size // code.lanes, self.schedule.vectors, [], group)
        if size % code.lanes:
            body(code.index(size // code.lanes), 1, code.prefix(size % code.lanes))

    # Results

    def _accumulated(self, one: TileSum) -> str:
        """The output in whose memory a sum over columns adds up."""
        return one.results[0]

    def _place(self, one: TileSum, position: Position) -> Value:
        """Where it has what it adds up at a position."""
        return address(self.code, self.chain.values[self._accumulated(one)].axes, self.sizes, position)[0]

    def _each_result(
        self, one: TileSum, block: Block, body: Callable[[TileSum, Block, Value, Value, Value | None], None]
    ) -> None:
        """Runs through what a sum has for a block."""

        def row(n: Value, _: list[Value]) -> list[Value]:
            self._vectors(one.feature, lambda u, valid: body(one, block, n, u, valid))
            return []

        self.code.loop(0, block.count, 1, [], row)

    def _at(self, one: TileSum, block: Block, n: Value, u: Value, valid: Value | None) -> Position:
        at = {block.axis: self.code.add(block.first, n), one.feature: self.code.mul(u, self.code.lanes)}
        return Position({**self.batch, **at}, one.feature, valid)

    def _clear(self, one: TileSum, block: Block, n: Value, u: Value, valid: Value | None) -> None:
        code, position = self.code, self._at(one, block, n, u, valid)
        code.store(code.splat(0.0, self.dtype), code.memory[self._accumulated(one)], self._place(one, position), valid)

    def _finish(self, one: TileSum, block: Block, n: Value, u: Value, valid: Value | None) -> None:
        code, position = self.code, self._at(one, block, n, u, valid)
        tile = self.tiles.kept.get(one.step.name)
        if tile is not None:
            total = code.load(tile.memory, tile.offset(n, u))
        else:
            total = code.load(code.memory[self._accumulated(one)], self._place(one, position), valid)
        position = Position(position.index, position.lane, valid, {one.step.name: Lanes(total)})
        values = {name: self.evaluator.vector(Read(name, ""), position) for name in one.results}
        for name, value in values.items():
            step = self.chain.values[name]
            at, distance = address(code, step.axes, self.sizes, position)
            code.scatter(narrow(code, value, step.dtype), code.memory[name], at, distance, valid)


def sum_over_columns_in_memory(one: TileSum, roles: TileRoles) -> str | None:
    """Why a sum over columns cannot add up in the memory of its first result, or None."""
    result = roles.chain.values[one.results[0]]
    if {*result.axes} != {*one.step.axes} or result.dtype != one.step.dtype or computed(result.dtype) != result.dtype:
        return f"{result.name} is no memory to add {one.step.name} up in"
    if result.axes[-1] != one.feature:
        return f"{result.name} is not contiguous along {one.feature}"
    return None
