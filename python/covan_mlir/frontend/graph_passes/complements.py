"""Negated comparisons, written as the comparison they are.

``not (a == b)`` is ``a != b``, NaN included, and the compiler below knows: it makes them one operation, wherever both
are computed. Here they get one operator, so that value numbering knows as well. The order of floats has no complement:
``not (a < b)`` is true of NaN, and ``a >= b`` is not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten
_NOT = (_aten.logical_not.default, _aten.bitwise_not.default)
_EQUALITY = {
    _aten.eq.Tensor: _aten.ne.Tensor,
    _aten.eq.Scalar: _aten.ne.Scalar,
    _aten.ne.Tensor: _aten.eq.Tensor,
    _aten.ne.Scalar: _aten.eq.Scalar,
}
_ORDER = {
    _aten.lt.Tensor: _aten.ge.Tensor,
    _aten.lt.Scalar: _aten.ge.Scalar,
    _aten.le.Tensor: _aten.gt.Tensor,
    _aten.le.Scalar: _aten.gt.Scalar,
}
_INTEGERS = _EQUALITY | _ORDER | {after: before for before, after in _ORDER.items()}


def unite_complements(graph: Graph) -> None:
    """Rewrite the negated comparisons of ``graph`` whose complement it computes as well.

    Others stay what the user wrote, and keep their comparison.
    """
    written = {(node.target, node.args) for node in graph.nodes if node.target in _INTEGERS}
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in _NOT:
            continue
        compared = node.args[0]
        complement = _complement(compared) if isinstance(compared, Node) else None
        if complement is not None and (complement, compared.args) in written:
            node.target, node.args = complement, compared.args


def _complement(compared: Node) -> torch._ops.OpOverload | None:
    read = [value.meta.get("val") for value in compared.all_input_nodes]
    ordered = all(isinstance(value, torch.Tensor) and not value.is_floating_point() for value in read)
    ordered = ordered and not any(isinstance(value, float) for value in compared.args)  # which may be NaN
    known: dict[Any, torch._ops.OpOverload] = _INTEGERS if ordered else _EQUALITY
    return known.get(compared.target)
