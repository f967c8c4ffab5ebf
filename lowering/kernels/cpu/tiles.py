"""Register tiles and scratch tiles: what the generator moves between memory and registers as a whole.

A scratch tile holds a value for a block of positions of one axis (its rows) and a group of positions of the lane axis
(its columns, contiguous). Where memory has the other order, blocks are transposed in registers on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value


def transpose(code: KernelBuilder, vectors: Sequence[Value]) -> list[Value]:
    """A square block of as many vectors as they have lanes, transposed by shuffles."""
    lanes = code.lanes
    rows = list(vectors)
    size = 1
    while size < lanes:
        low = [n if not n & size else lanes + n - size for n in range(lanes)]
        high = [n + size if not n & size else lanes + n for n in range(lanes)]
        for j in range(lanes):
            if not j & size:
                a, b = rows[j], rows[j + size]
                rows[j], rows[j + size] = code.shuffle(a, b, low), code.shuffle(a, b, high)
        size *= 2
    return rows


@dataclass(frozen=True)
class ScratchTile:
    """A scratch tile: ``rows`` rows of ``vectors`` vectors."""

    code: KernelBuilder
    memory: Value
    vectors: int

    @staticmethod
    def make(code: KernelBuilder, rows: int, vectors: int, dtype: str) -> ScratchTile:
        """A tile in the stack frame."""
        return ScratchTile(code, code.scratch(rows * vectors * code.lanes, dtype), vectors)

    def offset(self, row: Value, u: int | Value) -> Value:
        """Where a vector begins."""
        column = u * self.code.lanes if isinstance(u, int) else self.code.mul(u, self.code.lanes)
        return self.code.add(self.code.mul(row, self.vectors * self.code.lanes), column)

    def load(self, row: Value, u: int) -> Value:
        """The vector ``u`` of a row."""
        return self.code.load(self.memory, self.offset(row, u))

    def store(self, value: Value, row: Value, u: int) -> None:
        """Writes the vector ``u`` of a row."""
        self.code.store(value, self.memory, self.offset(row, u))

    def fill(self, rows: int, value: Value) -> None:
        """Writes one vector everywhere."""

        def body(n: Value, _: list[Value]) -> list[Value]:
            for u in range(self.vectors):
                self.store(value, n, u)
            return []

        self.code.loop(0, rows, 1, [], body)

    def pack(self, rows: Value | int, read: Callable[[Value, Value, Value | None], Value], bound: Size) -> None:
        """Fills the tile from memory in which the tile's rows are contiguous.

        Args:
            rows: how many rows of the tile are wanted.
            read: gives a vector along the tile's rows, for a column and the first row; of it, the lanes in the mask.
            bound: most rows that there can be; where it is no multiple of the lanes, the last read is masked.
        """
        code, lanes = self.code, self.code.lanes
        ragged = not isinstance(bound, int) or bound % lanes != 0 or not isinstance(rows, int)

        def vector(u: Value, _: list[Value]) -> list[Value]:
            def block(row: Value, _: list[Value]) -> list[Value]:
                valid = None
                if ragged:
                    last = code.index(rows) if isinstance(rows, int) else rows
                    valid = code.prefix(code.min(code.op("subi", last, row), lanes))
                first = code.mul(u, lanes)
                columns = [read(code.add(first, c), row, valid) for c in range(lanes)]
                for r, value in enumerate(transpose(code, columns)):
                    code.store(value, self.memory, self.offset(code.add(row, r), u))
                return []

            code.loop(0, rows, lanes, [], block)
            return []

        code.loop(0, self.vectors, 1, [], vector)

    def unpack(self, rows: int, write: Callable[[Value, Value, Value, Value | None], None]) -> None:
        """Hands the tile out in vectors along its rows: ``write(vector, column, first row, mask)``."""
        code, lanes = self.code, self.code.lanes

        def vector(u: Value, _: list[Value]) -> list[Value]:
            def block(row: Value, values: list[Value], length: int) -> list[Value]:
                loaded = [
                    code.load(self.memory, self.offset(code.add(row, min(r, length - 1)), u)) for r in range(lanes)
                ]
                valid = None if length == lanes else code.prefix(length)
                for c, value in enumerate(transpose(code, loaded)):
                    write(value, code.add(code.mul(u, lanes), c), row, valid)
                return values

            code.spans(0, rows, lanes, [], block)
            return []

        code.loop(0, self.vectors, 1, [], vector)


def padded(rows: int, lanes: int) -> int:
    """Rows of a tile that is filled by transposed blocks."""
    return -(-rows // lanes) * lanes
