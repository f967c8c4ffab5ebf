"""Filters of transposed convolutions that a compiler turned round ahead of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from covan_mlir.checking.behind import varying_parts
from covan_mlir.checking.layouts import Order, layouts
from covan_mlir.checking.source_values import SourceValues
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand

_CONVOLUTION = "aten.convolution.default"
_Filter = tuple[Operand, list[int], Order]


def turned_filters(views: SourceViews, operand: Operand, source: SourceValues) -> list[_Filter]:
    """Those behind a value, with their sizes as filters of convolutions over what is spread out, and the order in which
    their elements are those of the weight."""
    filters: list[_Filter] = []
    for _, part in varying_parts(views, operand, source):
        if part.op != _CONVOLUTION:
            continue
        operands = {name: name for name in arguments.operands(part.args)}
        (_, weight, _, _, _, _, transposed, _, groups), _ = arguments.decode(part.args, operands)
        if transposed:
            base, order = views.based(weight, None)
            sizes, own = _turned(source.tensor(weight).shape, int(groups))
            filters.append((base, sizes, own if order is None else own.through(order)))
    return filters


def as_filters(filters: Sequence[_Filter], shape: Sequence[int]) -> Iterator[tuple[Operand, Order]]:
    """Which of the filters a tensor of some shape may hold, and in which order it holds the weight's elements."""
    for weight, sizes, order in filters:
        if prod(sizes) == prod(shape):
            for layout in layouts(sizes, shape):
                yield weight, order if layout is None else layout.through(order)


def _turned(sizes: Sequence[int], groups: int) -> tuple[list[int], Order]:
    """Windows turned round, channels of the result first."""
    inner, outer, *window = sizes
    strides = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    last = sum(stride * (size - 1) for stride, size in zip(strides[2:], window, strict=True))
    each = inner // groups
    steps = [strides[0] * each, strides[1], strides[0], *(-stride for stride in strides[2:])]
    return [groups * outer, each, *window], Order.strided([groups, outer, each, *window], steps, last)
