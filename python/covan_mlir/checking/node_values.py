"""What nodes of a program give, by their bodies, on operands that were drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from covan_mlir.checking.cones import Key
from covan_mlir.checking.evaluate import evaluate
from covan_mlir.checking.inputs import everywhere, passed
from covan_mlir.checking.layouts import Order
from covan_mlir.checking.source_values import SourceValues
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.checking.tensors import Direct, Tensor, poison, splat, wide
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Bodies, Iteration, Memory, Number, Weight, shape_of
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
            inputs = [passed(self._value(index, k, operand, kind), kind) for k, (operand, kind) in enumerate(pairs)]
            self._given[index] = evaluate(known, inputs)
        return self._given[index]

    def _value(self, index: int, number: int, operand: Given, kind: str) -> Tensor:
        if number not in self.inputs[index]:
            return everywhere(poison(wide(shape_of(kind)[0])), kind)
        match operand:
            case NodeResult(giver, which):
                if (giver, which) in self.known:
                    return _held(self.source, *self.known[giver, which], kind)
                return self.results(giver)[which]
            case Argument(position):
                return _held(self.source, ("a", position), None, kind)
            case Weight(name) if (weight := self.views.weight(name)) is not None:
                return _held(self.source, weight, None, kind)
            case Number(number_):
                held = float(number_) if isinstance(number_, str) else number_
                return everywhere(held, kind)
            case Memory():
                return everywhere(poison(wide(shape_of(kind)[0])), kind)
            case Iteration():
                return splat(self.views.iteration, (), np.dtype(np.int64))
            case _:
                return _held(self.source, *self.constants[index, number], kind)


def _held(source: SourceValues, operand: Operand, layout: Order | None, kind: str) -> Tensor:
    value = source.tensor(operand)
    dtype = value.dtype if kind.startswith("!") else wide(shape_of(kind)[0])  # of a buffer view only sizes are read
    if layout is None and dtype == value.dtype:
        return value
    if layout is None:
        return Direct(value.shape, dtype, value.at)
    order = layout
    return Direct((order.size,), dtype, lambda flat: value.at(order.at(flat)))
