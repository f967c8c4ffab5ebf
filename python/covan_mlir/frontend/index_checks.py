"""Checks of indices: where a program reads or writes by an index, which indices it takes, and who looks.

Compiled code with an index outside of a tensor reads or writes there. Of each operation that takes indices:

    in range, whatever the arguments are    nothing to check (`intervals`)
    elements of an argument                 the caller's tensor is checked before the call (`index_regions`)
    all others                              clamped in the program, which also tells whether any was out of range

So no index leaves its tensor. Only indices of the user's own operations are errors, as they are in eager; those that a
decomposition computed are clamped. Branches and loops give what their functions tell along (`faults`).
"""

from __future__ import annotations

import operator
from functools import cached_property
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from covan_mlir.frontend.actions import graphs
from covan_mlir.frontend.checks import INTEGERS, Checks, check_at
from covan_mlir.frontend.index_operands import IndexOperand, call_of, index_operands, numbers_as_tensors
from covan_mlir.frontend.intervals import Interval, counted_from_end, intervals
from covan_mlir.frontend.origins import operator_name

aten = torch.ops.aten


_FROM_END = {"index", "index_put", "take", "put", "index_fill", "select"}
"""Operators of torch that count negative indices from the end."""
_INDEXING = _FROM_END | {
    *("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "index_select", "gather"),
    *("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce", "one_hot"),
    *("nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward", "cross_entropy_loss"),
    *("multi_margin_loss", "multilabel_margin_loss", "max_unpool2d", "max_unpool3d", "bincount"),
}
"""Operators of torch that refuse indices out of range."""
_READING = {"embedding_bag", "_embedding_bag"}
"""Of these, those whose indices are of what they read; by what they write with, their decompositions count."""


def check_indices(exported: Graph, decomposed: Graph, checks: Checks) -> None:
    """Check the indices of a program.

    Args:
        exported: the graph that ``decomposed`` was made of.
    """
    proved = _Proved(exported)
    for _, graph in list(graphs(decomposed)):
        numbers_as_tensors(graph)
        operands = [operand for node in graph.nodes for operand in index_operands(node)]
        if not operands:
            continue
        ranges = intervals(graph, checks.weights)
        given = checks.regions(graph, ranges) if graph is decomposed else {}
        clamps: dict[Any, Node] = {}
        for operand in operands:
            origin = checks.origin(operand.user)
            name = operator_name(origin)
            checked = name in _INDEXING and not (name in _READING and operand.writes)
            before = counted_from_end(operand.index)
            # Who counts from the end: the model itself, or a decomposition of what it calls.
            own = before is not None and checks.origin(operand.index) is not origin
            if own and not _adds(operand.index, operand.size):
                before, own = None, False
            index = before or operand.index
            countable = operand.from_end or before is not None
            from_end = countable and (own or name in _FROM_END or not checked)
            low = -operand.size if from_end else 0
            if (index in ranges and ranges[index].within(low, operand.size - 1)) or (checked and proved(origin)):
                continue
            check = check_at(origin, low, operand.size)
            if checked and index in given and checks.of_argument(check, given[index]):
                continue
            limits = (check.low, check.high)
            # Each call has its own, which compilers merge: no call reads what is another's.
            if (origin, operand.index, *limits) not in clamps:
                clamps[origin, operand.index, *limits] = _clamped(operand, operand.index, from_end and before is None)
            operand.replace(clamps[origin, operand.index, *limits])
            if not checked or checks.is_told((index, *limits)):
                continue
            if (origin, index, *limits) not in clamps:
                clamps[origin, index, *limits] = _clamped(operand, index, from_end)
            checks.tell((index, *limits), check, _differ(operand, index, clamps[origin, index, *limits]))


def _adds(counted: Node, size: int | torch.SymInt) -> bool:
    """Whether ``where(index < 0, index + n, index)`` counts from the end of so many places."""
    shifted = counted.args[1]
    assert isinstance(shifted, Node)
    added = shifted.args[1]
    number = added.meta.get("val") if isinstance(added, Node) else added
    return not shifted.kwargs and isinstance(number, int | torch.SymInt) and statically_known_true(number == size)


class _Proved:
    """Whether the indices of an exported call are in range, whatever the arguments are: an exported graph says
    ``topk`` where decompositions leave sums of comparisons."""

    def __init__(self, exported: Graph) -> None:
        self._exported = exported

    @cached_property
    def _ranges(self) -> dict[Node, Interval]:
        # What an operator writes to is another value afterwards, under the same name.
        return {} if any(map(_writes_integers, self._exported.nodes)) else intervals(self._exported, {})

    def __call__(self, call: Node) -> bool:
        operands = list(index_operands(call))
        return bool(operands) and all(
            operand.index in self._ranges
            and self._ranges[operand.index].within(-operand.size if operand.from_end else 0, operand.size - 1)
            for operand in operands
        )


def _writes_integers(node: Node) -> bool:
    target, value = node.target, node.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload) or target is aten.detach_.default or not target._schema.is_mutable:
        return False
    return not isinstance(value, torch.Tensor) or value.dtype in INTEGERS


def _clamped(operand: IndexOperand, index: Node, from_end: bool) -> Node:
    """The nearest index in range, in front of the reader."""
    with operand.reader.graph.inserting_before(operand.reader):
        size: Any = operand.size
        low: Any
        last: Any
        if not isinstance(size, int):
            assert operand.sized is not None
            size = call_of(operand.reader, aten.sym_size.int, *operand.sized)
        if isinstance(size, int):
            low, last = -size if from_end else 0, size - 1
        else:
            low = call_of(operand.reader, operator.neg, size) if from_end else 0
            last = call_of(operand.reader, operator.sub, size, 1)
        if isinstance(low, int) and low == last:  # there is one place, whatever the index is
            return call_of(operand.reader, aten.full_like.default, index, low)
        return call_of(operand.reader, aten.clamp.default, index, low, last)


def _differ(operand: IndexOperand, index: Node, clamped: Node) -> Node:
    """Whether any index is out of range."""
    with operand.reader.graph.inserting_before(operand.reader):
        return call_of(operand.reader, aten.any.default, call_of(operand.reader, aten.ne.Tensor, index, clamped))
