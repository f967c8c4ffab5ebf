"""Random numbers of a graph are torch's own: drawn before the program runs, and given to it.

A compiled program's own numbers would not follow ``torch.manual_seed``. What torch draws does not depend on what the
program computes, but for its shape: dropout's mask, ``rand_like``. So each draw is a call of torch's operator, in the
order of the graph, and the program takes what it gives as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend.refusals import draws, refused

aten = torch.ops.aten

Draw = Callable[[Sequence[Any]], torch.Tensor]
"""One call of torch's generator: from the graph's arguments to random numbers."""

_LIKE = (
    aten.rand_like,
    aten.randn_like,
    aten.randint_like,
    aten.uniform,
    aten.normal_functional,
    aten.exponential,
    aten.geometric,
    aten.cauchy,
    aten.log_normal,
)
"""Operators that read of their tensor how large it is, and of which kind."""
_OF_A_NUMBER = (aten.bernoulli.p,)
"""The same, whose other overloads read the tensor's numbers."""


def taken_out(graph: Graph) -> list[tuple[Node, Draw]]:
    """Have a graph take its random numbers as arguments; -> the new placeholders, and what gives their values.

    Raises:
        ExportError: what an operator draws depends on numbers that the program computes.
    """
    positions = {node: index for index, node in enumerate(graph.find_nodes(op="placeholder"))}
    drawing = [node for node in graph.nodes if node.op == "call_function" and draws(node)]
    return [
        _mask(graph, node) if node.target == aten.native_dropout.default else _call(graph, node, positions)
        for node in drawing
    ]


def _placeholder(graph: Graph, node: Node, value: torch.Tensor) -> Node:
    """One more argument of the graph, named after the call whose numbers it is."""
    with graph.inserting_before(next(iter(graph.nodes))):
        placeholder = graph.placeholder(f"drawn_by_{node.name}")
    placeholder.meta = {"val": value}
    return placeholder


def _mask(graph: Graph, node: Node) -> tuple[Node, Draw]:
    """Dropout is a product with a mask that is drawn."""
    source, rate = node.args[0], node.args[1]
    assert isinstance(source, Node)
    assert isinstance(rate, int | float)
    like = source.meta["val"]
    mask = _placeholder(graph, node, like.new_empty(tuple(like.shape), dtype=torch.bool))
    with graph.inserting_before(node):
        kept = graph.call_function(aten.mul.Tensor, (source, mask))
        scaled = graph.call_function(aten.mul.Scalar, (kept, 0.0 if rate == 1 else 1.0 / (1.0 - rate)))
    for product in (kept, scaled):
        product.meta = {**node.meta, "val": like}
    for user in list(node.users):  # each takes one of the two results
        user.replace_all_uses_with(scaled if user.args[1] == 0 else mask)
        graph.erase_node(user)
    graph.erase_node(node)
    return mask, partial(_drawn_mask, tuple(like.shape), like.dtype, rate)


def _drawn_mask(shape: tuple[int, ...], dtype: torch.dtype, rate: float, arguments: Sequence[Any]) -> torch.Tensor:
    return torch.native_dropout(torch.ones(shape, dtype=dtype), rate, True)[1]


def _call(graph: Graph, node: Node, positions: dict[Node, int]) -> tuple[Node, Draw]:
    """The call itself, on a tensor of the same shape where it reads no more of one."""
    target: Any = node.target
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        raise refused(node, "what it draws depends on numbers that the program computes")
    blind = target.overloadpacket in _LIKE or target in _OF_A_NUMBER
    leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
    sources = [_source(node, leaf, blind, positions) for leaf in leaves]
    placeholder = _placeholder(graph, node, value)
    node.replace_all_uses_with(placeholder)
    graph.erase_node(node)

    def draw(arguments: Sequence[Any]) -> torch.Tensor:
        args, kwargs = pytree.tree_unflatten([source(arguments) for source in sources], spec)
        drawn: torch.Tensor = target(*args, **kwargs)
        return drawn

    return placeholder, draw


def _source(node: Node, leaf: Any, blind: bool, positions: dict[Node, int]) -> Draw:
    """What gives one of the operator's own arguments."""
    if not isinstance(leaf, Node):
        return lambda arguments: leaf
    like = leaf.meta["val"]
    if blind and isinstance(like, torch.Tensor):
        shape, strides, dtype = tuple(like.shape), like.stride(), like.dtype
        return lambda arguments: torch.empty_strided(shape, strides, dtype=dtype)
    if leaf in positions:
        position = positions[leaf]
        return lambda arguments: arguments[position]
    raise refused(node, "what it draws depends on numbers that the program computes")
