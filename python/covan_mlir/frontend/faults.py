"""Booleans that tell of faults, carried out of the functions that operators take: branches, and bodies of loops.

    cond         one result more: false in the other branch
    while_loop   one carried value more: false at first, then what any iteration has told so far
    scan, map    one result more of each iteration, of which any is asked for behind the loop

The values inside belong to the action that is checked, those outside to the operator.
"""

from __future__ import annotations

import logging
import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend.actions import bodies, graphs, op_name
from covan_mlir.frontend.index_operands import call_of

log = logging.getLogger(__name__)

aten = torch.ops.aten
_COND, _WHILE, _SCAN, _MAP = (
    getattr(torch.ops.higher_order, name) for name in ("cond", "while_loop", "scan", "map_impl")
)


class Faults:
    """The way out of the functions of a program."""

    def __init__(self, program: Graph) -> None:
        self._program = program
        self._takers: dict[Graph, Node] = {
            body: node
            for _, graph in graphs(program)
            for node in graph.nodes
            if node.op == "call_function"
            for body in bodies(node)
        }

    def outside(self, fault: Node) -> Node | None:
        """A boolean of some graph, as one of the program; None behind other operators, which is logged."""
        if fault.graph is self._program:
            return fault
        taker = self._takers[fault.graph]
        if taker.target not in _RETURNING:
            log.warning("indices and divisors in functions of %s raise no errors", op_name(taker))
            return None
        _RETURNING[taker.target](taker, fault)
        return self.outside(_result(taker, fault))


def _of_branch(node: Node, fault: Node) -> None:
    for body in bodies(node):
        output = body.output_node()
        with body.inserting_before(output):
            told = fault if body is fault.graph else _false(output, fault)
        _return(output, told)


def _of_while(node: Node, fault: Node) -> None:
    body, carried = fault.graph, pytree.tree_leaves(node.args[2])
    with body.inserting_after(body.find_nodes(op="placeholder")[len(carried) - 1]):
        before = body.placeholder(f"{fault.name}_before")
    before.meta["val"] = fault.meta["val"]
    output = body.output_node()
    with body.inserting_before(output):
        after = call_of(fault, aten.logical_or.default, before, fault)
    _return(output, after)


def _of_iterations(node: Node, fault: Node) -> None:
    _return(fault.graph.output_node(), fault)


_RETURNING = {_COND: _of_branch, _WHILE: _of_while, _SCAN: _of_iterations, _MAP: _of_iterations}
"""How a function that an operator takes gives a boolean along."""


def _result(node: Node, fault: Node) -> Node:
    """A boolean that the functions of an operator give along, next to the operator."""
    if node.target is _WHILE:
        decided, function, carried, additional = node.args
        with node.graph.inserting_before(node):
            first = _false(node, fault)
        node.args = (decided, function, (*pytree.tree_leaves(carried), first), additional)
    if node.target in (_COND, _WHILE):
        return _taken_apart(node, fault.meta["val"])
    (whole, *_) = pytree.tree_leaves(node.args[2 if node.target is _SCAN else 1])
    example = whole.meta["val"]
    told = _taken_apart(node, example.new_empty((example.shape[0],), dtype=torch.bool))
    with node.graph.inserting_after(told):
        return call_of(node, aten.any.default, told, value=example.new_empty((), dtype=torch.bool))


def _false(of: Node, fault: Node) -> Node:
    """What a boolean is where nothing is checked."""
    return call_of(of, aten.full.default, [], False, dtype=torch.bool, value=fault.meta["val"])


def _return(output: Node, told: Node) -> None:
    """Have a function return one value more."""
    output.args = ((*pytree.tree_leaves(output.args[0]), told),)


def _taken_apart(node: Node, example: Any) -> Node:
    """One result more of an operator, behind it."""
    index = len(node.meta["val"])
    node.meta["val"] = (*node.meta["val"], example)
    with node.graph.inserting_after(node):
        return call_of(node, operator.getitem, node, index, value=example)
