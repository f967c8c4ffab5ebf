"""Names the nodes of control in a program's graph: which value of the source's branches and loops each is.

Locations tell nothing of them. A loop of the program is the source's if it carries, position by position, what that one
does: what is carried is assumed to be, and what is computed of it is named. Whether that holds is checked later.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from covan_mlir.provenance.arguments import Operand, operands
from covan_mlir.provenance.control import JOINS, PREFIX, positions
from covan_mlir.provenance.model import Part
from covan_mlir.provenance.program_graph import Argument, Constant, Definition, NodeResult, ProgramGraph, Value
from covan_mlir.provenance.relation import KeptOperands, Source


def joins(parts: Sequence[Part]) -> list[Part]:
    """The parts that are values of branches and loops."""
    return [part for part in parts if part.op in JOINS]


def named(source: Source, graph: ProgramGraph, identity: KeptOperands) -> ProgramGraph:
    """The graph with names at its nodes of control, as far as there are any."""
    known = joins(list(source.parts.values()))
    if not known:
        return graph
    search = _Search(source, graph, identity)
    while search.round(known):
        pass
    return search.graph


class _Search:
    def __init__(self, source: Source, graph: ProgramGraph, identity: KeptOperands) -> None:
        self.source = source
        self.graph = graph
        self.identity = identity
        self._taken: set[int] = set()

    def round(self, known: Sequence[Part]) -> bool:
        """Names what can be named now; whether there was any."""
        nodes = list(self.graph.nodes)
        for index, node in enumerate(nodes):
            if node.kind != "control" or node.evidence:
                continue
            fitting = [part for part in known if self._fits(part, node.op, node.inputs)]
            part = next((part for part in fitting if part.id not in self._taken), None)
            if part is not None:
                self._taken.add(part.id)
                link = Definition("compute", (part.id,))
                nodes[index] = replace(node, outputs=((link,),), evidence=(part.id,))
                self.graph = replace(self.graph, nodes=tuple(nodes))
                return True
        return False

    def _fits(self, part: Part, op: str, inputs: Sequence[Value]) -> bool:
        if part.op != f"{PREFIX}{op}":
            return False
        asked = positions(part)
        return len(asked) == len(inputs) and all(map(self._stands, inputs, asked))

    def _stands(self, value: Value, operand: Operand | None) -> bool:
        """Whether a value of the program may be one of the source."""
        match value, operand:
            case Constant(), None | ("w", _):
                return True
            case Constant(), ("p", name):
                return self.source.constant[int(name)]
            case Argument(position), ("a", name):
                return position == name
            case Argument(), ("w", _):
                return True
            case Argument(), ("p", name):
                return self._behind(("p", int(name))) == ("a", value.position)
            case NodeResult(node, _), ("p", name):
                return self._may_be(value, int(name))
            case NodeResult(node, _), None:
                return not self.graph.nodes[node].inputs
        return False

    def _may_be(self, value: NodeResult, part: int) -> bool:
        node = self.graph.nodes[value.node]
        behind = self._behind(("p", part))
        if node.kind == "control" and not node.evidence:
            kind, name = behind
            return kind == "p" and self.source.parts[int(name)].op == f"{PREFIX}{node.op}"
        if self.source.constant[part] and not node.inputs:
            return True
        states = {self._behind(("p", state)) for state in node.states(value.result) if state in self.source.parts}
        if behind in states:
            return True
        through = [given for given in node.inputs if node.hands_on(value.result)]
        return any(isinstance(given, NodeResult | Argument) and self._stands(given, ("p", part)) for given in through)

    def _behind(self, operand: Operand) -> Operand:
        """What a value is another shape of."""
        kind, name = operand
        while kind == "p":
            part = self.source.parts[int(name)]
            kept = 0 if part.view and part.op != "operator.getitem" else self.identity.kept(part.id)
            read = operands(part.args)
            if kept is None or kept >= len(read):
                return "p", self.source.twin(part.id)
            kind, name = read[kept]
        return kind, name
