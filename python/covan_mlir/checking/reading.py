"""What the checker takes from the graph of a phase: which source states each value may stand for, and which nodes are
data.

Names come from locations. Compilers keep one location of two equal operations, and give data (indices, masks, memory
that is filled) the location of whoever needed it first. So data stands for nothing that depends on an argument, and a
value may be guessed to stand for more than its location names (`covan_mlir.checking.merged_values`): a guess is no more
believed than a location is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from covan_mlir.checking.source_system import SourceSystem
from covan_mlir.provenance.program_graph import Argument, Global, NodeResult, ProgramGraph, ProgramNode, Unknown, Value

_READ = frozenset({"tensor.extract", "flow.tensor.load"})
"""Operations that give an element of a tensor as a number."""


class Reading:
    """A graph, read as values that stand for states of a source.

    Args:
        guesses: parts that values stand for besides those that they are named after.

    Attributes:
        data: positions of the nodes that no argument lies behind.
        numbers: of those that give a number read from a tensor, or computed of such.
        computed: of the latter.
    """

    def __init__(
        self, source: SourceSystem, graph: ProgramGraph, guesses: Mapping[NodeResult, frozenset[int]] | None = None
    ) -> None:
        self.source = source
        self.graph = graph
        self.guesses = guesses or {}
        self.data = frozenset(self._data())
        self.numbers = frozenset(self._numbers())
        self.computed = frozenset(node for node in self.numbers if graph.nodes[node].op not in _READ)
        self._states: dict[NodeResult, frozenset[int]] = {}
        self._guessed: dict[int, frozenset[int]] = {}
        for value, parts in self.guesses.items():
            self._guessed[value.node] = self._guessed.get(value.node, frozenset()) | parts

    @property
    def nodes(self) -> Sequence[ProgramNode]:
        """Those of the graph."""
        return self.graph.nodes

    def states(self, value: NodeResult) -> frozenset[int]:
        """The parts that a value may stand for."""
        if value not in self._states:
            named = self._believed(value.node, self.nodes[value.node].states(value.result))
            self._states[value] = named | self.guesses.get(value, frozenset())
        return self._states[value]

    def all_states(self, node: int) -> frozenset[int]:
        """The parts that any of a node's results may stand for."""
        named = self._believed(node, self.nodes[node].all_states)
        return named | self._guessed.get(node, frozenset())

    def evidence(self, node: int) -> frozenset[int]:
        """The parts that a node's locations name; none of what is no node."""
        if node < 0:
            return frozenset()
        known = frozenset(self.source.parts.keys() & self.nodes[node].evidence)
        return known | self._guessed.get(node, frozenset())

    def place(self, node: int) -> str:
        """A node as people know it: its kernel or operation, and what is named there first; ``result 0`` of -1."""
        if node < 0:
            return f"result {-1 - node}"
        named = sorted(self.all_states(node) or self.evidence(node))
        of = f" of {self.source.operand_name(('p', named[0]))}" if named else ""
        return f"{self.nodes[node].op or 'a dispatch'}{of}"

    @cached_property
    def owned(self) -> frozenset[int]:
        """All parts that anything is named after."""
        return frozenset(
            part for node in range(len(self.nodes)) for part in self.all_states(node) | self.evidence(node)
        )

    @cached_property
    def named(self) -> frozenset[int]:
        """The twins of all parts that anything is named after."""
        return frozenset(map(self.source.twin, self.owned))

    def stored(self, value: Value) -> Value:
        """What a global holds; any other value as it is."""
        seen: set[str] = set()
        while isinstance(value, Global) and value.name in self.graph.globals and value.name not in seen:
            seen.add(value.name)
            value = self.graph.globals[value.name]
        return value

    def givers(self, node: int) -> Iterator[NodeResult]:
        """The results of other nodes that a node is given."""
        for given in self.nodes[node].inputs:
            value = self.stored(given)
            if isinstance(value, NodeResult):
                yield value

    @cached_property
    def readers(self) -> Mapping[int, frozenset[int]]:
        """Of data, the nodes that read its values, through data and moves of pieces."""
        direct: dict[int, set[int]] = {}
        for index in range(len(self.nodes)):
            for value in self.givers(index):
                direct.setdefault(value.node, set()).add(index)
        through: dict[int, frozenset[int]] = {}
        for index in reversed(range(len(self.nodes))):
            if index in self.data or self.nodes[index].hands_on_pieces:
                read = direct.get(index, set())
                through[index] = frozenset(read).union(*(through.get(reader, frozenset()) for reader in read))
        return through

    def _believed(self, node: int, parts: Iterable[int]) -> frozenset[int]:
        known = self.source.parts.keys() & parts
        if node in self.numbers:  # where a piece begins is not the piece
            whole = set() if node in self.computed else known  # how many there are is a share of finding them
            known = {part for part in known if all(map(_is_number, self.source.parts[part].types))} or whole
        if node in self.data:
            return frozenset(part for part in known if self.source.independent[part])
        return frozenset(known)

    def _numbers(self) -> Iterator[int]:
        numbers: set[int] = set()
        for index, node in enumerate(self.nodes):
            given = [value.node for value in map(self.stored, node.inputs) if isinstance(value, NodeResult)]
            computed = node.op.startswith("arith.") and len(given) == len(node.inputs) and numbers.issuperset(given)
            if node.op in _READ or computed:
                numbers.add(index)
                yield index

    def _data(self) -> Iterator[int]:
        data: set[int] = set()
        for index, node in enumerate(self.nodes):
            values = [self.stored(value) for value in node.inputs]
            varying = node.kind == "control" or any(isinstance(value, Argument | Unknown) for value in values)
            if not varying and all(value.node in data for value in values if isinstance(value, NodeResult)):
                data.add(index)
                yield index


def _is_number(kind: str) -> bool:
    """Whether a value of a type is a number, or a tensor of one element and no dimension."""
    return "[" not in kind or kind.endswith("[]")
