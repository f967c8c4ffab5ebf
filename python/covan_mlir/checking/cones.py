"""What results of nodes are computed from, as far as it is not known."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from covan_mlir.checking.slices import inputs_of
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.checking.tensors import UnevaluatedError
from covan_mlir.provenance.bodies import Bodies, Iteration, Memory, Number, Opaque, Weight
from covan_mlir.provenance.program_graph import Argument, NodeResult

Key = tuple[int, int]
"""A node and the number of its result, or of its input."""


@dataclass
class Cone:
    """What a node's result is computed from, as far as it is not known.

    Attributes:
        states: results that are known.
        given: arguments of the program that are read.
        constants: inputs that are constants of which nothing is known, with their types.
        inputs: of each node, those that are read.
    """

    states: set[Key] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    constants: dict[Key, str] = field(default_factory=dict)
    inputs: dict[int, set[int]] = field(default_factory=dict)


class Cones:
    """Those of one program.

    Args:
        states: results that are known.
    """

    def __init__(self, source: SourceViews, program: Bodies, states: Container[Key]) -> None:
        self._views = source
        self._bodies = program
        self._states = states
        self._reads: dict[Key, frozenset[int]] = {}

    def of(self, node: int, result: int) -> Cone:
        """What a result is computed from.

        Raises:
            UnevaluatedError: something of an unknown kind is read.
        """
        cone = Cone()
        stack = [(node, result)]
        seen: set[Key] = set()
        while stack:
            current, number = stack.pop()
            if (current, number) in seen:
                continue
            seen.add((current, number))
            body = self._bodies.nodes[current]
            if body.body is None:
                raise UnevaluatedError(body.missing or "a share of another kernel's work")
            reads = self._inputs(body.body, number)
            for k in reads - cone.inputs.get(current, set()):
                match body.operands[k]:
                    case NodeResult(giver, given):
                        if (giver, given) in self._states:
                            cone.states.add((giver, given))
                        else:
                            stack.append((giver, given))
                    case Opaque():
                        cone.constants[current, k] = self._bodies.bodies[body.body].inputs[k]
                    case Weight(name) if self._views.weight(name) is None:
                        cone.constants[current, k] = self._bodies.bodies[body.body].inputs[k]
                    case Argument(position):
                        cone.given.add(position)
                    case Weight() | Number() | Memory() | Iteration():
                        pass
                    case _:
                        raise UnevaluatedError(
                            "it reads a value that is not known, as a number that goes round in a loop"
                        )
            cone.inputs.setdefault(current, set()).update(reads)
        return cone

    def _inputs(self, body: int, result: int) -> frozenset[int]:
        key = body, result
        if key not in self._reads:
            self._reads[key] = inputs_of(self._bodies.bodies[body], result)
        return self._reads[key]
