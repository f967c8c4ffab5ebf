"""Operands that are read at affine positions: convolutions and pooling, through the padding before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir.dialects import linalg

from covan_mlir.dialects.fred_affine import affine_of
from covan_mlir.fred.expression import Affine, Const
from covan_mlir.passes.raising.linalg_graph import Dims, LinalgGraph, OperandWindow, WindowPiece

_NAMED = ("linalg.conv_", "linalg.depthwise_conv_", "linalg.pooling_", "linalg.broadcast")
# Named ops whose maps are not among their attributes.

_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")

NARROW = 3
"""Sides of a patch up to which a convolution takes all rows of its results for one: what it slides over is taken apart
by vectors. In a product each row of the results has vectors of its own, filled one element at a time."""


def affine_maps(op: Any) -> list[tuple[Affine, ...]] | None:
    """How a linalg op indexes its operands, with the position of loop ``i`` as the axis ``@i``; None where it does not
    say, or not by sums."""
    if "indexing_maps" in op.attributes:
        attributes = op.attributes["indexing_maps"]
    elif op.name.startswith(_NAMED):
        attributes = linalg.get_indexing_maps(op)
    else:
        return None
    maps: list[tuple[Affine, ...]] = []
    for attribute in attributes:
        loops = [f"@{i}" for i in range(attribute.value.n_dims)]
        positions = [affine_of(result, loops) for result in attribute.value.results]
        known = tuple(position for position in positions if position is not None)
        if len(known) != len(positions):
            return None
        maps.append(known)
    return maps


def projected(positions: Sequence[Affine]) -> Dims | None:
    """The loop that indexes each dimension, None for a dimension of one position; None if it is not that simple."""
    dims: list[int | None] = []
    for position in positions:
        if position.axis is not None:
            dims.append(loop_of(position.axis))
        elif position == Affine(()):
            dims.append(None)
        else:
            return None
    loops = [dim for dim in dims if dim is not None]
    return tuple(dims) if len(set(loops)) == len(loops) else None  # not a diagonal


def loop_of(axis: str) -> int:
    """The number of the loop that an axis of `affine_maps` is."""
    return int(axis[1:])


@dataclass(frozen=True)
class _Piece:
    """A piece of a dimension while padding is read through; ``padded`` if there was some along it."""

    at: Affine
    size: int | None
    padded: bool = False


def read_window(
    graph: LinalgGraph,
    value: int,
    positions: Sequence[Affine],
    loops: Sequence[int | None],
    number: Callable[[Any], int],
    *,
    patches: bool,
) -> OperandWindow | None:
    """The window through which an operand is read, without the padding and the reshapes before the operand.

    Args:
        value: the operand.
        positions: on its dimensions.
        loops: their sizes.
        number: of a value of the IR.
        patches: windows that lie side by side are read along axes of their own where they are wider than `NARROW`.
            That makes products of convolutions; rows of pooling would be as short as the window.
    """
    narrow = {f"@{i}" for i, size in enumerate(loops) if size == 1}
    dims = [
        [_Piece(Affine.of([term for term in position.terms if term[0] not in narrow], position.offset), size)]
        for position, size in zip(positions, graph.shapes[value], strict=True)
    ]
    outside: Const | None = None
    through: list[int] = []
    while value in graph.definition:
        node = graph.nodes[graph.definition[value]]
        before = None
        if node.op.name == "tensor.pad":
            padding = pad_constant(node.op, graph, number)
            if padding is not None and outside in (None, padding):
                before = _before_padding(node.op, dims, graph.shapes[number(node.op.operands[0])])
                outside = padding if before is not None else outside
        elif node.op.name in _RESHAPES or (node.op.name == "linalg.transpose" and _slid_stay(node.groups, dims)):
            before = _before_view(node.groups, dims, graph.shapes[node.source])
        if before is None:
            break
        dims = before
        through.append(node.index)
        value = number(node.op.operands[0])
    if value in graph.constants or value in graph.closed or value in graph.weights:
        return None
    wide = [_wide(dim) for dim in dims]
    sides = [loops[along[-1]] or 0 for pieces in wide for piece in pieces if len(along := _along(piece, loops)) > 1]
    patches = patches and max(sides, default=0) > NARROW
    finished = tuple(tuple(_finished(piece, loops, patches=patches) for piece in pieces) for pieces in wide)
    dtype = graph.dtypes[value]
    nothing = Const(0.0 if dtype.startswith(("f", "bf")) else False if dtype == "i1" else 0, dtype)
    return OperandWindow(value, finished, outside or nothing, frozenset(through))


def single_points(window: OperandWindow) -> Dims | None:
    """The loops that index what a window reads, of one that does not slide: of a convolution by single points."""
    if any(len(pieces) > 1 or any(len(piece.loops) != 1 for piece in pieces) for pieces in window.pieces):
        return None
    return tuple(pieces[0].loops[0] if pieces else None for pieces in window.pieces)


def pad_constant(pad: Any, graph: LinalgGraph, number: Callable[[Any], int]) -> Const | None:
    """What a ``tensor.pad`` fills in, if that is one number."""
    block = pad.regions[0].blocks[0]
    (terminator,) = [view.operation for view in block][-1:]
    if "nofold" in pad.attributes or len(list(block)) != 1:
        return None
    return graph.constants.get(number(terminator.operands[0]))


def _before_padding(pad: Any, dims: list[list[_Piece]], shape: Sequence[int | None]) -> list[list[_Piece]] | None:
    before: list[list[_Piece]] = []
    lows, highs = pad.attributes["static_low"], pad.attributes["static_high"]
    for dim, size, low, high in zip(dims, shape, lows, highs, strict=True):
        if low == high == 0:
            before.append(dim)
            continue
        if low < 0 or len(wide := _wide(dim) or dim) != 1:  # a negative number stands for one known at run time
            return None
        at = wide[0].at
        before.append([_Piece(Affine(at.terms, at.offset - low), size, padded=True)])
    return before


def _before_view(
    groups: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    dims: list[list[_Piece]],
    shape: Sequence[int | None],
) -> list[list[_Piece]] | None:
    before: dict[int, list[_Piece]] = {}
    for sources, results in groups:
        pieces = [piece for i in results for piece in dims[i]]
        holders = [i for i in sources if shape[i] != 1] or list(sources[:1])
        if len(holders) > 1 or (not holders and _wide(pieces)):
            return None  # which of them holds what, the position does not tell
        before.update({i: pieces if i in holders else [] for i in sources})
    return [before[i] for i in range(len(before))]


def _slid_stay(groups: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], dims: list[list[_Piece]]) -> bool:
    """Whether a transposition leaves each dimension in its place that a window slides along, and there are some:
    kernels for windows want these last."""
    slid = [any(len(piece.at.terms) > 1 for piece in dim) for dim in dims]
    return any(slid) and all(sources == results for sources, results in groups if any(slid[i] for i in results))


def _wide(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Those but the ones of one position that is always read."""
    return [piece for piece in pieces if piece.size != 1 or piece.at != Affine(())]


def _finished(piece: _Piece, loops: Sequence[int | None], *, patches: bool) -> WindowPiece:
    along = _along(piece, loops)
    return WindowPiece(piece.at, piece.size, along if patches or len(along) < 2 else ())


def _along(piece: _Piece, loops: Sequence[int | None]) -> tuple[int, ...]:
    """The loops whose positions together are just those of a piece: one, or several of which each goes as far as one
    step of the one before it. Then no two positions read the same element: patches lie side by side."""
    if piece.at.offset or any(coefficient < 1 for _, coefficient in piece.at.terms):
        return ()
    terms = sorted(((n, loop_of(axis)) for axis, n in piece.at.terms), reverse=True)
    order = [loop for _, loop in terms]
    if len(order) == 1 and terms[0][0] == 1:
        (loop,) = order
        fits = loops[loop] == piece.size and not (piece.size is None and piece.padded)
        return (loop,) if fits else ()
    step = 1
    for coefficient, loop in reversed(terms):
        size = loops[loop]
        if coefficient != step or size is None:
            return ()
        step *= size
    return tuple(order) if step == piece.size else ()
