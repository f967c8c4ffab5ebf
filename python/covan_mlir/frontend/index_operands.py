"""Indices among the operands of the operations that decompositions leave: of which size they count places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import _extract_tensor_metadata

aten = torch.ops.aten

_ROWS = {aten.embedding.default: 1, aten._embedding_bag_forward_only.default: 1, aten._embedding_bag.default: 1}
"""Operations on the rows of their first operand, and where the index stands."""
_ALONG = {
    aten.index_select,
    aten.gather,
    aten.scatter,
    aten.scatter_add,
    aten.scatter_reduce,
    aten.index_add,
    aten.index_copy,
    aten.index_fill,
    aten.index_reduce,
}
"""Operations on an axis of their first operand: (operand, axis, index, ...)."""
_SELECTS = {aten.select.int: 1, aten.select_scatter.default: 2}
"""Operations on one place of an axis of their first operand, and where the axis stands: (..., axis, number)."""
_NUMBER = aten._local_scalar_dense.default
_FROM_END = {aten.index, aten._unsafe_index, aten.select, aten.select_scatter}
_ENDLESS = 1 << 62
_ANYWHERE = {aten.index, aten.index_put, aten._unsafe_index, aten._unsafe_index_put}
"""Operations with an index for each axis, or none: (operand, [index, ...], ...)."""


@dataclass(frozen=True)
class IndexOperand:
    """One index.

    Attributes:
        reader: the operation that takes it.
        index: its operand.
        position: among the reader's arguments.
        item: position in that argument, if it is a list.
        size: places that there are.
        sized: the tensor and axis whose size that is; None if it is a number in the graph.
        user: the operation that reads or writes by it: the reader, or what takes the number that the reader gives.
    """

    reader: Node
    index: Node
    position: int
    item: int | None
    size: int | torch.SymInt
    sized: tuple[Node, int] | None
    user: Node

    @property
    def from_end(self) -> bool:
        """Whether compiled code counts negative indices from the end."""
        return getattr(self.user.target, "overloadpacket", None) in _FROM_END

    @property
    def writes(self) -> bool:
        """Whether elements are written by it, rather than read."""
        return getattr(self.user.target, "overloadpacket", None) in (aten.index_put, aten._unsafe_index_put)

    def replace(self, index: Node) -> None:
        """Have the reader take another index."""
        new: Any = index
        if self.item is not None:
            indices = self.reader.args[self.position]
            assert isinstance(indices, list | tuple)
            new = list(indices)
            new[self.item] = index
        self.reader.update_arg(self.position, new)


def numbers_as_tensors(graph: Graph) -> None:
    """Have operations that take a number as an index read it from a tensor, where nothing is known of it."""
    for node in graph.nodes:
        number = _number(node)
        if number is None or number.target is _NUMBER:
            continue
        value, size = number.meta["val"], _selected(node)[2]
        if statically_known_true(-size <= value) and statically_known_true(value < size):
            continue
        with graph.inserting_before(node):
            tensor = call_of(node, aten.scalar_tensor.default, number, dtype=torch.int64)
            again = call_of(node, _NUMBER, tensor, value=value)
        node.replace_input_with(number, again)


def _number(node: Node) -> Node | None:
    """The number by which an operation selects, if it is computed."""
    if node.op != "call_function" or node.target not in _SELECTS:
        return None
    number = node.args[_SELECTS[node.target] + 1]
    return number if isinstance(number, Node) else None


def _selected(node: Node) -> tuple[Node, int, Any]:
    """The tensor and axis of which an operation selects a place, and how many there are."""
    tensor, axis = node.args[0], node.args[_SELECTS[node.target]]  # type: ignore[index]  # one of the table's
    assert isinstance(tensor, Node)
    assert isinstance(axis, int)
    return tensor, axis, tensor.meta["val"].shape[axis]


def call_of(of: Node, target: Any, *args: Any, value: Any = None, **named: Any) -> Node:
    """A call that belongs to the action of another, where nodes are being inserted.

    Args:
        value: an example of what it gives; None: what it gives for the examples of its operands.
    """
    call = of.graph.call_function(target, args, named)
    call.meta = {key: of.meta[key] for key in ("from_node", "nn_module_stack", "stack_trace") if key in of.meta}
    examples = [node.meta.get("val") for node in (of, *of.all_input_nodes)]
    with next((example.fake_mode for example in examples if isinstance(example, FakeTensor)), nullcontext()):
        given = map_arg((args, named), lambda node: node.meta["val"])
        call.meta["val"] = target(*given[0], **given[1]) if value is None else value
    if of.target is _NUMBER or target is aten.scalar_tensor.default:
        call.meta["tensor_meta"] = _extract_tensor_metadata(call.meta["val"])  # the importer wants it of numbers
    return call


def index_operands(node: Node) -> Iterator[IndexOperand]:
    """The indices that a call reads; none of calls that read no element by an index."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return
    packet = node.target.overloadpacket
    if node.target in _ROWS:
        position = _ROWS[node.target]
        yield from _operand(node, node.args[position], position, None, (node.args[0], 0))
    elif packet in _ALONG:
        yield from _operand(node, node.args[2], 2, None, (node.args[0], node.args[1]))
    elif packet in _ANYWHERE:
        indices: Any = node.args[1]
        if any(_is_mask(index) for index in indices):
            return
        for item, index in enumerate(indices):
            yield from _operand(node, index, 1, item, (node.args[0], item))
    elif node.target is _NUMBER and isinstance(node.args[0], Node):
        for user in node.users:
            if _number(user) is node:
                tensor, axis, size = _selected(user)
                yield IndexOperand(node, node.args[0], 0, None, size, (tensor, axis), user)
    elif node.target is aten.bincount.default and isinstance(node.args[0], Node):
        yield IndexOperand(node, node.args[0], 0, None, _ENDLESS, None, node)
    elif node.target is aten.one_hot.default and isinstance(node.args[0], Node) and len(node.args) > 1:
        classes: Any = node.args[1]
        if type(classes) is int and classes > 0:
            yield IndexOperand(node, node.args[0], 0, None, classes, None, node)


def _is_mask(index: Any) -> bool:
    return isinstance(index, Node) and index.meta["val"].dtype in (torch.bool, torch.uint8)


def _operand(node: Node, index: Any, position: int, item: int | None, sized: tuple[Any, Any]) -> Iterator[IndexOperand]:
    tensor, axis = sized
    if not isinstance(index, Node) or not isinstance(tensor, Node) or type(axis) is not int:
        return
    shape = tensor.meta["val"].shape
    if shape:
        yield IndexOperand(node, index, position, item, shape[axis], (tensor, axis), node)
    else:
        yield IndexOperand(node, index, position, item, 1, None, node)
