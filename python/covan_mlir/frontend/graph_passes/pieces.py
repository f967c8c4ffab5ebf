"""Slices of what was put together, as slices of its pieces.

``cat([a, b])[:n]`` is a piece of ``a``: class tokens are put in front of a sequence and taken off again. What is read
of ``x[1:-1] = y`` between its borders is ``y``, and what is read beside them is ``x``: a stencil is applied again and
again. The compilers know, and read the piece. A graph that says so has the program read what its source does.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import torch
from torch.fx import Graph, Node

from covan_mlir.frontend.graph_passes.written_back import uncopied

_aten = torch.ops.aten


def slice_pieces(graph: Graph) -> None:
    """Have slices along the axis of a concatenation that lie within one of its operands read that operand; those along
    the axis of a slice that was written, what is written there or what was there before; and have slices that are
    written over others be written into what was there before these."""
    for node in graph.nodes:
        if node.target is operator.getitem:
            _read_split(node)
        if node.target is _aten.slice_scatter.default and not node.kwargs:
            _write_once(node)
        if node.target is _aten.select.int and not node.kwargs:
            _select_piece(node)
        if node.target is not _aten.slice.Tensor or node.kwargs:
            continue
        _take_one(node)
        whole = uncopied(node.args[0])
        while whole.target is _aten.slice_scatter.default and not whole.kwargs and _read_written(node, whole):
            whole = uncopied(node.args[0])
        if whole.target is _aten.cat.default:
            _read_piece(node, whole)


def _take_one(node: Node) -> None:
    """Has a slice of one element go no further: with a step, IREE does not take it where it is multiplied."""
    source, *at = node.args
    assert isinstance(source, Node)
    axis, *bounds = _place(at, source.meta["val"].dim())
    size = source.meta["val"].shape[axis]
    if all(isinstance(bound, int | None) for bound in (*bounds, size)) and bounds[2] != 1:
        places = range(size)[slice(*bounds)]
        if len(places) == 1:
            node.args = (source, axis, places[0], places[0] + 1, 1)


def _place(args: Any, axes: int) -> list[Any]:
    """Axis, start, stop and step of a slice, by its arguments behind the tensors."""
    usual: list[Any] = [0, None, None, 1]
    given = [*args, *usual[len(args) :]]
    return [given[0] % axes, *given[1:]]


def _read_written(node: Node, scatter: Node) -> bool:
    """Has a slice of a tensor of which a slice was written read what is there; whether it is one or the other."""
    base, written, *at = scatter.args
    whole = scatter.meta["val"]
    axis, *bounds = _place(node.args[1:], whole.dim())
    along, *limits = _place(at, whole.dim())
    size = whole.shape[axis]
    if axis != along or not all(isinstance(bound, int | None) for bound in (*bounds, *limits, size)):
        return False
    read, there = (range(size)[slice(*each)] for each in (bounds, limits))
    if not read or not there:
        return False
    if there.step == 1 and there[0] <= read[0] and read[-1] <= there[-1] and _fits(written, whole, axis, len(there)):
        node.args = (written, axis, read[0] - there[0], read[-1] + 1 - there[0], read.step)
        if len(read) == len(there):
            node.args = (written, 0, 0, sys.maxsize, 1)
    elif read[-1] < there[0] or there[-1] < read[0]:
        node.args = (base, axis, *bounds)
    else:
        return False
    return True


def _write_once(node: Node) -> None:
    """Has a slice that is written all over another one be written into what that was written into."""
    shape = node.meta["val"].shape
    axis, *bounds = _place(node.args[2:], len(shape))
    while (base := uncopied(node.args[0])).target is _aten.slice_scatter.default and not base.kwargs:
        along, *limits = _place(base.args[2:], len(shape))
        size = shape[axis]
        if axis != along or not all(isinstance(bound, int | None) for bound in (*bounds, *limits, size)):
            return
        over, under = (range(size)[slice(*each)] for each in (bounds, limits))
        if not (over and under and over.step == 1 and over[0] <= under[0] and under[-1] <= over[-1]):
            return
        node.args = (base.args[0], *node.args[1:])


def _fits(written: Any, whole: Any, axis: int, size: int) -> bool:
    """Whether what is written has the shape of its place, and its type."""
    value = written.meta["val"]
    shape = (*whole.shape[:axis], size, *whole.shape[axis + 1 :])
    return tuple(value.shape) == shape and value.dtype is whole.dtype


def _read_split(node: Node) -> None:
    """Has a part of a concatenation that is split read the operand in which it lies, as a slice of that."""
    split: Any = node.args[0]
    if split.target is not _aten.split_with_sizes.default or split.kwargs:
        return
    source, sizes, *dim = split.args
    whole = uncopied(source)
    if whole.target is not _aten.cat.default or not all(isinstance(size, int) for size in sizes):
        return
    start = sum(sizes[: node.args[1]])
    with node.graph.inserting_before(node):
        part = node.graph.call_function(
            _aten.slice.Tensor, (source, dim[0] if dim else 0, start, start + sizes[node.args[1]], 1)
        )
    part.meta = dict(node.meta)
    _read_piece(part, whole)
    if part.args[0] is source:
        node.graph.erase_node(part)
    else:
        node.replace_all_uses_with(part)


def _select_piece(node: Node) -> None:
    """Has what is taken of a concatenation at one place of its axis read the operand in which that lies."""
    source: Any
    source, axis, place = node.args
    whole = uncopied(source)
    if whole.target is not _aten.cat.default or not isinstance(place, int):
        return
    size = whole.meta["val"].shape[axis]
    if not isinstance(size, int):
        return
    place %= size
    with node.graph.inserting_before(node):
        part = node.graph.call_function(_aten.slice.Tensor, (source, axis, place, place + 1, 1))
    part.meta = {"val": node.meta["val"]}
    _read_piece(part, whole)
    if part.args[0] is not source:
        node.args = (part.args[0], axis, part.args[2])
    node.graph.erase_node(part)


def _read_piece(node: Node, cat: Node) -> None:
    args: list[Any] = [*node.args, *(0, None, None, 1)[len(node.args) - 1 :]]
    pieces: Any = cat.args[0]
    whole = cat.meta["val"]
    axis = args[1] % whole.dim()
    along: Any = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
    shapes = [piece.meta["val"].shape for piece in pieces]
    known = [*args[2:], *(shape[axis] for shape in shapes if len(shape) == whole.dim())]
    # torch lets empty tensors of one dimension through, too.
    if (
        along % whole.dim() != axis
        or len(known) != 3 + len(shapes)
        or not all(isinstance(b, int | None) for b in known)
    ):
        return
    start, stop, step = slice(*args[2:]).indices(sum(shape[axis] for shape in shapes))
    begin = 0
    for piece, shape in zip(pieces, shapes, strict=True):
        end = begin + shape[axis]
        if begin <= start < stop <= end and piece.meta["val"].dtype is node.meta["val"].dtype:
            node.args = (piece, axis, start - begin, stop - begin, step)
            return
        begin = end
