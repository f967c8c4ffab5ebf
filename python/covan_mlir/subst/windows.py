"""Convolutions, poolings and what goes with them: windows over the last two axes of images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

from covan_mlir.subst.expressions import (
    Greatest,
    Option,
    Piece,
    Reciprocal,
    Sum,
    fresh,
    guarded,
    index_name,
    over,
    single,
    times,
    within,
    zero,
)
from covan_mlir.subst.registry import Call, Kind, Operator, check_rank
from covan_mlir.subst.shaping import NoShapesError, Shaping
from covan_mlir.subst.sizes import ONE, Poly, floor, quotient
from covan_mlir.subst.terms import Apply, Shape

WINDOW_OPERATORS: list[Operator] = []


def _windows(node: Apply, size: Sequence[Poly], kernel: Sequence[Poly], shaping: Shaping) -> Shape:
    attributes = dict(node.attributes)
    dilation = attributes.get("dilation", (ONE, ONE))
    counts = []
    for extent, taps, stride, pad, step in zip(
        size, kernel, attributes["stride"], attributes["pad"], dilation, strict=True
    ):
        room = shaping.resolve(extent + pad * 2 - step * (taps - 1) - 1)
        shaping.require(room)
        counts.append(floor(room, shaping.resolve(stride)) + 1)
    return tuple(counts)


def _taps(
    node: Apply, at: Sequence[Poly], size: Sequence[Poly], taps: Sequence[Poly]
) -> tuple[list[Poly], frozenset[tuple[Literal["ge", "eq"], Poly]]]:
    """Positions that taps of the window at a position read, and that they are in the tensor and not in its padding."""
    attributes = dict(node.attributes)
    dilation = attributes.get("dilation", (ONE, ONE))
    where, guards = [], frozenset[tuple[Literal["ge", "eq"], Poly]]()
    for position, extent, tap, stride, pad, step in zip(
        at, size, taps, attributes["stride"], attributes["pad"], dilation, strict=True
    ):
        read = position * stride + tap * step - pad
        where.append(read)
        if pad:
            guards |= within(read, extent)
    return where, guards


def _conv_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    for shape in shapes:
        check_rank(shape, 4)
    (n, channels, *size), (outputs, inner, *kernel) = shapes
    (groups,) = dict(node.attributes)["groups"]
    shaping.equal(channels, groups * inner)
    each = shaping.fresh("o")
    shaping.equal(outputs, groups * each)
    return (n, groups * each, *_windows(node, size, kernel, shaping))


def _conv(call: Call, at: Sequence[Poly]) -> Sum:
    (_, _, *size), (outputs, inner, *kernel) = call.shapes
    (groups,) = call.attribute("groups")
    channel, taps = fresh(), (fresh(), fresh())
    where, guards = _taps(call.node, at[2:], size, taps)
    bound = [(channel, inner), *zip(taps, kernel, strict=True)]
    if groups == ONE:
        image, group_guards = channel, frozenset[tuple[Literal["ge", "eq"], Poly]]()
    else:
        group, output = fresh(), fresh()
        each = call.result[1]
        shares = [share for share in (quotient(outputs, groups), quotient(each, groups)) if share is not None]
        if not shares:
            raise NoShapesError(f"{outputs} outputs in {groups} groups")
        bound += [(group, groups), (output, shares[0])]
        image = group * inner + channel
        group_guards = frozenset([zero(at[1] - group * shares[0] - output)])
    value = times(call.elements[0]([at[0], image, *where]), call.elements[1]([at[1], channel, *taps]))
    return over(guarded(value, guards | group_guards), bound)


_window: tuple[tuple[str, Kind], ...] = (("stride", "parameter"), ("pad", "parameter"))
WINDOW_OPERATORS.append(
    Operator(
        "conv",
        2,
        _conv_shape,
        _conv,
        "torch.conv2d({0}, {1}, None, {stride}, {pad}, {dilation}, {groups})",
        attributes=(*_window, ("dilation", "parameter"), ("groups", "parameter")),
    )
)


def _enlarge_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    check_rank(shapes[0], 4)
    borders = dict(node.attributes)["border"]
    return (*shapes[0][:2], *(size + border * 2 for size, border in zip(shapes[0][2:], borders, strict=True)))


def _enlarge(call: Call, at: Sequence[Poly]) -> Sum:
    inner = [position - border for position, border in zip(at[2:], call.attribute("border"), strict=True)]
    guards = frozenset(itertools.chain(*map(within, inner, call.shapes[0][2:])))
    return guarded(call.elements[0]([*at[:2], *inner]), guards)


WINDOW_OPERATORS.append(
    Operator(
        "enlarge",
        1,
        _enlarge_shape,
        _enlarge,
        "torch.nn.functional.pad({0}, ({border[1]}, {border[1]}, {border[0]}, {border[0]}))",
        attributes=(("border", "parameter"),),
    )
)


def _pool_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    check_rank(shapes[0], 4)
    attributes = dict(node.attributes)
    for taps, pad in zip(attributes["window"], attributes["pad"], strict=True):
        shaping.require(taps - pad * 2)  # as PyTorch has it: no window is all padding
    return (*shapes[0][:2], *_windows(node, shapes[0][2:], attributes["window"], shaping))


def _avg_pool(call: Call, at: Sequence[Poly]) -> Sum:
    taps, window = (fresh(), fresh()), call.attribute("window")
    where, guards = _taps(call.node, at[2:], call.shapes[0][2:], taps)
    value = over(guarded(call.elements[0]([*at[:2], *where]), guards), zip(taps, window, strict=True))
    return times(value, (Piece(factors=tuple(map(Reciprocal, window))),))


def _max_pool(call: Call, at: Sequence[Poly]) -> Sum:
    taps, window = (fresh(), fresh()), call.attribute("window")
    where, guards = _taps(call.node, at[2:], call.shapes[0][2:], taps)
    value = call.elements[0]([*at[:2], *where])
    bound = tuple(zip(map(index_name, taps), window, strict=True))
    return single(Greatest(frozenset([Option(value, bound, guards, inhabited=True)])))


for _name, _meaning, _torch in (
    ("avg_pool", _avg_pool, "torch.nn.functional.avg_pool2d({0}, {window}, {stride}, {pad})"),
    ("max_pool", _max_pool, "torch.nn.functional.max_pool2d({0}, {window}, {stride}, {pad})"),
):
    WINDOW_OPERATORS.append(
        Operator(_name, 1, _pool_shape, _meaning, _torch, attributes=(("window", "parameter"), *_window))
    )
