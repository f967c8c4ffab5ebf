"""The ledger of a model whose graph was substituted: the same actions, and the parts of what was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from covan_mlir.provenance import arguments
from covan_mlir.provenance.model import Action, Part
from covan_mlir.provenance.substitution import SubstitutedGraph, SubstitutedPart

_DRAWN = ("rand", "bernoulli", "dropout", "normal", "uniform", "multinomial", "exponential")


def actions_after(actions: Sequence[Action], graph: SubstitutedGraph | None) -> tuple[Action, ...]:
    """The ledger after substitutions; as it was where there are none.

    A part that does the work of several actions is a part of each.
    """
    if graph is None or not graph.parts:
        return tuple(actions)
    by_action: dict[int, list[Part]] = {action.id: [] for action in actions}
    first: dict[Any, int] = {}
    twins: dict[int, int] = {}
    for row in graph.parts:
        part = _part(row, twins, first)
        twins[part.id] = part.twin
        for action in part.owners:
            by_action[action].append(part)
    return tuple(replace(action, parts=tuple(by_action[action.id])) for action in actions)


def _part(row: SubstitutedPart, twins: dict[int, int], first: dict[Any, int]) -> Part:
    operands = arguments.operands(row.args)
    read = [(kind, twins.get(int(name), name) if kind == "p" else name) for kind, name in operands]
    drawn = any(word in row.op for word in _DRAWN)
    key = row.id if drawn else (row.op, arguments.signature(row.args), tuple(read))
    return Part(
        id=row.id,
        action=row.actions[0],
        name=row.name,
        op=row.op,
        inputs=tuple(sorted({int(name) for kind, name in operands if kind == "p"})),
        types=row.types,
        arguments=tuple(sorted({int(name) for kind, name in operands if kind == "a"})),
        view=row.view,
        twin=first.setdefault(key, row.id),
        args=row.args,
        also=row.actions[1:],
    )
