"""Tiles: values over the dimensions of a layout, as text of Triton's Python, and the statements that make them.

Half precision is computed in f32. Positions are i32 as long as they are known to fit, other integers i64.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Const, Expr
from covan_mlir.lowering.kernels.cuda.layout import Layout
from covan_mlir.lowering.kernels.cuda.operations import TYPES, literal

MOST_PARTS = 1024
"""Parts that a loop is split into, at most."""

_RESERVED = {
    "tl",
    "triton",
    "libdevice",
    "pid",
    "low",
    "high",
    "and",
    "or",
    "not",
    "if",
    "in",
    "is",
    "for",
    "def",
    "as",
}


@dataclass(frozen=True)
class Tile:
    """A value over some dimensions.

    Attributes:
        text: an atom: a name or in parentheses.
        dims: in the layout's order.
        dtype: element type of the text: a half precision where it was loaded, f32 where it was computed.
        factor: a positive number that the text is still to be multiplied with.
        limits: least and largest value, of positions.
        steps: names of the chain's steps that no statement stands for yet.
        const: its value, where it is a number.
    """

    text: str
    dims: tuple[str, ...] = ()
    dtype: str = "f32"
    factor: float = 1.0
    limits: tuple[int, int] | None = None
    steps: frozenset[str] = frozenset()
    const: float | int | bool | None = None


def computed(dtype: str) -> str:
    """The element type that values are computed in."""
    if dtype in ("f16", "bf16"):
        return "f32"
    return "i64" if dtype in ("i8", "i16", "i32", "index") else dtype


def constant(node: Const) -> Tile:
    """A number."""
    limits = (int(node.value), int(node.value)) if node.dtype[0] == "i" and node.dtype != "i1" else None
    dtype = "i32" if limits and abs(limits[0]) < 2**30 else computed(node.dtype)
    return Tile(literal(node.value, computed(node.dtype)), (), dtype, limits=limits, const=node.value)


@dataclass
class Block:
    """Statements at one level of nesting.

    Attributes:
        lines: text without indentation, and the steps that it performs.
        tiles: by expression.
        named: tiles by name: statistics of a moment, results.
        valid: dimension -> name of the mask of its positions that exist; others are full.
        true: conditions that hold at all positions of the tiles at hand.
    """

    lines: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    tiles: dict[Expr, Tile] = field(default_factory=dict)
    named: dict[str, Tile] = field(default_factory=dict)
    valid: dict[str, str] = field(default_factory=dict)
    true: frozenset[Expr] = frozenset()


class FreshNames:
    """Python names that are not taken."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = {*taken, *_RESERVED}

    def fresh(self, wanted: str) -> str:
        """A name like the wanted one."""
        base = re.sub(r"\W", "_", wanted)
        base = base if base[:1].isalpha() else f"v{base}"
        name, n = base, 1
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name


class Text:
    """Broadcasts, positions and addresses as text.

    Args:
        dims: variables of the positions, by dimension.
        grid: variables of the positions, by axis.
    """

    def __init__(self, chain: Chain, layout: Layout, dims: Mapping[str, str], grid: Mapping[str, str]) -> None:
        self.chain, self.layout, self.dims, self.grid = chain, layout, dims, grid

    def union(self, *tiles: Tile) -> tuple[str, ...]:
        """Dimensions of an operation on tiles."""
        used = {name for tile in tiles for name in tile.dims}
        return tuple(dim.name for dim in self.layout.dims if dim.name in used)

    def spread(self, text: str, dims: tuple[str, ...], to: tuple[str, ...]) -> str:
        """A tile with dimensions of size 1 where it has none."""
        if dims == to or not dims:
            return text
        return f"{text}[{', '.join(':' if name in dims else 'None' for name in to)}]"

    def position(self, axis: str) -> Tile:
        """The position on an axis."""
        size = self.layout.sizes[axis]
        limits = (0, size - 1)
        dim = self.layout.dim_of(axis)
        if dim is None:
            return Tile(self.grid[axis], (), "i32", limits=limits)
        text = self.dims[dim.name]
        at = dim.axes.index(axis)
        inner = 1
        for other in dim.axes[at + 1 :]:
            inner *= self.layout.sizes[other]
        if inner > 1:
            text = f"({text} // {inner})"
        if at > 0:
            text = f"({text} % {size})"
        return Tile(text, (dim.name,), "i32", limits=(0, max(dim.size, dim.block * -(-dim.size // dim.block))))

    def address(self, axes: tuple[str, ...], lead: str = "") -> tuple[str, str, tuple[str, ...]]:
        """-> (offset that programs differ in, offset within a tile, dimensions of it) of a value's elements.

        Args:
            lead: text of a position on one more axis in front.
        """
        strides, total = self._strides(axes)
        wide = total * (MOST_PARTS if lead else 1) > 2**31 - 1
        scalars: list[str] = []
        terms: list[tuple[str, str]] = []
        n = 0
        while n < len(axes):
            axis = axes[n]
            dim = self.layout.dim_of(axis)
            if dim is None:
                if self.layout.sizes[axis] > 1:
                    scalars.append(self._times(self._wide(self.grid[axis], wide), strides[axis]))
                n += 1
                continue
            if axes[n : n + len(dim.axes)] == dim.axes:
                text, last = self.dims[dim.name], dim.axes[-1]
                n += len(dim.axes)
            else:
                text, last = self.position(axis).text, axis
                n += 1
            terms.append((dim.name, self._times(self._wide(text, wide), strides[last])))
        if lead:
            scalars.append(f"{lead} * tl.full((), {total}, tl.int64)" if wide else self._times(lead, total))
        dims = tuple(dim.name for dim in self.layout.dims if dim.name in {name for name, _ in terms})
        offsets = " + ".join(self.spread(self._atom(text), (name,), dims) for name, text in terms)
        return " + ".join(scalars), offsets, dims

    def _strides(self, axes: tuple[str, ...]) -> tuple[dict[str, int], int]:
        stride, strides = 1, {}
        for axis in reversed(axes):
            strides[axis] = stride
            stride *= self.layout.sizes[axis]
        return strides, stride

    @staticmethod
    def _wide(text: str, wide: bool) -> str:
        return f"{text}.to(tl.int64)" if wide else text

    @staticmethod
    def _times(text: str, stride: int) -> str:
        return text if stride == 1 else f"{text} * {stride}"

    @staticmethod
    def _atom(text: str) -> str:
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    def plain(self, tile: Tile, dtype: str) -> Tile:
        """A tile in an element type that is computed in, without a pending factor."""
        text, have = tile.text, tile.dtype
        if tile.const is not None:
            return tile
        if have != dtype:
            text = f"({text} != 0)" if dtype == "i1" else f"{text}.to({TYPES[dtype]})"
        if tile.factor != 1.0:
            text = f"({text} * {tile.factor!r})"
        return replace(tile, text=text, dtype=dtype, factor=1.0)

    def full(self, tile: Tile, dims: tuple[str, ...], dtype: str) -> str:
        """A tile with all of the dimensions, even where it is the same along some."""
        plain = self.plain(tile, dtype)
        if tile.const is None and plain.dims == dims:
            return plain.text
        shape = ", ".join(str(self._block(name)) for name in dims)
        if tile.const is not None:
            return f"tl.full(({shape}{',' if len(dims) == 1 else ''}), {plain.text}, {TYPES[dtype]})"
        if not dims:
            return plain.text
        if not plain.dims:
            return f"({plain.text} + tl.zeros(({shape},), {TYPES[dtype]}))"
        return f"tl.broadcast_to({self.spread(plain.text, plain.dims, dims)}, ({shape},))"

    def _block(self, name: str) -> int:
        dim = self.layout.dim(name)
        assert dim is not None
        return dim.block
