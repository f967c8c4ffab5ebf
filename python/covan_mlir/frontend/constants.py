"""Constants of the graph that are worth having by value: vectors of indices and coefficients, and single numbers.

An interpolation computes from its sizes alone an index and a coefficient per row and column, in some thirty operations.
Left to the compiler they run as that many kernels whenever the program is loaded; a sum of ones loses the operand that
says how long it is. Here they are computed once, by torch, and enter the program as literals at the place of the last
operation. What varies along several axes, such as a mask, stays an expression: kernels compute it where they need it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from covan_mlir.frontend.actions import reads_sizes_only

_LONGEST = 1 << 14  # elements of a literal
_LARGEST = 1 << 20  # elements of what is computed on the way


def literals(graph: Graph) -> dict[Node, torch.Tensor]:
    """The values of the nodes that are to enter the program as literals.

    Those are nodes that read constants and nothing else, and whose value is read by others than such nodes.
    """
    constants = _constants(graph)
    values: dict[Node, torch.Tensor | None] = {}
    chosen: dict[Node, torch.Tensor] = {}
    for node in graph.nodes:
        if node not in constants or not _worth(node) or all(user in constants for user in node.users):
            continue
        value = _value(node, values)
        if value is not None:
            chosen[node] = value
    return chosen


def _constants(graph: Graph) -> set[Node]:
    """Nodes whose values follow from numbers in the graph alone."""
    constants: set[Node] = set()
    for node in graph.nodes:
        if (
            node.op == "call_function"
            and isinstance(node.target, torch._ops.OpOverload)
            and torch.Tag.nondeterministic_seeded not in node.target.tags
            and not node.target._schema.is_mutable
            and "empty" not in node.target._schema.name
            and _known(node)
            and (
                all(_known(read) for read in node.all_input_nodes)
                if reads_sizes_only(node)
                else constants.issuperset(node.all_input_nodes)
            )
        ):
            constants.add(node)
    return constants


def _known(node: Node) -> bool:
    """Whether a node gives a tensor of known, moderate size."""
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_complex()
        and all(isinstance(size, int) for size in value.shape)
        and value.numel() <= _LARGEST
    )


def _worth(node: Node) -> bool:
    """Whether a constant is a vector (or a number) that is computed from others."""
    value = node.meta["val"]
    return bool(
        constant_operands(node) and 0 < value.numel() <= _LONGEST and value.numel() == max(value.shape, default=1)
    )


def constant_operands(node: Node) -> list[Node]:
    """The nodes whose elements a node reads."""
    return [] if reads_sizes_only(node) else node.all_input_nodes


def _value(node: Node, values: dict[Node, torch.Tensor | None]) -> torch.Tensor | None:
    """The value of a constant, by torch; None if torch refuses. ``values`` holds those known already."""
    stack = [node]
    while stack:
        reader = stack[-1]
        waiting = [read for read in constant_operands(reader) if read not in values]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if reader not in values:
            values[reader] = _run(reader, values)
    return values[node]


def _run(node: Node, values: dict[Node, torch.Tensor | None]) -> torch.Tensor | None:
    def given(read: Node) -> Any:
        if reads_sizes_only(node):
            like = read.meta["val"]
            return torch.empty((), dtype=like.dtype).expand(like.shape)
        return values[read]

    if any(values[read] is None for read in constant_operands(node)):
        return None
    target: Any = node.target
    try:
        with torch.no_grad():
            value = target(*map_arg(node.args, given), **map_arg(dict(node.kwargs), given))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    return value if isinstance(value, torch.Tensor) and value.shape == node.meta["val"].shape else None
