"""Concatenations that a compiler began ahead of time: their constant pieces are where they belong, the others are
written when the program runs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from covan_mlir.checking.behind import varying_parts
from covan_mlir.checking.layouts import Order
from covan_mlir.checking.source_values import SourceValues
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand

CAT = "aten.cat.default"


def begun(views: SourceViews, operand: Operand, source: SourceValues) -> Iterator[tuple[Operand, Order]]:
    """Those behind a value, with the order in which the constant pieces are elements of the whole. What was drawn is
    not looked behind."""
    for current, part in varying_parts(views, operand, source):
        if part.op == CAT and (order := _order(views, source, part.id)) is not None:
            yield current, order


def _order(views: SourceViews, source: SourceValues, part: int) -> Order | None:
    """That of the constant pieces, -1 at the others; None if there are not both kinds."""
    operands = {operand: operand for operand in arguments.operands(views.parts[part].args)}
    args, kwargs = arguments.decode(views.parts[part].args, operands)
    pieces = args[0]
    constant = [kind == "w" or (kind == "p" and views.constant[int(name)]) for kind, name in pieces]
    if all(constant) or not any(constant):
        return None
    whole, *shapes = (source.tensor(value).shape for value in (("p", part), *pieces))
    if any(len(shape) != len(whole) for shape in shapes):  # an empty one may have one dimension
        return None
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % max(1, len(whole))
    there = np.repeat(constant, [shape[dim] for shape in shapes])
    inner, length = prod(whole[dim + 1 :]), whole[dim]

    def at(flat: Array) -> Array:
        return np.where(there[flat // inner % length], flat, -1)

    return Order(prod(whole), at)
