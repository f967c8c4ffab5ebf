"""Tiles: values over the dimensions of a layout, as text of Triton's Python, and the statements that make them.

Half precision is computed in f32. Positions are i32 as long as they are known to fit, other integers i64.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine, Const, Expr
from covan_mlir.lowering.kernels.cuda.layout import Dim, Layout
from covan_mlir.lowering.kernels.cuda.operations import TYPES, literal
from covan_mlir.lowering.kernels.errors import UnsupportedError

I32 = (-(2**31), 2**31 - 1)
"""Least and largest integer of 32 bits."""
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


def summed(dtype: str) -> str:
    """The element type that a loop adds up in: of integers, what the program adds them in."""
    return "i32" if dtype == "i32" else computed(dtype)


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
        elements: inputs' elements as they are in memory, by what reads them.
        named: tiles by name: statistics of a moment, results.
        valid: dimension -> name of the mask of its positions that exist; others are full.
        true: conditions that hold at all positions of the tiles at hand.
    """

    lines: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    tiles: dict[Expr, Tile] = field(default_factory=dict)
    elements: dict[Expr, Tile] = field(default_factory=dict)
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
        text = self._run(dim, dim.axes.index(axis), 1)
        return Tile(text, (dim.name,), "i32", limits=(0, max(dim.size, dim.block * -(-dim.size // dim.block))))

    def _run(self, dim: Dim, first: int, count: int) -> str:
        """Position on some neighbouring axes of a dimension as one."""
        text, sizes = self.dims[dim.name], [self.layout.sizes[axis] for axis in dim.axes]
        inner = prod(sizes[first + count :])
        if inner > 1:
            text = f"({text} // {inner})"
        if first > 0:
            text = f"({text} % {prod(sizes[first : first + count])})"
        return text

    def _moves(self, axis: str) -> bool:
        """Whether there is a position on an axis, or the axis stands for a dimension that has one alone."""
        dim = self.layout.dim_of(axis)
        return self.layout.sizes[axis] > 1 or (dim is not None and dim.size == 1 and axis == dim.axes[0])

    def affine(self, at: Affine) -> Tile:
        """A sum of multiples of positions.

        Raises:
            UnsupportedError: it does not fit 32 bits.
        """
        limits = at.bounds(self.layout.sizes)
        if max(map(abs, limits)) >= 2**31:
            raise UnsupportedError("positions of a window do not fit 32 bits")
        positions = {axis: self.position(axis) for axis, _ in at.terms if self._moves(axis)}
        terms: dict[tuple[str, ...], list[str]] = {}
        for axis, coefficient in at.terms:
            if axis in positions:
                terms.setdefault(positions[axis].dims, []).append(self._times(positions[axis].text, coefficient))
        if at.offset or not terms:
            terms.setdefault((), []).append(str(at.offset))
        dims = self.union(*positions.values())
        texts = [self.spread(self._atom(" + ".join(parts)), own, dims) for own, parts in terms.items()]
        return Tile(texts[0] if len(texts) == 1 else f"({' + '.join(texts)})", dims, "i32", limits=limits)

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
            first = dim.axes.index(axis)
            count = 1
            while dim.axes[first : first + count + 1] == axes[n : n + count + 1] and n + count < len(axes):
                count += 1
            text, last = self._run(dim, first, count), axes[n + count - 1]
            n += count
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
