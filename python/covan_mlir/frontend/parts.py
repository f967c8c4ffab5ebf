"""The ledger: actions of the exported graph, and the parts that decompositions made of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from covan_mlir.frontend import control
from covan_mlir.frontend.actions import (
    constant_operands,
    distinct,
    graphs,
    is_view,
    op_name,
    source_actions,
    type_strings,
    values_read,
)
from covan_mlir.frontend.alike_loops import with_twins
from covan_mlir.frontend.control import Key, Passage, Source
from covan_mlir.frontend.identity import fingerprint
from covan_mlir.provenance import arguments as arguments_text
from covan_mlir.provenance.control import ELEMENT
from covan_mlir.provenance.model import ALIASES, Action, Part

log = logging.getLogger(__name__)


def ledger(
    exported: torch.fx.Graph,
    decomposed: torch.fx.Graph,
    arguments: Sequence[Node] = (),
    weights: Mapping[Node, str] | None = None,
) -> tuple[tuple[Action, ...], Mapping[Source, Part]]:
    """-> (actions with their parts, part of each call node of the decomposed graph and of each passage).

    Args:
        arguments: placeholders that are the program's arguments, in order.
        weights: placeholders that are frozen in the program, and what the model calls them.
    """
    actions = source_actions(exported)
    known = {id(graph): path for path, graph in graphs(exported)}
    paths = {id(graph): path for path, graph in graphs(decomposed)}
    order = list(control.sequence(decomposed))
    origin = {node: _origin(node, known, actions) for node in map(_node, order)}
    asserted = {path + node.name: _asserted(node) for path, graph in graphs(exported) for node in graph.nodes}
    kept = {path + node.name: op_name(node) for path, graph in graphs(exported) for node in graph.nodes}
    _adopt(origin, actions, asserted, kept)
    owners = distinct(actions)
    number = {_key(item): index for index, item in enumerate(order, start=len(owners))}
    parts: dict[Source, Part] = {}
    position = {node: index for index, node in enumerate(arguments)}
    held = weights or {}
    outside = control.aliases(decomposed)
    outside |= {inner: value for node in origin for inner, value in constant_operands(node).items()}

    def meant(value: Source) -> Source:
        while isinstance(value, Node) and value in outside:
            value = outside[value]
        return value

    def plain(value: Any) -> Any:
        if not isinstance(value, Node | Key):
            return _plain(value)
        value = meant(value)
        if value in parts or isinstance(value, Key):
            return {"p": number[value]}
        assert isinstance(value, Node)
        return outer(value) | {"of": ", ".join(type_strings(value.meta.get("val")))}

    def outer(value: Node) -> dict[str, Any]:
        own = paths[id(value.graph)] + value.name  # what a body is given is not known
        return {"a": position[value]} if value in position else {"w": held.get(value, own)}

    def given(values: Sequence[Node], value: Any) -> Any:
        if value in values or not isinstance(value, Node):
            return plain(value) if value in values else _plain(value)
        asked = meant(value)
        if isinstance(asked, Node) and (asked in position or asked in held):
            return _plain(value) | {"like": outer(asked)}
        return _plain(value)

    def passage(item: Passage, action: int) -> Part:
        read = [value for value in map(meant, item.sources) if value in parts]
        following = [] if item.following is None else [{"n": later(item.following)}]
        args = [f"{paths[id(item.node.graph)]}{item.node.name}", item.index, *item.args]
        text = arguments_text.encode(args, {}, plain)
        if following:
            text = arguments_text.extended(text, following)
        index = number[item.key]
        return Part(
            id=index,
            action=action,
            name=f"{paths[id(item.node.graph)]}{item.name}",
            op=item.op,
            inputs=tuple(sorted({parts[value].id for value in read})),
            types=type_strings(item.value),
            arguments=tuple(sorted({position[value] for value in map(meant, item.sources) if value in position})),
            view=item.op == ELEMENT,
            twin=index,
            args=text,
        )

    def later(value: Any) -> Any:
        """What is computed only later, or before."""
        value = meant(value) if isinstance(value, Node | Key) else value
        return {"p": number[value]} if value in number else plain(value)

    numbers = _ValueNumbers(outside)
    for item in order:
        node = _node(item)
        name = origin[node]
        if name is None:
            continue  # a graph without a single tie: the warning above says so
        if isinstance(item, Passage):
            parts[item.key] = passage(item, actions[name].id)
            continue
        index = number[node]
        values = values_read(node)
        read = list(dict.fromkeys(map(meant, values)))
        reads = sorted({parts[n].id for n in read if n in parts})
        args = arguments_text.encode(node.args, node.kwargs, partial(given, values))
        parts[node] = Part(
            id=index,
            action=actions[name].id,
            name=paths[id(node.graph)] + node.name,
            op=op_name(node),
            inputs=tuple(reads),
            types=type_strings(node.meta.get("val")),
            arguments=tuple(sorted(position[n] for n in read if n in position)),
            view=is_view(node),
            twin=numbers.first(node, index, op_name(node), args, values),
            args=args,
        )
    drawn = [parts[node].id for node in parts if isinstance(node, Node) and _is_random(node)]
    parts = dict(zip(parts, with_twins(list(parts.values()), drawn), strict=True))
    by_action: dict[int, list[Part]] = {}
    for part in parts.values():
        by_action.setdefault(part.action, []).append(part)
    whole = tuple(replace(action, parts=tuple(by_action.get(action.id, ()))) for action in owners)
    return whole, parts


def _plain(value: Any) -> Any:
    """The JSON form of an argument (`covan_mlir.provenance.arguments`) that JSON lacks; of a tensor, its type."""
    if isinstance(value, Node):
        return {"r": ", ".join(type_strings(value.meta.get("val")))}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": str(value)}
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return {"t": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"d": str(value)}
    if isinstance(value, slice):
        bounds = (value.start, value.stop, value.step)
        if all(bound is None or isinstance(bound, int) for bound in bounds):
            return {"s": list(bounds)}
    return {"r": repr(value)}


def _node(item: Node | Passage) -> Node:
    return item.node if isinstance(item, Passage) else item


def _key(item: Node | Passage) -> Source:
    return item.key if isinstance(item, Passage) else item


def _is_random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


class _ValueNumbers:
    """Which nodes compute the same from the same: value numbering over a graph without side effects."""

    def __init__(self, aliases: Mapping[Node, Node]) -> None:
        self._number: dict[Node, int] = {}
        self._first: dict[Any, int] = {}
        self._aliased = dict(aliases)

    def first(self, node: Node, index: int, op: str, args: str, read: Sequence[Node]) -> int:
        """The index under which the node's value was first seen; ``op`` and ``args`` as in its part.

        Args:
            read: of the nodes that the operator is given those of which it reads more than the type.
        """
        key: Any = index
        if op in ALIASES and isinstance(node.args[0], Node):
            self._aliased[node] = node.args[0]
        if not _is_random(node):
            constant = None if node.all_input_nodes else fingerprint(op, args)
            key = constant or (node.target, self._key(node.args, read), self._key(node.kwargs, read))
        self._number[node] = self._first.setdefault(key, index)
        return self._number[node]

    def _key(self, value: Any, read: Sequence[Node]) -> Any:
        if isinstance(value, Node):
            if value not in read and isinstance(tensor := value.meta.get("val"), torch.Tensor):
                return ("type", *type_strings(tensor))
            while value in self._aliased:
                value = self._aliased[value]
            return ("node", self._number.get(value, value))
        if isinstance(value, list | tuple):
            return tuple(self._key(item, read) for item in value)
        if isinstance(value, dict):
            return tuple((key, self._key(item, read)) for key, item in sorted(value.items()))
        return (type(value).__name__, repr(value))  # 1, 1.0 and True are different arguments


def _origin(node: Node, known: Mapping[int, str], actions: Mapping[str, Action]) -> str | None:
    """Name of the action that ``node`` is a part of, from torch's ``from_node`` chain.

    Args:
        known: ids of the exported graph and of bodies in it, with what goes before names in them.
    """
    sources = node.meta.get("from_node") or []
    while sources:
        source = sources[-1]
        if source.graph_id in known and (name := f"{known[source.graph_id]}{source.name}") in actions:
            return name
        sources = source.from_node
    return None


def _asserted(node: Node) -> str:
    """What an assertion on sizes says, or which number a node computes of them; of any other node nothing."""
    if node.target is torch.ops.aten._assert_scalar.default:
        return str(node.args[1]).split(" on node ")[0]
    value = node.meta.get("val")
    return str(value) if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else ""


def _adopt(
    origin: dict[Node, str | None],
    actions: Mapping[str, Action],
    asserted: Mapping[str, str],
    operations: Mapping[str, str],
) -> None:
    """Nodes without a tie: torch makes such nodes of constants, in some decompositions, and to assert sizes again.

    One that kept its name and operation, and what it asserts, is its action's; any other belongs to the action that
    uses it first. So does one that torch ties to an action that no result needs, if others need it: what is done to a
    tensor again, after a change in place, is tied to whatever looked at it first, an assertion perhaps.

    Args:
        asserted: by name, what calls assert.
        operations: by name, what calls call.
    """
    for node in reversed(origin):
        kept = node.name in actions and operations.get(node.name) == op_name(node)
        if origin[node] is None and kept and asserted[node.name] == _asserted(node):
            origin[node] = node.name
        users = [name for user in node.users if (name := origin.get(user)) is not None]
        own = origin[node] or next(iter(users), None)
        if own is not None and not actions[own].live:
            own = next((name for name in users if actions[name].live), own)
        origin[node] = own
    for node, name in origin.items():
        if name is None:
            origin[node] = next((origin[n] for n in node.all_input_nodes if origin.get(n)), None)
            if origin[node] is None:
                log.warning("torch does not say which call %s (%s) comes from", node.name, op_name(node))
