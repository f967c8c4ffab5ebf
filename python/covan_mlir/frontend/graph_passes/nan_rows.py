"""Which elements of a softmax are NaN: all of a row, or none, and the sum that the row is divided by tells.

    p = exp(s - amax(s)) / sum(exp(s - amax(s)))        isnan(p)  becomes  isnan(sum(...)), for each row

With a NaN or an infinity as its largest element, a row has a summand that is NaN, and so are the sum and every
quotient. Otherwise all summands are in [0, 1], the sum is at least 1, and no quotient is NaN. Attention that gives
zeros for rows without any key asks ``where(isnan(p), 0, p)``: exporters to ONNX write it so. What is the same for a
whole row can be done behind the sum over it, and so attention is computed in one sweep.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten


def ask_of_rows(graph: Graph) -> None:
    """Have selections by which elements of a softmax are NaN ask the sum of each row."""
    for node in graph.find_nodes(op="call_function", target=_aten.isnan.default):
        total = _total(node.args[0])
        if total is None or not all(_selects(user, node) for user in node.users):
            continue
        node.args = (total,)
        node.meta["val"] = total.meta["val"].to(torch.bool)
        node.meta.pop("tensor_meta", None)


def _total(value: object) -> Node | None:
    """The sums that a softmax divides by."""
    if not isinstance(value, Node) or value.target is not _aten.div.Tensor:
        return None
    exponentials, total = value.args
    if not isinstance(exponentials, Node) or exponentials.target is not _aten.exp.default:
        return None
    if not isinstance(total, Node) or total.target is not _aten.sum.dim_IntList or total.args[0] is not exponentials:
        return None
    below = exponentials.args[0]
    if not isinstance(below, Node) or below.target is not _aten.sub.Tensor or below.kwargs:
        return None
    scores, largest = below.args
    if not isinstance(largest, Node) or largest.target is not _aten.amax.default or largest.args[0] is not scores:
        return None
    kept = len(total.args) > 2 and total.args[2] is True and not total.kwargs
    return total if kept and largest.args[1:] == total.args[1:] else None


def _selects(user: Node, condition: Node) -> bool:
    """Whether a node selects, by a condition, of what has the condition's shape anyway."""
    if user.target is not _aten.where.self or user.args[0] is not condition:
        return False
    shape = condition.meta["val"].shape
    others = (other for other in user.args[1:] if isinstance(other, Node))
    return any(other.meta["val"].shape == shape for other in others)
