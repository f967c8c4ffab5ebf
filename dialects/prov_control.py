"""Reads branches and loops as values, in torch-mlir's or IREE's context.

What an operation with bodies gives, and what goes round in a loop, is a node of kind ``control``: a value that is one
of others. Its inputs stand in the order that `covan_mlir.provenance.control` says; its operation is called as the
part's operator is, so that ``carried`` of a program is ``control.carried`` of a source. It has no name: locations do
not survive here, and what it is follows from its inputs.

Loops are turned by compilers: ``scf.if`` around an ``scf.while`` whose condition stands behind what it repeats is the
same loop as one whose condition goes round.
"""

from __future__ import annotations

from typing import Any, Protocol

from covan_mlir.provenance.program_graph import Constant, NodeResult, Unknown, Value

_BRANCHES = frozenset({"torch.prim.If", "scf.if"})
_OPERATIONS = _BRANCHES | {"torch.prim.Loop", "scf.for", "scf.while"}


class GraphReader(Protocol):
    """Who reads the operations around, and in bodies."""

    def value(self, operand: Any) -> Value:
        """What an operand is."""

    def bind(self, result: Any, value: Value) -> None:
        """What a result, or an argument of a block, is."""

    def body(self, block: Any) -> None:
        """Reads the operations of a block."""

    def join(self, name: str, inputs: tuple[Value, ...], op: Any) -> int:
        """Adds a node for an operation; -> its position."""

    def rejoin(self, node: int, inputs: tuple[Value, ...]) -> None:
        """Gives a node its inputs."""


class ControlReader:
    """Reads the branches and loops of a program."""

    def __init__(self, graph: GraphReader) -> None:
        self._graph = graph
        self._repeated: dict[Any, tuple[int, Value, Value]] = {}
        """Of a result of a loop that runs at least once: its node, the condition, and the value after an iteration."""

    def read(self, op: Any) -> bool:
        """Reads an operation, if it is one of control with results."""
        if op.name not in _OPERATIONS or len(op.results) == 0:
            return False
        if op.name in _BRANCHES:
            self._branch(op)
        elif op.name == "scf.while":
            self._while(op)
        else:
            self._loop(op)
        return True

    def _branch(self, op: Any) -> None:
        graph = self._graph
        condition = graph.value(op.operands[0])
        ends = []
        for region in op.regions:
            graph.body(region.blocks[0])
            ends.append(list(_terminator(region.blocks[0]).operands))
        for result, then, otherwise in zip(op.results, *ends, strict=True):
            if then in self._repeated:  # a loop whose first condition is asked here
                node, again, after = self._repeated[then]
                graph.rejoin(node, (condition, again, graph.value(otherwise), after))
            else:
                node = graph.join("branch", (condition, graph.value(then), graph.value(otherwise)), op)
            graph.bind(result, NodeResult(node))

    def _loop(self, op: Any) -> None:
        """``scf.for``, and torch's loop, which has a condition besides."""
        graph = self._graph
        block = op.regions[0].blocks[0]
        start = [graph.value(operand) for operand in list(op.operands)[len(op.operands) - len(op.results) :]]
        number, *arguments = block.arguments
        graph.bind(number, Constant())
        carried = self._carried(op, arguments, start)
        graph.body(block)
        ends = list(_terminator(block).operands)
        after = [graph.value(operand) for operand in ends[len(ends) - len(start) :]]
        decided = op.name == "torch.prim.Loop" and _name(ends[0]) != "torch.constant.bool"
        condition = (graph.value(op.operands[1]), graph.value(ends[0])) if decided else ()
        for result, node, *both in zip(op.results, carried, start, after, strict=True):
            graph.rejoin(node, tuple(both))
            joined = graph.join("while" if decided else "for", (*condition, *both), op)
            graph.bind(result, NodeResult(joined))

    def _while(self, op: Any) -> None:
        graph = self._graph
        before, behind = (region.blocks[0] for region in op.regions)
        start = [graph.value(operand) for operand in op.operands]
        arguments = list(before.arguments)
        carried = self._carried(op, arguments, start)
        graph.body(before)
        flag, *passed = _terminator(before).operands
        for argument, operand in zip(behind.arguments, passed, strict=True):
            graph.bind(argument, graph.value(operand))
        graph.body(behind)
        yielded = list(_terminator(behind).operands)
        after = [graph.value(operand) for operand in yielded]
        for node, *both in zip(carried, start, after, strict=True):
            graph.rejoin(node, tuple(both))
        ahead = arguments.index(flag) if flag in arguments else None
        # A loop that is decided behind what it repeats passes on what it computed before, and a value in place of
        # another: what is carried in one place is what comes next in another.
        behind_all = ahead is None and all(value in list(behind.arguments) for value in yielded)
        for number, (result, operand) in enumerate(zip(op.results, passed, strict=True)):
            if operand in arguments and not behind_all:
                index = arguments.index(operand)
                condition = (start[ahead], after[ahead]) if ahead is not None else (Unknown(), Unknown())
                node = graph.join("while", (*condition, start[index], after[index]), op)
            else:
                index = next((i for i, value in enumerate(yielded) if value == behind.arguments[number]), -1)
                first = start[index] if index >= 0 else Unknown()
                again, value = graph.value(flag), graph.value(operand)
                node = graph.join("while", (Constant(), again, first, value), op)
                self._repeated[result] = node, again, value
            graph.bind(result, NodeResult(node))

    def _carried(self, op: Any, arguments: list[Any], start: list[Value]) -> list[int]:
        nodes = [self._graph.join("carried", (value,), op) for value in start]
        for argument, node in zip(arguments, nodes, strict=True):
            self._graph.bind(argument, NodeResult(node))
        return nodes


def _terminator(block: Any) -> Any:
    return list(block)[-1].operation


def _name(value: Any) -> str:
    return str(getattr(value.owner, "name", ""))
