"""Tensors whose elements are those of an argument: views of it, with a number added, with one value replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, Node

from covan_mlir.frontend.intervals import Interval

aten = torch.ops.aten
prims = torch.ops.prims

Bounds = tuple[int | None, int | None, int]
"""Of a slice: start, end, step."""
WHOLE: Bounds = (None, None, 1)


@dataclass(frozen=True)
class Region:
    """Some elements of an argument.

    Attributes:
        argument: its placeholder.
        bounds: which elements along each of its axes.
        axes: for each axis of this tensor the argument's axis that it runs along, None for one of its own; None where
            axes were merged or split.
        added: a number that is added to each element.
        ignored: a value of the argument's elements that does not count.
    """

    argument: Node
    bounds: tuple[Bounds, ...]
    axes: tuple[int | None, ...] | None
    added: int = 0
    ignored: int | None = None


def regions(graph: Graph, arguments: Mapping[Node, int], ranges: Mapping[Node, Interval]) -> dict[Node, Region]:
    """The nodes of a graph that are regions of its arguments.

    Args:
        arguments: placeholders of integer tensors that a caller passes.
        ranges: what is known of the elements of others.
    """
    known: dict[Node, Region] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        if node in arguments:
            known[node] = Region(node, (WHOLE,) * value.dim(), tuple(range(value.dim())))
        elif node.op == "call_function":
            region = _region(node, known, ranges)
            if region is not None:
                known[node] = region
    return known


def _region(node: Node, known: Mapping[Node, Region], ranges: Mapping[Node, Interval]) -> Region | None:
    packet = getattr(node.target, "overloadpacket", None)
    if packet is aten.where:
        return _without(node, known, ranges)
    source = node.args[0] if node.args else None
    region = known.get(source) if isinstance(source, Node) else None
    if region is None:
        return None
    assert isinstance(source, Node)
    if packet in (aten.clone, aten.alias, aten.detach, aten.lift_fresh_copy):
        return region
    if packet in (aten._to_copy, prims.convert_element_type):
        return region if _widens(source.meta["val"].dtype, node.meta["val"].dtype) else None
    if packet in (aten.view, aten.reshape, aten._unsafe_view, aten.squeeze):
        return replace(region, axes=_kept_axes(region, source.meta["val"].shape, node.meta["val"].shape))
    if packet in (aten.add, aten.sub):
        number = node.args[1]
        if type(number) is not int or node.kwargs or region.ignored is not None:
            return None
        return replace(region, added=region.added + (number if packet is aten.add else -number))
    return _moved(node, packet, region)


def _kept_axes(
    region: Region, before: Sequence[int | torch.SymInt], after: Sequence[int | torch.SymInt]
) -> tuple[int | None, ...] | None:
    """The axes of a tensor of another shape, where they are those of before, with other axes of one element."""
    if region.axes is None or [size for size in before if size != 1] != [size for size in after if size != 1]:
        return None
    long = iter([axis for axis, size in zip(region.axes, before, strict=True) if size != 1])
    return tuple(None if size == 1 else next(long) for size in after)


def _widens(narrow: torch.dtype, wide: torch.dtype) -> bool:
    """Whether a type of integers holds all values of another."""
    if wide.is_floating_point or wide.is_complex or torch.bool in (narrow, wide):
        return False
    of, to = torch.iinfo(narrow), torch.iinfo(wide)
    return bool(to.min <= of.min and of.max <= to.max)


def _moved(node: Node, packet: Any, region: Region) -> Region | None:
    """Other axes, or fewer elements along them."""
    axes = region.axes
    args: Any = node.args
    rank = node.meta["val"].dim()
    if packet is aten.expand:
        return region if axes is None else replace(region, axes=(None,) * (rank - len(axes)) + axes)
    if axes is None:
        return region if packet in (aten.permute, aten.transpose, aten.t, aten.unsqueeze) else None
    if packet is aten.unsqueeze:
        axis = args[1] % rank
        return replace(region, axes=(*axes[:axis], None, *axes[axis:]))
    if packet is aten.permute:
        return replace(region, axes=tuple(axes[axis] for axis in args[1]))
    if packet in (aten.transpose, aten.t):
        one, other = args[1:3] if packet is aten.transpose else (0, 1)
        order = list(axes)
        if order:
            order[one], order[other] = order[other], order[one]
        return replace(region, axes=tuple(order))
    if packet is aten.slice:
        given = list(args[1:])
        axis, start, end, step = given + [0, None, None, 1][len(given) :]
        return _cut(region, axis, (start, end, step), axes)
    if packet is aten.select and type(args[2]) is int:
        end = None if args[2] == -1 else args[2] + 1
        kept = (*axes[: args[1]], *axes[args[1] + 1 :])
        return _cut(region, args[1], (args[2], end, 1), kept)
    return None


def _cut(region: Region, axis: Any, bounds: tuple[Any, Any, Any], axes: tuple[int | None, ...]) -> Region | None:
    assert region.axes is not None
    along = region.axes[axis]
    if not all(bound is None or type(bound) is int for bound in bounds):
        return None
    if along is None:  # all elements along it are the same one
        return replace(region, axes=axes)
    if region.bounds[along] != WHOLE:
        return None
    cut = (*region.bounds[:along], bounds, *region.bounds[along + 1 :])
    return replace(region, bounds=cut, axes=axes)


def _without(node: Node, known: Mapping[Node, Region], ranges: Mapping[Node, Interval]) -> Region | None:
    """``where(x == c, 0, x)`` and ``where(x != c, x, 0)``: labels, of which some are ignored."""
    condition, chosen, other = node.args
    if not isinstance(condition, Node) or condition.target not in (aten.eq.Scalar, aten.ne.Scalar):
        return None
    number, kept = (chosen, other) if condition.target is aten.eq.Scalar else (other, chosen)
    compared, ignored = condition.args
    region = known.get(kept) if isinstance(kept, Node) else None
    zero = ranges.get(number) if isinstance(number, Node) else None
    if region is None or region.ignored is not None or compared is not kept or type(ignored) is not int:
        return None
    if zero is None or (zero.low, zero.high) != (0, 0):
        return None
    return replace(region, ignored=ignored - region.added)
