"""Which tensor of the exported program a key of ``CompileOptions.attach`` names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from covan_mlir.errors import InputError
from covan_mlir.frontend.actions import action_of, distinct, source_actions
from covan_mlir.frontend.groups import groups
from covan_mlir.frontend.rebuild import observable
from covan_mlir.provenance.model import Action, LineageData

_LISTED = 6


@dataclass(frozen=True)
class Target:
    """A tensor of the exported program.

    Attributes:
        node: that gives it.
        action: name of the action that the node is of: its own, or that of an operation that was translated.
    """

    node: Node
    action: str


def named(graph: torch.fx.Graph, key: str | int) -> Target:
    """The tensor that a key names.

    An action's name or id: its result. A module path, source line or group, which stand for several actions: the one
    tensor of theirs that others read or the model returns. Of a module that is called several times there is one
    for each call, and none is taken for the others.

    Raises:
        InputError: nothing is called so (suggests what is), no tensor or several come out, or it is no tensor that
            programs return.
    """
    source = LineageData(distinct(source_actions(graph)), groups=groups(graph)[0])
    try:
        actions = source.find(key)
    except KeyError as error:
        raise InputError(f"attach: {error.args[0]}") from None
    owner = action_of(graph)
    nodes = list(owner)
    ids = {action.id for action in actions}
    if len(actions) == 1 and (own := [node for node in nodes if owner[node] in ids]):
        node = own[-1]
        _check(key, actions[0], node)
        return Target(node, actions[0].name)
    inside = {node for node in nodes if owner[node] in ids}
    leaving = [
        node
        for node in nodes
        if node in inside and observable(node) and any(_leaves(node, user, inside, str(key)) for user in node.users)
    ]
    if len(leaving) == 1:
        return Target(leaving[0], source.actions[owner[leaving[0]]].name)
    if leaving:
        several = _listed(source, leaving)
        raise InputError(f"attach: {key!r} gives {len(leaving)} tensors: attach to one of them by name: {several}")
    raise InputError(
        f"attach: {key!r} stands for {len(actions)} actions, none of which gives a tensor that others read"
    )


def _leaves(node: Node, user: Node, inside: set[Node], key: str) -> bool:
    """Whether a reader of a value is outside, or in another call of the module that is meant."""
    return user not in inside or _call(node, key) != _call(user, key)


def _call(node: Node, key: str) -> str:
    """The call of a module that a node was made in: torch writes the second one as ``path@1``."""
    path = key.removeprefix("module:")
    calls = [str(call) for call, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return next((call for call in calls if call.split("@")[0] == path), "")


def _check(key: str | int, action: Action, node: Node) -> None:
    value = node.meta.get("val")
    where = f"{action.name} ({action.op}){f' at {action.line}' if action.line else ''}"
    if isinstance(value, list | tuple):
        takes = [user.name for user in node.users if isinstance(user.meta.get("val"), torch.Tensor)]
        raise InputError(f"attach: {where} gives {len(value)} tensors: attach to one of {', '.join(takes) or 'none'}")
    if not observable(node):
        raise InputError(f"attach: {key!r}: {where} gives no dense real tensor: {', '.join(action.types) or 'nothing'}")


def _listed(source: LineageData, nodes: Sequence[Node]) -> str:
    owner = action_of(nodes[0].graph)
    return ", ".join(_shown(source.actions[owner[node]] for node in nodes[:_LISTED])) + (
        ", …" if len(nodes) > _LISTED else ""
    )


def _shown(actions: Iterable[Action]) -> list[str]:
    return [f"{action.name} {', '.join(action.types)}" for action in actions]
