"""Whether a node gives back one of its inputs, found out by running it on small integers.

Asked only of nodes that left no trace in the compiled program and are no views by their schema: a multiplication by
one, a copy, an addition of zero. Integers of small magnitude are exact in every floating-point type, so equal results
are equal, and unequal ones differ.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_map

_ROUNDS = 2


class Identities:
    """Answers for the nodes of one graph, remembered."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.name: node for node in graph.nodes if node.op == "call_function"}
        self._known: dict[str, bool] = {}

    def __call__(self, name: str) -> bool:
        if name not in self._known:
            node = self._nodes.get(name)
            self._known[name] = node is not None and _gives_back(node)
        return self._known[name]


def _gives_back(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    same = [n for n in node.all_input_nodes if _like(n.meta.get("val"), value)]
    return bool(same) and all(_once(node, same, seed) for seed in range(_ROUNDS))


def _like(a: Any, b: torch.Tensor) -> bool:
    return isinstance(a, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape


def _once(node: Node, same: list[Node], seed: int) -> bool:
    generator = torch.Generator().manual_seed(seed)
    made: dict[Node, Any] = {}

    def concrete(argument: Any) -> Any:
        if not isinstance(argument, Node):
            return argument
        if argument not in made:
            made[argument] = _example(argument.meta.get("val"), generator)
        return made[argument]

    args, kwargs = tree_map(concrete, (node.args, node.kwargs))
    try:
        with torch.no_grad():
            result = node.target(*args, **kwargs)  # type: ignore[operator]  # an OpOverload
    except (RuntimeError, ValueError, TypeError, IndexError):  # what it wants is not what was drawn
        return False
    return any(torch.equal(result, made[n]) for n in same if n in made)


def _example(value: Any, generator: torch.Generator) -> Any:
    if isinstance(value, torch.Tensor):
        shape = [size if isinstance(size, int) else 3 for size in value.shape]
        drawn = torch.randint(1, 8, shape, generator=generator)
        return drawn > 4 if value.dtype is torch.bool else drawn.to(value.dtype)
    return value if isinstance(value, int | float | bool) else 3
