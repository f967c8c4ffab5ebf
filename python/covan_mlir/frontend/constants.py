"""Constants of the graph that are worth having by value: vectors of indices, coefficients and weights, single numbers.

An interpolation computes from its sizes alone an index and a coefficient per row and column, in some thirty operations.
Left to the compiler they run as that many kernels whenever the program is loaded; a sum of ones loses the operand that
says how long it is. Here they are computed once, by torch, and enter the program as literals at the place of the last
operation. What varies along several axes, such as a mask, stays an expression: kernels compute it where they need it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from covan_mlir.frontend.actions import reads_sizes_only

_LONGEST = 1 << 14  # elements of a literal
_LARGEST = 1 << 20  # elements of what is computed on the way
_CONVERT = torch.ops.prims.convert_element_type.default
_CONTINUOUS = {
    torch.ops.prims.convert_element_type,
    *(torch.ops.aten.add, torch.ops.aten.sub, torch.ops.aten.mul, torch.ops.aten.div, torch.ops.aten.neg),
    *(torch.ops.aten.sqrt, torch.ops.aten.rsqrt, torch.ops.aten.reciprocal),
    *(torch.ops.aten.unsqueeze, torch.ops.aten.view, torch.ops.aten.squeeze, torch.ops.aten.expand),
}
_SHORT = 4  # operations that kernels compute where they need them, rather than read their result


def literals(graph: Graph, weights: Mapping[Node, torch.Tensor]) -> dict[Node, torch.Tensor]:
    """The values of the nodes that are to enter the program as literals.

    Those are nodes that read constants and nothing else, and whose value is read by others than such nodes. What is
    computed of weights by smooth functions alone is computed in double precision, and rounded once.

    Args:
        weights: values of placeholders that are the same at every call.
    """
    vectors = {node: tensor for node, tensor in weights.items() if _vector(tensor)}
    constants = _constants(graph, vectors)
    values: dict[Node, torch.Tensor | None] = {**vectors}
    exact: dict[Node, torch.Tensor | None] = {
        node: tensor.double() for node, tensor in vectors.items() if tensor.dtype.is_floating_point
    }
    chosen: dict[Node, torch.Tensor] = {}
    for node in graph.nodes:
        if (
            node in vectors
            or node not in constants
            or not _worth(node)
            or all(user in constants for user in node.users)
        ):
            continue
        if not _shrinks(node) and len(_behind(node)) <= _SHORT:
            continue
        smooth = _smooth(node, exact)
        value = _value(node, exact if smooth else values, _evaluate_exactly if smooth else _evaluate)
        if value is not None:
            chosen[node] = value.to(node.meta["val"].dtype)
    return chosen


def evaluated(graph: Graph, wanted: Iterable[Node]) -> dict[Node, torch.Tensor]:
    """The values of those nodes that follow from numbers in the graph alone."""
    constants = _constants(graph, ())
    values: dict[Node, torch.Tensor | None] = {}
    every = {node: _value(node, values, _evaluate) for node in wanted if node in constants}
    return {node: value for node, value in every.items() if value is not None}


def _vector(value: torch.Tensor) -> bool:
    """Whether a tensor varies along one axis at most, and is no longer than a literal may be."""
    return 0 < value.numel() <= _LONGEST and value.numel() == max(value.shape, default=1)


def _constants(graph: Graph, vectors: Iterable[Node]) -> set[Node]:
    """Nodes whose values follow from weights and numbers in the graph alone."""
    constants = {*vectors}
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
    return bool(constant_operands(node)) and _vector(node.meta["val"])


def _shrinks(node: Node) -> bool:
    """Whether a constant has fewer elements than what it is computed from: little is left of a sum."""
    return any(node.meta["val"].numel() < read.meta["val"].numel() for read in constant_operands(node))


def _behind(node: Node) -> set[Node]:
    """The operations that a constant is computed by, up to a few more than are short."""
    behind: set[Node] = set()
    waiting = [node]
    while waiting and len(behind) <= _SHORT:
        operation = waiting.pop()
        if operation not in behind:
            behind.add(operation)
            waiting += constant_operands(operation)
    return behind


def constant_operands(node: Node) -> list[Node]:
    """The nodes whose elements a node reads."""
    return [] if reads_sizes_only(node) else node.all_input_nodes


def _smooth(node: Node, weights: Container[Node]) -> bool:
    """Whether a constant is a continuous function of floating-point weights, computed in single or double precision."""
    behind = False
    seen: set[Node] = set()
    waiting = [node]
    while waiting:
        operation = waiting.pop()
        if operation in weights:
            behind = True
        elif operation not in seen:
            seen.add(operation)
            if operation.op != "call_function" or getattr(operation.target, "overloadpacket", None) not in _CONTINUOUS:
                return False
            if operation.meta["val"].dtype not in (torch.float32, torch.float64):
                return False
            waiting += constant_operands(operation)
    return behind


def _value(
    node: Node, values: dict[Node, torch.Tensor | None], evaluate: Callable[[Node, list[Any], dict[str, Any]], Any]
) -> torch.Tensor | None:
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
            values[reader] = _run(reader, values, evaluate)
    return values[node]


def _run(
    node: Node,
    values: Mapping[Node, torch.Tensor | None],
    evaluate: Callable[[Node, list[Any], dict[str, Any]], Any],
) -> torch.Tensor | None:
    def given(read: Node) -> Any:
        if reads_sizes_only(node):
            like = read.meta["val"]
            return torch.empty((), dtype=like.dtype).expand(like.shape)
        return values[read]

    if any(values[read] is None for read in constant_operands(node)):
        return None
    try:
        with torch.no_grad():
            value = evaluate(node, list(map_arg(node.args, given)), map_arg(dict(node.kwargs), given))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    return value if isinstance(value, torch.Tensor) and value.shape == node.meta["val"].shape else None


def _evaluate(node: Node, args: list[Any], named: dict[str, Any]) -> Any:
    target: Any = node.target
    return target(*args, **named)


def _evaluate_exactly(node: Node, args: list[Any], named: dict[str, Any]) -> Any:
    """The value in double precision, of operands in double precision."""
    return args[0] if node.target is _CONVERT else _evaluate(node, args, named)
