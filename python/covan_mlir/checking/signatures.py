"""What a comparison of a result with a value depends on, as a key: layers of one kind are compared once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from covan_mlir.checking.layouts import Order
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.checking.tensors import UnevaluatedError
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Bodies, Weight
from covan_mlir.provenance.control import JOINS
from covan_mlir.provenance.program_graph import Argument, NodeResult


class Signature:
    """The key of one comparison: bodies and parts by what they are, operands by where they occur first.

    Args:
        known: what results of nodes are: a value of the source, and the positions in it.
    """

    def __init__(
        self, source: SourceViews, program: Bodies, known: Mapping[tuple[int, int], tuple[Operand, Order | None]]
    ) -> None:
        self._views = source
        self._bodies = program
        self._known = known
        self._given: frozenset[Operand] = frozenset()
        self._numbers: dict[Operand, int] = {}
        self._nodes: dict[int, int] = {}
        self._key: list[Hashable] = []

    def of(self, node: int, result: int, operand: Operand, given: frozenset[Operand]) -> Hashable:
        """The key.

        Args:
            given: values that are drawn: nothing behind them matters.

        Raises:
            UnevaluatedError: something of an unknown kind is read.
        """
        self._given = given
        self._source(operand, given)
        self._program(node)
        return (result, self._numbers[self._twin(operand)], *self._key)

    def _twin(self, operand: Operand) -> Operand:
        kind, name = operand
        return (kind, self._views.parts[int(name)].twin) if kind == "p" else operand

    def _source(self, operand: Operand, given: frozenset[Operand]) -> None:
        """Numbers a value, those that it is computed from before it."""
        stack = [self._twin(operand)]
        while stack:
            current = stack[-1]
            if current in self._numbers:
                stack.pop()
                continue
            if current in given or current[0] != "p" or self._views.parts[int(current[1])].op in JOINS:
                self._number(current, ("outside", self._views.type_of(current), self._views.held(current)))
                continue
            part = self._views.parts[int(current[1])]
            read = [self._twin(o) for o in arguments.operands(part.args)]
            waiting = [o for o in read if o not in self._numbers]
            if waiting:
                stack += waiting
                continue
            key = (part.op, arguments.signature(part.args), part.types, tuple(self._numbers[o] for o in read))
            self._number(current, key)

    def _number(self, operand: Operand, key: Hashable) -> int:
        self._numbers[operand] = len(self._numbers)
        self._key.append(key)
        return self._numbers[operand]

    def _leaf(self, operand: Operand) -> int:
        operand = self._twin(operand)
        if operand in self._numbers:
            return self._numbers[operand]
        return self._number(operand, ("outside", self._views.type_of(operand), self._views.held(operand)))

    def _program(self, node: int) -> None:
        if node in self._nodes:
            return
        self._nodes[node] = len(self._nodes)
        body = self._bodies.nodes[node]
        read: list[Hashable] = []
        for operand in body.operands:
            read.append(self._read(operand))
        self._key.append((self._nodes[node], body.body, tuple(read)))

    def _read(self, operand: Any) -> Hashable:
        match operand:
            case NodeResult(giver, result) if (giver, result) in self._known:
                value, layout = self._known[giver, result]
                self._source(value, self._given)
                return ("known", self._numbers[self._twin(value)], None if layout is None else layout.key)
            case NodeResult(giver, result):
                self._program(giver)
                return ("node", self._nodes[giver], result)
            case Argument(position):
                return ("argument", self._leaf(("a", position)))
            case Weight(name) if (weight := self._views.weight(name)) is not None:
                self._source(weight, self._given)
                return ("weight", self._numbers[self._twin(weight)])
            case Weight():
                raise UnevaluatedError("an unknown weight")
        return repr(operand)
