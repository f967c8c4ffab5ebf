"""Which constants of the source those that a program holds may be."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from math import prod

import numpy as np

from covan_mlir.checking.begun import begun
from covan_mlir.checking.choices import combinations
from covan_mlir.checking.cones import Cone, Key
from covan_mlir.checking.draws import Constants
from covan_mlir.checking.layouts import Order, layouts, placements
from covan_mlir.checking.samples import agree
from covan_mlir.checking.source_values import SourceValues
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.checking.tensors import UnevaluatedError
from covan_mlir.checking.turned_filters import as_filters, turned_filters
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Bodies, Opaque, shape_of


def assignments(
    views: SourceViews, program: Bodies, cone: Cone, operand: Operand, source: SourceValues
) -> Iterator[Constants]:
    """Which constants of the source the program's may be: such as the value is computed from.

    Args:
        cone: of the program's nodes, with the constants that they read.
        operand: the value that the cone may give.

    Returns:
        Choices of a constant of the source, in some order, for each of the program's: likely ones first.

    Raises:
        UnevaluatedError: one of the program's is none of them.
    """
    if not cone.constants:
        return iter([{}])
    outer, inner = _constants(views, operand, source)
    # Programs read them as the source does, first what it reads first, few rounded or widened ahead of time.
    kinds: dict[Operand, set[str]] = {}
    for constant in (*reversed(outer), *inner):
        base = views.based(constant, None)[0]
        kinds.setdefault(base, set()).add(views.type_of(constant).partition("[")[0])
    constants = list(kinds)
    moved = _moved(views, (*outer, *inner))
    whole = list(begun(views, operand, source))
    turned = turned_filters(views, operand, source)
    choices: dict[Key, list[tuple[Operand, Order | None]]] = {}
    pure = [o for o in constants if o[0] == "p" and views.pure[int(o[1])]]
    for (node, number), kind in cone.constants.items():
        shape = shape_of(kind)[1] or ()
        fitting = [o for o in constants if source.tensor(o).size == prod(shape)]
        element = kind.partition("[")[0]
        fitting = [o for own in (True, False) for o in fitting if (element in kinds[o]) is own]
        opaque = program.nodes[node].operands[number]
        if isinstance(opaque, Opaque) and opaque.elements:
            elements = np.array(opaque.elements)
            same = [o for o in fitting if o in pure and agree(elements, source.tensor(o).all().reshape(-1))]
            if same:
                choices[node, number] = [(same[0], None)]
                continue
            fitting = [o for o in fitting if o not in pure]
        ways: list[tuple[Operand, Order | None]] = [
            (o, layout) for o in fitting for layout in layouts(source.tensor(o).shape, shape)
        ]
        ways[1:1] = [(o, None) for o in moved if source.tensor(o).size == prod(shape)]
        ways += [(o, layout) for o in constants for layout in placements(source.tensor(o).shape, shape)]
        ways += [(cat, order) for cat, order in whole if order.size == prod(shape)]
        ways[1:1] = as_filters(turned, shape)
        if ways:
            choices[node, number] = ways
        elif not (isinstance(opaque, Opaque) and opaque.elements):  # else it is the program's own, as it stands
            raise UnevaluatedError("a constant that was computed ahead of time and is no weight in another order")
    return (dict(zip(choices, chosen, strict=True)) for chosen in combinations([*choices.values()]))


def _moved(views: SourceViews, constants: Iterable[Operand]) -> list[Operand]:
    """Those that hold the elements of others in another order, one for each order."""
    orders: dict[Hashable, Operand] = {}
    for constant in constants:
        base, layout = views.based(constant, None)
        if layout is not None:
            orders.setdefault((base, layout.key), constant)
    return list(orders.values())


def _constants(views: SourceViews, operand: Operand, source: SourceValues) -> tuple[list[Operand], list[Operand]]:
    """Weights, and what is computed of such alone, behind a value: those that are read by what is not, and those
    behind them. What was drawn is not looked behind."""
    outer: list[Operand] = []
    inner: list[Operand] = []
    stack, seen = [(operand, False)], set[Operand]()
    while stack:
        current, within = stack.pop()
        kind, name = current
        if current in seen or kind == "a" or source.twin(current) in source.given:
            continue
        seen.add(current)
        constant = kind == "w" or views.constant.get(int(name), False)
        if constant:
            with suppress(UnevaluatedError):  # of several values, what is behind them may be one
                source.tensor(current)
                (inner if within else outer).append(current)
        if kind == "p":
            stack += [(read, constant) for read in arguments.operands(views.parts[int(name)].args)]
    return outer, inner
