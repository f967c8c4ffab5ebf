"""Operators that give the same number everywhere, whatever they read, as the constants they are.

The compilers fold the bodies of such loops. A reduction that reads one then has nothing left that says how long it is,
and IREE lets it run once: ``(x * 0 + 1).sum()`` of integers would be 1, whatever the length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from covan_mlir.frontend.graph_passes.empty import fill

aten = torch.ops.aten


def _zero(value: torch.Tensor, number: Any) -> Any:
    return 0 if number == 0 and not value.dtype.is_floating_point and not value.dtype.is_complex else None


def _all(value: torch.Tensor, number: Any) -> Any:
    return True if number is True and value.dtype is torch.bool else None


def _one(value: torch.Tensor, number: Any) -> Any:
    return 0 if abs(number) == 1 and not value.dtype.is_floating_point else None


def _nan(result: bool) -> Callable[[torch.Tensor, Any], Any]:
    return lambda value, number: result if isinstance(number, float) and math.isnan(number) else None


# What an operator gives everywhere, of its result's type and of its second argument; None: that depends.
_RULES: dict[Any, Callable[[torch.Tensor, Any], Any]] = {
    aten.mul: _zero,
    aten.bitwise_and: _zero,
    aten.bitwise_or: _all,
    aten.remainder: _one,
    aten.ne: _nan(True),
    **dict.fromkeys((aten.lt, aten.le, aten.gt, aten.ge, aten.eq), _nan(False)),
}


def fold_uniform(graph: Graph) -> None:
    """Make constants of operators on a tensor of known size and a number that leaves nothing of it."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        rule, value = _RULES.get(node.target.overloadpacket), node.meta.get("val")
        if rule is None or not isinstance(value, torch.Tensor) or len(node.args) != 2 or node.kwargs:
            continue
        number: Any = node.args[1]
        if isinstance(number, Node) and number.target is aten.scalar_tensor.default:
            number = number.args[0]
        if isinstance(number, Node) or not all(isinstance(size, int) for size in value.shape):
            continue
        if (result := rule(value, number)) is not None:
            fill(node, result)
