"""The program as a graph of values, as the compiler's observers see it at one moment.

Early in the compilation a node is one operation (`covan_mlir.dialects.prov_graph`), later a dispatch or a transfer
(`covan_mlir.lowering.dispatch_graph`). Values are named by where they come from. As JSON, which the graph travels in
from the worker to the caller, each type is an array, a value with its kind in front: ``["node", 7, 0]``.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Argument(Struct, frozen=True, array_like=True, tag="arg"):
    """An argument of the function, by its position."""

    position: int


class Constant(Struct, frozen=True, array_like=True, tag="const"):
    """A constant; ``ids`` are the parts that its location names."""

    ids: tuple[int, ...] = ()


class Global(Struct, frozen=True, array_like=True, tag="global"):
    """What a global holds."""

    name: str


class NodeResult(Struct, frozen=True, array_like=True, tag="node"):
    """A result of the node at a position of the graph."""

    node: int
    result: int = 0


class Unknown(Struct, frozen=True, array_like=True, tag="unknown"):
    """Anything else."""


Value = Argument | Constant | Global | NodeResult | Unknown
NodeKind = Literal["dispatch", "transfer", "control"]
SiteKind = Literal["dispatch", "transfer"]
NodePhase = Literal["call", "init"]
How = Literal["compute", "move", "view", "input"]


class Definition(Struct, frozen=True, array_like=True):
    """One link of the use-def chain behind a node's result.

    Attributes:
        how: ``compute``: the operation makes the elements; ``move``: it moves them; ``view``: it only changes their
            shape; ``input``: they are what the node is given, or a piece of it.
        ids: parts that the operation's location names.
    """

    how: How
    ids: tuple[int, ...] = ()


Definitions = tuple[Definition, ...]
"""Those of one result, outermost first, up to one that computes: they differ in shape only."""


class ProgramNode(Struct, frozen=True, array_like=True):
    """One operation, dispatch or transfer.

    Attributes:
        kind: ``transfer`` of one that moves a piece or a copy of what it is given, or lays it out anew; ``control`` of
            a value that goes round in a loop, or comes out of a branch or loop: it is one of its inputs. What goes
            round reads what is computed later.
        phase: ``init`` (runs once, when the program is loaded) or ``call``.
        inputs: values that it reads.
        outputs: what each result is.
        evidence: ids in the locations of what computes.
        op: name of the operation; empty of a node that stands for many; of ``control`` what
            `covan_mlir.provenance.control` calls it.
        data: those of ``evidence`` that only name work inside of it behind which no argument lies. Not kept: it tells
            which names to believe (`covan_mlir.provenance.data_nodes.renamed`).
    """

    kind: NodeKind
    phase: NodePhase
    inputs: tuple[Value, ...]
    outputs: tuple[Definitions, ...]
    evidence: tuple[int, ...]
    op: str = ""
    data: tuple[int, ...] = ()

    def states(self, result: int) -> set[int]:
        """The source states that a result may stand for."""
        return {part for definition in self.outputs[result] for part in definition.ids}

    @property
    def all_states(self) -> set[int]:
        """The source states that any of the results may stand for."""
        return {part for definitions in self.outputs for definition in definitions for part in definition.ids}

    def hands_on(self, result: int) -> bool:
        """Whether a result is what the node is given, or a piece of it."""
        return any(definition.how == "input" for definition in self.outputs[result])

    @property
    def hands_on_pieces(self) -> bool:
        """Whether it only moves what it is given, or a piece of it, or gives it another layout: its location is that of
        whoever asked for that."""
        return self.kind == "transfer" and all(
            definition.how == "input" for definitions in self.outputs for definition in definitions
        )


def joined(op: str, phase: NodePhase, inputs: tuple[Value, ...]) -> ProgramNode:
    """A node of control, without a name."""
    return ProgramNode("control", phase, inputs, ((Definition("compute"),),), (), op)


class ProgramGraph(Struct, frozen=True, array_like=True):
    """A program, or a function of it.

    Attributes:
        nodes: in program order, initialisers first.
        results: values that the function returns.
        globals: by name, what an initialiser stores to a global; none of one that nothing is stored to.
    """

    nodes: tuple[ProgramNode, ...] = ()
    results: tuple[Value, ...] = ()
    globals: dict[str, Value] = {}  # msgspec copies it
