"""What nodes of a program give, by their bodies, on operands that were drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from covan_mlir.checking.bits import crosses, read_as
from covan_mlir.checking.cones import Key
from covan_mlir.checking.evaluate import evaluate
from covan_mlir.checking.inputs import everywhere, passed
from covan_mlir.checking.layouts import Order
from covan_mlir.checking.source_values import SourceValues
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.checking.tensors import Direct, Held, Tensor, poison, splat, wide
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Bodies, Iteration, Memory, Number, Opaque, Weight, result_types, shape_of
from covan_mlir.provenance.bodies import Operand as Given
from covan_mlir.provenance.program_graph import Argument, NodeResult


@dataclass
class NodeValues:
    """What nodes give on the operands that were drawn."""

    views: SourceViews
    bodies: Bodies
    known: Mapping[Key, tuple[Operand, Order | None]]
    source: SourceValues
    constants: Mapping[Key, tuple[Operand, Order | None]]
    inputs: Mapping[int, set[int]]
    _given: dict[int, list[Tensor]] = field(default_factory=dict)

    def results(self, index: int) -> list[Tensor]:
        """All results of a node."""
        if index not in self._given:
            body = self.bodies.nodes[index]
            assert body.body is not None
            known = self.bodies.bodies[body.body]
            pairs = zip(body.operands, known.inputs, strict=True)
            values = [(self._value(index, k, operand, kind), kind) for k, (operand, kind) in enumerate(pairs)]
            inputs = [
                passed(read_as(value, shape_of(kind)[0]) if "[" in kind else value, kind) for value, kind in values
            ]
            self._given[index] = evaluate(known, inputs)
        return self._given[index]

    def _value(self, index: int, number: int, operand: Given, kind: str) -> Tensor:
        if number not in self.inputs[index]:
            return everywhere(poison(wide(shape_of(kind)[0])), kind)
        match operand:
            case NodeResult(giver, which):
                if (giver, which) not in self.known:
                    return self.results(giver)[which]
                state, layout = self.known[giver, which]
                value = self.source.tensor(state)
                if "[" in kind and crosses(value.dtype, shape_of(kind)[0]):
                    value = _held(value, None, self._type(giver, which) or kind)
                return _held(read_as(value, kind), layout, kind)
            case Argument(position):
                return _held(read_as(self.source.tensor(("a", position)), kind), None, kind)
            case Weight(name) if (weight := self.views.weight(name)) is not None:
                return _held(read_as(self.source.tensor(weight), kind), None, kind)
            case Number(number_):
                held = float(number_) if isinstance(number_, str) else number_
                return everywhere(held, kind)
            case Memory():
                return everywhere(poison(wide(shape_of(kind)[0])), kind)
            case Iteration():
                return splat(self.views.iteration, (), np.dtype(np.int64))
            case Opaque(elements) if elements and (index, number) not in self.constants:
                numbers = np.array(elements).reshape(shape_of(kind)[1])
                return _held(Held(numbers), None, kind)
            case _:
                constant, layout = self.constants[index, number]
                return _held(self.source.tensor(constant), layout, kind)

    def _type(self, index: int, result: int) -> str:
        """That of a result of a node, as its body says it: numbers of the source may have another one there."""
        body = self.bodies.nodes[index].body
        return "" if body is None else result_types(self.bodies.bodies[body])[result]


def _held(value: Tensor, layout: Order | None, kind: str) -> Tensor:
    """A value in a type: of a constant, that its numbers are given in."""
    dtype = value.dtype if kind.startswith("!") else wide(shape_of(kind)[0])  # of a buffer view only sizes are read
    if layout is None and dtype == value.dtype:
        return value
    if layout is None:
        return Direct(value.shape, dtype, value.at)
    order = layout
    return Direct((order.size,), dtype, lambda flat: value.at(order.at(flat)))
