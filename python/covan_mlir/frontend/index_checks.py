"""Checks of indices: where a program reads or writes by an index, which indices it takes, and who looks.

Compiled code with an index outside of a tensor reads or writes there. Of each operation that takes indices:

    in range, whatever the arguments are    nothing to check (`intervals`)
    elements of an argument                 the caller's tensor is checked before the call (`index_regions`)
    all others                              clamped in the program, which also tells whether any was out of range

So no index leaves its tensor. Only indices of the user's own operations are errors, as they are in eager; those that a
decomposition computed are clamped. Inside of branches and loops indices are clamped.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch.fx import Graph, Node

from covan_mlir.artifacts.schema import IndexCheck, ResultKind
from covan_mlir.artifacts.signature import Dim, evaluate
from covan_mlir.frontend.actions import graphs, module_path, op_name
from covan_mlir.frontend.describe import Description
from covan_mlir.frontend.index_operands import IndexOperand, call_of, index_operands, numbers_as_tensors
from covan_mlir.frontend.index_regions import WHOLE, Region, regions
from covan_mlir.frontend.intervals import counted_from_end, intervals
from covan_mlir.frontend.origins import Origins, operator_name, user_line

aten = torch.ops.aten

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

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


def check_indices(exported: Graph, decomposed: Graph, description: Description) -> Description:
    """Add what checks the indices of a program to its graph and its description.

    Args:
        exported: the graph that ``decomposed`` was made of.
    """
    origins = Origins(exported)
    proved = _Proved(exported)
    weights = {node: tensor for node, (_, tensor) in description.weights.items()}
    arguments = _arguments(description)
    on_arguments: dict[Any, IndexCheck] = {}
    computed: dict[Any, tuple[IndexCheck, Node]] = {}
    for path, graph in list(graphs(decomposed)):
        numbers_as_tensors(graph)
        operands = [operand for node in graph.nodes for operand in index_operands(node)]
        if not operands:
            continue
        ranges = intervals(graph, weights)
        given = {} if path else regions(graph, arguments, ranges)
        clamps: dict[Any, Node] = {}
        for operand in operands:
            origin = origins.of(operand.user)
            checked = operator_name(origin) in _INDEXING and not (operator_name(origin) in _READING and operand.writes)
            before = counted_from_end(operand.index)
            index = before or operand.index
            countable = operand.from_end or before is not None
            from_end = countable and (operator_name(origin) in _FROM_END or not checked)
            low = -operand.size if from_end else 0
            if (index in ranges and ranges[index].within(low, operand.size - 1)) or (checked and proved(origin)):
                continue
            check = _check(origin, low, operand.size)
            key = (check.low, check.high)
            if checked and index in given:
                on_argument = _of_region(check, given[index], arguments, description)
                if on_argument is not None:
                    place = (on_argument.argument, on_argument.bounds, on_argument.ignored)
                    on_arguments.setdefault((*place, on_argument.low, on_argument.high), on_argument)
                    continue
            if (operand.index, *key) not in clamps:
                clamps[operand.index, *key] = _clamped(operand, operand.index, from_end and before is None)
            operand.replace(clamps[operand.index, *key])
            if not checked or path or (index, *key) in computed:
                continue
            if (index, *key) not in clamps:
                clamps[index, *key] = _clamped(operand, index, from_end)
            computed[index, *key] = (check, _differ(operand, index, clamps[index, *key]))
    return _described(description, [*on_arguments.values()], [*computed.values()])


class _Proved:
    """Whether the indices of an exported call are in range, whatever the arguments are: an exported graph says
    ``topk`` where decompositions leave sums of comparisons."""

    def __init__(self, exported: Graph) -> None:
        # What an operator writes to is another value afterwards, under the same name.
        self._ranges = {} if any(map(_writes_integers, exported.nodes)) else intervals(exported, {})

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
    return not isinstance(value, torch.Tensor) or value.dtype in _INTEGERS


def _arguments(description: Description) -> dict[Node, int]:
    """Placeholders of tensors of integers that a caller passes, and which inputs they are."""
    passed = [position for position, leaf in enumerate(description.signature.inputs) if leaf.kind != "constant"]
    return {
        node: position
        for node, position in zip(description.parameters, passed, strict=False)
        if isinstance(value := node.meta.get("val"), torch.Tensor) and value.dtype in _INTEGERS
    }


def _check(origin: Node, low: Any, size: Any) -> IndexCheck:
    """A check of what an operator of the model is given."""
    line = user_line(origin)
    return IndexCheck(
        op=op_name(origin),
        low=_dim(low),
        high=_dim(size),
        module=module_path(origin),
        file=line.file if line else "",
        line=line.line if line else 0,
    )


def _dim(size: Any) -> Dim:
    return size if isinstance(size, int) else str(size.node.expr)


def _of_region(
    check: IndexCheck, region: Region, arguments: Mapping[Node, int], description: Description
) -> IndexCheck | None:
    """The same check of elements of an argument; None if its limits do not follow from sizes of arguments."""
    low, high = (_less(limit, region.added) for limit in (check.low, check.high))
    sizes = dict.fromkeys(description.signature.symbols, 1)
    if any(isinstance(limit, str) and evaluate(limit, sizes) is None for limit in (low, high)):
        return None
    whole = all(bounds == WHOLE for bounds in region.bounds)
    return msgspec.structs.replace(
        check,
        low=low,
        high=high,
        argument=arguments[region.argument],
        bounds=() if whole else region.bounds,
        ignored=region.ignored,
    )


def _less(limit: Dim, number: int) -> Dim:
    if isinstance(limit, int):
        return limit - number
    return f"{limit} - {number}" if number > 0 else f"{limit} + {-number}" if number else limit


# --- in the program --------------------------------------------------------------------------------------------------


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
        return call_of(operand.reader, aten.clamp.default, index, low, last)


def _differ(operand: IndexOperand, index: Node, clamped: Node) -> Node:
    """Whether any index is out of range."""
    with operand.reader.graph.inserting_before(operand.reader):
        return call_of(operand.reader, aten.any.default, call_of(operand.reader, aten.ne.Tensor, index, clamped))


def _described(
    description: Description, on_arguments: list[IndexCheck], computed: list[tuple[IndexCheck, Node]]
) -> Description:
    """With the checks, and the results that tell of those in the program."""
    signature = replace(description.signature, checks=(*on_arguments, *(check for check, _ in computed)))
    told: list[tuple[ResultKind, int]] = [("faults", number) for number in range(len(computed))]
    signature = replace(signature, results=(*signature.results, *told))
    return replace(description, signature=signature, results=(*description.results, *(fault for _, fault in computed)))
