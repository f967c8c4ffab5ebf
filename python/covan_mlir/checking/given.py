"""What a node of a compiled program is given, as states of its source."""

from __future__ import annotations

from dataclasses import dataclass, field

from covan_mlir.checking.reading import Reading
from covan_mlir.checking.source_system import SourceSystem
from covan_mlir.provenance.program_graph import Argument, Global, NodeResult, Unknown, Value


@dataclass
class Given:
    """The values that a node is given: which source states they may stand for.

    Attributes:
        states: by twin, the values that may be it.
        arguments: positions of those that are arguments of the program.
        open: whether some are not known.
    """

    reading: Reading
    source: SourceSystem
    states: dict[int, list[NodeResult]] = field(default_factory=dict)
    arguments: set[int] = field(default_factory=set)
    open: bool = False
    _seen: set[NodeResult] = field(default_factory=set)

    def givers(self, twin: int) -> list[NodeResult]:
        """The values that may be this state."""
        return self.states.get(twin, [])

    def add(self, value: Value) -> None:
        """Notes a value, and those that it may be pieces of."""
        stack = [value]
        while stack:
            match stack.pop():
                case NodeResult() as given:
                    self._add_node(given, stack)
                case Argument(position):
                    self.arguments.add(position)
                case Global(name):
                    if name in self.reading.graph.globals:
                        stack.append(self.reading.graph.globals[name])
                case Unknown():
                    self.open = True

    def _add_node(self, value: NodeResult, stack: list[Value]) -> None:
        if value in self._seen:
            return
        self._seen.add(value)
        node = self.reading.nodes[value.node]
        meant = self.reading.states(value)
        if value.node in self.reading.computed:  # as where a piece begins, of the number that was read for that
            stack += node.inputs
        if node.hands_on(value.result):
            meant |= frozenset() if node.hands_on_pieces else self.reading.evidence(value.node)
            stack += node.inputs
        for part in sorted(meant):
            self.states.setdefault(self.source.twin(part), []).append(value)
