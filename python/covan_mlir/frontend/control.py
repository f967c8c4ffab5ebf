"""Operators that take functions, in terms of values: what goes round in a loop, and what comes out of a branch or loop.

Such an operator is no part itself. What it does with values are parts of its own, with operators of their own
(`covan_mlir.provenance.control`), so that bodies read values as all others do.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend.actions import bodies
from covan_mlir.provenance import control

_COND, _WHILE, _SCAN, _MAP = (
    getattr(torch.ops.higher_order, name) for name in ("cond", "while_loop", "scan", "map_impl")
)


@dataclass(frozen=True)
class Key:
    """A value that no node of the graph is: ``role`` is ``memory`` or ``stacked``."""

    role: str
    node: Node
    index: int


Source = Node | Key


@dataclass(frozen=True)
class Passage:
    """One value that goes into a body, or out of it.

    Attributes:
        key: what stands for it: a placeholder of a body, or what takes a result of the operator apart.
        node: the operator.
        op: see `covan_mlir.provenance.control`.
        args: what the part is called with, beside the operator's name and a position.
        following: of what is carried, its value in the next iteration.
        value: an example.
    """

    key: Source
    node: Node
    op: str
    index: int
    args: tuple[Any, ...]
    value: Any
    following: Any = None

    @property
    def sources(self) -> list[Source]:
        """The values of the graph among what it is called with."""
        return [value for value in self.args if isinstance(value, Node | Key)]

    @property
    def name(self) -> str:
        """``while_loop.carried_1``."""
        if isinstance(self.key, Node) and self.key.graph is self.node.graph:
            return self.key.name
        return f"{self.node.name}.{self.op.removeprefix(control.PREFIX)}_{self.index}"


def passes(node: Node) -> bool:
    """Whether an operator is described here."""
    return node.target in (_COND, _WHILE, _SCAN, _MAP)


def sequence(graph: Graph) -> Iterator[Node | Passage]:
    """The call nodes of a graph in order, those of bodies where these are called, and passages in place of operators
    that take functions and of what takes their results apart."""
    for node in graph.nodes:
        if node.op not in ("call_function", "call_module", "call_method"):
            continue
        if _takes_apart(node):
            continue
        known = passes(node)
        if known:
            yield from into(node)
        for body in bodies(node):
            yield from sequence(body)
        if known:
            yield from out_of(node)
        else:
            yield node


def into(node: Node) -> Iterator[Passage]:
    """What goes into the bodies of an operator: what is carried, and elements of what is looped over."""
    if node.target is _COND:
        return
    (body,) = bodies(node)
    placeholders = body.find_nodes(op="placeholder")
    returned = _returned(body)
    start, whole = _start(node), _whole(node)
    following = returned[1:] if node.target is _WHILE else returned
    for index, (value, after) in enumerate(zip(start, following, strict=False)):
        inner = placeholders[index]
        yield Passage(inner, node, control.CARRIED, index, (value,), inner.meta.get("val"), after)
    for index, value in enumerate(whole):
        inner = placeholders[len(start) + index]
        yield Passage(inner, node, control.ELEMENT, index, (value,), inner.meta.get("val"))
    for index in range(len(returned) - len(start) if node.target is not _WHILE else 0):
        value = node.meta["val"][len(start) + index]
        key = Key("memory", node, index)
        yield Passage(key, node, control.CARRIED, len(start) + index, (None,), value, Key("stacked", node, index))


def out_of(node: Node) -> Iterator[Passage]:
    """What comes out of the bodies of an operator: elements put in their places, and results."""
    functions = bodies(node)
    start = _start(node)
    ends: list[tuple[Any, ...]]
    if node.target is _COND:
        ends = [(node.args[0], *both) for both in zip(*map(_returned, functions), strict=True)]
    elif node.target is _WHILE:
        again, *following = _returned(functions[0])
        ends = [(node.args[0], again, *both) for both in zip(start, following, strict=True)]
    else:
        returned = _returned(functions[0])
        ends = list(zip(start, returned, strict=False))
        for index, value in enumerate(returned[len(start) :]):
            key = Key("stacked", node, index)
            stack = node.meta["val"][len(start) + index]
            yield Passage(key, node, control.STACKED, index, (value, Key("memory", node, index)), stack)
            ends.append((None, key))
    op = {_COND: control.BRANCH, _WHILE: control.WHILE}.get(node.target, control.FOR)
    seen: set[int] = set()
    for user in node.users:
        if _takes_apart(user) and user.args[1] not in seen:
            index = cast(int, user.args[1])
            seen.add(index)
            yield Passage(user, node, op, index, ends[index], user.meta.get("val"))


def aliases(graph: Graph) -> dict[Node, Node]:
    """What takes an operator's result apart once more, and who did so first; bodies included."""
    known: dict[Node, Node] = {}
    first: dict[tuple[Node, Any], Node] = {}
    for node in graph.nodes:
        if _takes_apart(node):
            leading = first.setdefault((node.args[0], node.args[1]), node)
            if leading is not node:
                known[node] = leading
        elif node.op == "call_function":
            for body in bodies(node):
                known |= aliases(body)
    return known


def _takes_apart(node: Node) -> bool:
    whole = node.args[0] if node.target is operator.getitem else None
    return isinstance(whole, Node) and passes(whole)


def _returned(body: Graph) -> list[Any]:
    return list(pytree.tree_leaves(body.output_node().args[0]))


def _start(node: Node) -> list[Any]:
    """What is carried into the first iteration."""
    position = {_WHILE: 2, _SCAN: 1}.get(node.target)
    return [] if position is None else list(pytree.tree_leaves(node.args[position]))


def _whole(node: Node) -> Sequence[Any]:
    """What is looped over."""
    position = {_SCAN: 2, _MAP: 1}.get(node.target)
    return [] if position is None else pytree.tree_leaves(node.args[position])
